"""What a traced kernel does first: read the entry times, compute where its warp writes. Stores nothing.

Either as one island in front of the first instruction, or in two: the *head* reads the times there, the *rest* stands
further on, where the kernel waits for its first loads anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from . import encode as e
from .decide import Decision
from .emit import HEADER_BYTES, SlotLayout, UniformState
from .encode import Op, SpecialRegister
from .schedule import Island, schedule

__all__ = ["UNIFORM_SCRATCH", "PrologueRegisters", "head", "prologue", "rest"]

UNIFORM_SCRATCH = 8
_CONST_NTID = (0x0, 0x4, 0x8)  # c[0] offsets of blockDim, family sm_90
_CONST_NCTAID = (0xC, 0x10)

Moves = Sequence[tuple[int, int]]  # (register, value)


@dataclass(frozen=True, slots=True)
class PrologueRegisters:
    """Registers that are dead where the warp's place is computed, and the two of the entry times."""

    times: tuple[int, int]  # timer and clock; dead at the entry
    general: tuple[int, ...]  # scratch registers, as many as :meth:`needed` says
    uniform: tuple[int, ...]  # eight scratch uniform registers
    uniform_predicate: int
    scoreboard: int
    block: tuple[int, int, int] | None  # threads per CTA where the image fixes them

    @staticmethod
    def needed(block: tuple[int, int, int] | None) -> int:
        """General scratch registers beside the times: two where the block is known to be a line, else four."""
        return 2 if _is_line(block) else 4


def _is_line(block: tuple[int, int, int] | None) -> bool:
    return block is not None and block[1] == block[2] == 1


def _reads(times: tuple[int, int]) -> list[Op]:
    timer, clock = times
    return [e.cs2r32(timer, SpecialRegister.GLOBALTIMER_LO), e.cs2r32(clock, SpecialRegister.CLOCK_LO)]


def _keeps(state: UniformState, times: tuple[int, int]) -> list[Op]:
    timer, clock = times
    return [e.r2ur(state.timer, timer), e.r2ur(state.clock, clock)]


def head(state: UniformState, times: tuple[int, int], *, carried: bool) -> Island:
    """The entry times alone. ``carried``: they stay in their registers, which are free up to the rest, till then."""
    return schedule([*_reads(times), *([] if carried else _keeps(state, times))])


def rest(
    state: UniformState,
    slot: SlotLayout | None,
    regs: PrologueRegisters,
    presets: Moves = (),
    *,
    carried: bool,
    settled: int,
) -> Island:
    """Everything behind the :func:`head`. All results have arrived ``settled`` cycles behind the island.

    ``slot`` and ``presets`` as for :func:`prologue`.
    """
    code = _Code(state, slot, regs)
    begin = [*code.begin, *(_keeps(state, regs.times) if carried else [])]
    ops = [*code.thread, *code.cta, *code.multiprocessor, *code.grid, *code.block, *begin]
    ops += [*code.warp, *code.keep, *code.number, *code.place, *_moves(presets)]
    return schedule(ops, settled=settled)


def prologue(
    state: UniformState,
    slot: SlotLayout | None,
    regs: PrologueRegisters,
    presets: Moves = (),
    decision: Decision | None = None,
) -> Island:
    """The prologue as one island: capture the entry times, compute the warp's slot, set up the cursor.

    ``slot`` is None where the kernel emits no packets: then there is no ring to point at, and no cursor. ``presets``
    are (register, tag) pairs of packets whose tag register is theirs alone. With a ``decision`` warps that are not
    sampled leave for the untouched copy of the kernel as early as they can: everything that the decision does not need
    comes behind it.
    """
    code = _Code(state, slot, regs)
    times, begin = _reads(regs.times), [*code.begin, *_keeps(state, regs.times)]
    place = [*code.place, *_moves(presets)]
    if decision is None:
        first = [*times, *code.thread, *code.cta, *code.multiprocessor, *code.grid, *code.block, *begin]
        return schedule([*first, *code.warp, *code.keep, *code.number, *place])
    cta_parts, warp_parts = decision.needs_cta, decision.needs_warp
    parts = [
        (True, times),
        (warp_parts, code.thread),
        (cta_parts, code.cta + code.grid),
        (warp_parts, code.block),
        (False, code.multiprocessor + begin),
        (warp_parts, code.warp),
        (False, code.keep),
        (cta_parts, code.number),
    ]  # in an order in which each needs nothing of later ones, whichever of them come first
    early, later = ([op for first, ops in parts if first is which for op in ops] for which in (True, False))
    return schedule([*early, *code.leaves(decision), *later, *place])


def _moves(presets: Moves) -> list[Op]:
    return [e.mov_imm(register, value) for register, value in presets]


class _Code:
    """The parts of the computation, each needing nothing but those before it."""

    def __init__(self, state: UniformState, slot: SlotLayout | None, regs: PrologueRegisters) -> None:
        self._regs = regs
        sm, a, b, c = (*regs.general, 0, 0)[:4]  # a line block has no use for the last two
        cx, cy, cz, gx, gy, nx, ny, nz = regs.uniform
        sb, upred, sr = regs.scoreboard, regs.uniform_predicate, SpecialRegister
        line, block = _is_line(regs.block), regs.block
        self.thread = [e.s2r(a, sr.TID_X, sb), *([] if line else [e.s2r(b, sr.TID_Y, sb), e.s2r(c, sr.TID_Z, sb)])]
        self.cta = [e.s2ur(cx, sr.CTAID_X, sb), e.s2ur(cy, sr.CTAID_Y, sb), e.s2ur(cz, sr.CTAID_Z, sb)]
        self.multiprocessor = [e.s2r(sm, sr.SMID, sb)]
        self.grid = [e.uldc(gx, _CONST_NCTAID[0]), e.uldc(gy, _CONST_NCTAID[1])]
        self.block = [] if block else [e.uldc(n, at) for n, at in zip((nx, ny, nz), _CONST_NTID, strict=True)]
        self.begin = [e.umov_imm(state.header, 0, "header_lo"), e.umov_imm(state.header + 1, 0, "header_hi")]
        if state.descriptor is not None:
            self.begin += [e.umov_imm(state.descriptor, 0), e.umov_imm(state.descriptor + 1, 0, "header_policy")]
        if slot is not None:
            rings = state.address if state.base is None else state.base
            self.begin += [e.umov_imm(rings, 0, "buffer_lo"), e.umov_imm(rings + 1, 0, "buffer_hi")]
            self.begin.append(e.umov_imm(state.offset, 0))
        self.warp: list[Op] = []  # its number in the CTA
        if not line:
            self.warp += [e.umov_imm(nx, block[0]), e.umov_imm(ny, block[1])] if block else []
            self.warp += [e.imad_uniform(c, c, ny, b), e.imad_uniform(a, c, nx, a)]
        self.warp.append(e.shift_right(a, a, 5))
        if block is None:
            self.warp += [e.uimad(nz, nz, ny, e.URZ), e.uimad(nz, nz, nx, e.URZ)]
            self.warp += [e.uiadd_imm(nz, nz, 31), e.ushift_right(nz, nz, 5)]  # warps per CTA
        self.warp.append(e.r2ur(ny, a))
        self.keep = [e.r2ur(state.smid, sm)]
        self.number = [e.uimad(cz, cz, gy, cy), e.uimad(cz, cz, gx, cx)]  # of the CTA in the grid
        if block is None:
            index = e.uimad(cz, cz, nz, ny)
        else:  # the image fixes the block size: a constant instead of reads of blockDim
            index = e.uimad_imm(cz, cz, -(-block[0] * block[1] * block[2] // 32), ny)
        self.place = [
            index,
            e.usetp_less_imm(upred, cz, 0, "slot_count"),
            e.usel_imm(cz, cz, 0, upred, "slot_count"),
            e.uimad_wide_imm(state.header, cz, HEADER_BYTES, state.header),
        ]
        if slot is not None:
            self.place.insert(3, e.uimad_wide_imm(rings, cz, slot.stripe or slot.stride, rings))

    def leaves(self, decision: Decision) -> list[Op]:
        """The decision, by the numbers of CTA and warp."""
        regs = self._regs
        cx, cy, cz, ny = (regs.uniform[k] for k in (0, 1, 2, 6))
        return decision.ops(cta=cz, warp=ny, scratch=(cx, cy), register=regs.general[0], scoreboard=regs.scoreboard)
