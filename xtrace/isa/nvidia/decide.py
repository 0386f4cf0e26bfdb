"""The decision of a sampled kernel: a few instructions in the prologue, and one branch.

A warp that the rule does not take goes to the untouched copy of the kernel, which stands right behind the prologue. The
branch is guarded by a vector predicate that is the same in all lanes, as the rule is about the warp: it never splits a
warp. The others end the prologue with a branch over the copy.
"""

from __future__ import annotations

from dataclasses import dataclass

from . import encode as e
from .encode import Op
from .schedule import Island, schedule

__all__ = ["COPY", "TRACED", "Decision", "way_over"]

COPY = "copy"  # where the branch goes: the first instruction of the copy
TRACED = "traced"  # where warps that are traced go on: behind the copy
_WORD = 1 << 32


@dataclass(frozen=True, slots=True)
class Decision:
    """CTA numbers that leave ``offset`` modulo ``every``, and warps whose bit is set in ``warps`` (None: all)."""

    every: int
    offset: int
    warps: int | None
    predicate: int  # vector predicate that is dead at the kernel's entry

    @property
    def needs_cta(self) -> bool:
        return self.every > 1

    @property
    def needs_warp(self) -> bool:
        return self.warps is not None

    def ops(self, *, cta: int, warp: int, scratch: tuple[int, int], register: int, scoreboard: int) -> list[Op]:
        """``cta`` and ``warp`` name the uniform registers with the numbers, which stay as they are.

        Divisibility without a division: an odd m divides x if and only if x * (1/m) modulo 2**32 is at most
        (2**32 - 1) / m (Granlund and Montgomery 1994); powers of two are a matter of the low bits.
        """
        x, y = scratch
        ops: list[Op] = []
        also = e.PT

        def test(op: Op) -> None:
            nonlocal also
            ops.append(op)
            also = self.predicate

        if self.warps is not None:
            ops += [e.umov_imm(x, self.warps), e.ushift_right_by(x, x, warp), e.uand_imm(x, x, 1)]
            test(e.compare(self.predicate, "NE", e.RZ, x, also))
        if self.every > 1:
            low = self.every & -self.every
            odd = self.every // low
            number = cta
            if self.offset:
                ops.append(e.uiadd_imm(x, cta, self.every - self.offset))
                number = x
            if odd > 1:
                ops.append(e.mov_imm(register, (_WORD - 1) // odd))
                ops.append(e.uimad_imm(y, number, pow(odd, -1, _WORD), e.URZ))
                test(e.compare(self.predicate, "GE", register, y, also))
            if low > 1:
                ops.append(e.uand_imm(x, number, low - 1))
                test(e.compare(self.predicate, "EQ", e.RZ, x, also))
        # No result of a probe is still on its way when the untouched code begins.
        return [*ops, e.branch(COPY).guarded(self.predicate, negated=True).waiting(1 << scoreboard)]


def way_over() -> Island:
    """The branch over the copy with which the prologue ends."""
    return schedule([e.branch(TRACED)])
