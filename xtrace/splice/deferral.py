"""Deferred waits: when a probe store may still be reading its registers after the kernel goes on.

Waiting for the store's read scoreboard at the end of an island costs the store's whole release time.
Instead the wait can be left to the next island, if nothing on any path up to there could notice:
no kernel instruction claims or waits for that scoreboard or touches the data registers, and no
kernel claim can be outstanding on it where the next island waits.
"""

from __future__ import annotations

from collections.abc import Set

from xtrace.analysis import KernelAnalysis

from .resources import touches_scoreboard

__all__ = ["next_islands"]


def next_islands(
    a: KernelAnalysis, start: int, scoreboard: int, registers: int, islands: Set[int]
) -> frozenset[int] | None:
    """Islands (instruction indices) that must wait for ``scoreboard``, or None if the wait cannot be deferred."""
    bit = 1 << scoreboard
    found: set[int] = set()
    seen: set[int] = set()
    stack = [start]
    first = True
    while stack:
        i = stack.pop()
        if not first and i in islands:
            if a.inflight.claimed[i] & bit:
                return None
            found.add(i)
            continue
        first = False
        if i in seen:
            continue
        seen.add(i)
        ins = a.instructions[i]
        if a.isa.max_registers(ins) is not None and registers:  # the registers may be given away
            return None
        if ins.opaque or touches_scoreboard(ins) & bit or (ins.reads | ins.writes) & registers:
            return None
        stack += a.cfg.successors[i]
    return frozenset(found)
