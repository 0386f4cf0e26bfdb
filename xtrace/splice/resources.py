"""Free registers, predicates and scoreboards at a point of a kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from xtrace.analysis import KernelAnalysis
from xtrace.isa.model import Instruction

__all__ = ["Free", "FreeFinder", "touches_scoreboard"]

_SB_OPERAND = re.compile(r"\bSB(\d)\b")


@lru_cache(maxsize=1 << 14)
def _named_scoreboards(text: str) -> int:
    bits = 0
    for m in _SB_OPERAND.finditer(text):
        bits |= 1 << int(m[1])
    return bits


def touches_scoreboard(ins: Instruction) -> int:
    """Scoreboards (bit set) that an instruction claims, waits for or names as an operand."""
    c = ins.control
    bits = c.wait_mask | _named_scoreboards(ins.text) if "SB" in ins.text else c.wait_mask
    for k in (c.write_sb, c.read_sb):
        if k is not None:
            bits |= 1 << k
    return bits


class Free:
    """What a probe may use directly before one instruction, or behind that instruction's own wait (``waits``)."""

    def __init__(self, a: KernelAnalysis, index: int, limit: int, reserved: int, *, waits: bool = False) -> None:
        layout = a.isa.layout
        busy = a.inflight.awaited[index].busy if waits else a.inflight.busy[index]
        taken = a.liveness.before[index] | busy | a.recently_used(index, signalled=not waits) | reserved
        self._general = layout["R"].mask & ~taken & ((1 << max(limit, 0)) - 1)
        self._predicates = (layout["P"].mask & ~taken) >> layout["P"].first_bit
        self.unnamed = layout["R"].mask & ~a.named
        self.scoreboards = [k for k in range(a.isa.scoreboards) if not a.inflight.claimed[index] >> k & 1]
        if waits:
            mask = a.instructions[index].control.wait_mask
            self.scoreboards += [k for k in range(a.isa.scoreboards) if mask >> k & 1 and k not in self.scoreboards]

    def groups(self, width: int) -> Iterator[int]:
        """Aligned runs of ``width`` free general registers: never-named ones first, then from the top."""
        own: list[int] = []
        shared: list[int] = []
        unit = (1 << width) - 1
        for r in range(0, self._general.bit_length(), width):
            if self._general >> r & unit == unit:
                (own if self.unnamed >> r & unit == unit else shared).append(r)
        yield from own
        yield from reversed(shared)

    def take(self, width: int, *, named_first: bool = False) -> int | None:
        """One such run, which is then no longer free; ``named_first``: rather one that the kernel itself uses."""
        runs = list(self.groups(width))
        if named_first:
            runs.sort(key=lambda r: self.unnamed >> r & ((1 << width) - 1) != 0)
        first = next(iter(runs), None)
        if first is not None:
            self._general &= ~(((1 << width) - 1) << first)
        return first

    @property
    def any(self) -> bool:
        """Whether a general register is free."""
        return bool(self._general)

    @property
    def predicates(self) -> list[int]:
        return [k for k in range(7) if self._predicates >> k & 1]


class FreeFinder:
    """Caches :class:`Free` per site and knows the register limit at each point."""

    def __init__(self, a: KernelAnalysis) -> None:
        self._a = a
        self._cache: dict[int, Free] = {}
        self._waits: set[int] = set()
        self._reserved = 0

    def limit(self, index: int) -> int:
        """First general register number that must not be used."""
        a = self._a
        top = a.caps[index] if a.moves_registers else a.register_slack
        return top - a.isa.reserved_registers

    def at(self, index: int) -> Free:
        if index not in self._cache:
            self._cache[index] = Free(self._a, index, self.limit(index), self._reserved, waits=index in self._waits)
        return self._cache[index]

    def wait_along(self, index: int) -> bool:
        """From now on the island at ``index`` may wait for what the instruction there waits for anyway.

        That delays nothing: the kernel would stand at the same place until then. False if it does not wait, or if that
        was known.
        """
        if index in self._waits or index not in self._a.inflight.awaited:
            return False
        self._waits.add(index)
        self._cache.pop(index, None)
        return True

    def busy(self, index: int) -> int:
        """Registers that hardware may still read or write, seen from the island at ``index``."""
        flight = self._a.inflight
        return flight.awaited[index].busy if index in self._waits else flight.busy[index]

    def shared_waits(self, index: int, registers: int, scoreboard: int | None) -> tuple[tuple[int, int], ...]:
        """(scoreboard, registers) of the waits that an island at ``index`` shares with the instruction there."""
        if index not in self._waits:
            return ()
        claimed = self._a.inflight.claimed[index]
        guarded = self._a.inflight.awaited[index].guarded
        mask = self._a.instructions[index].control.wait_mask & claimed
        return tuple(
            (k, bits) for k, bits in enumerate(guarded) if mask >> k & 1 and (bits & registers or k == scoreboard)
        )

    def reserve(self, registers: int) -> None:
        """Take registers away from everybody who asks from now on."""
        self._reserved |= registers
        self._cache.clear()
