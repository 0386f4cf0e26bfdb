"""Deferred waits: when a probe store may still be reading its registers after the kernel goes on.

Waiting for the store's read scoreboard at the end of an island costs the store's whole release time.
Instead the wait can be left to the next island, if nothing on any path up to there could notice:
no kernel instruction claims or waits for that scoreboard or touches the data registers, and no
kernel claim can be outstanding on it where the next island waits. Where that fails, one instruction
that waits can stand later in the same block, when the store has long been read.
"""

from __future__ import annotations

from collections.abc import Set

from xtrace.analysis import KernelAnalysis

from .resources import touches_scoreboard

__all__ = ["drains", "leaves_work", "next_islands", "wait_place"]

_LONGEST_WAIT = 96  # cycles behind a store that a wait of its own is looked for


def drains(tags: Set[str]) -> bool:
    """Whether an instruction with these tags waits for the tensor cores until they have nothing left to do."""
    return "matrix_wait" in tags and "pending=0" in tags


def leaves_work(tags: Set[str]) -> bool:
    """Whether an instruction with these tags waits for the tensor cores, but not for all of their work.

    Such a wait is no place to hide: the kernel goes on with the critical path of its loop, and a store reads its
    registers late as long as matrix instructions read theirs (FlashAttention-3 on an H200: two stores in front of such
    a wait cost 0.3 % more than one earlier and one behind it).
    """
    return "matrix_wait" in tags and "pending=0" not in tags


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


def wait_place(
    a: KernelAnalysis, start: int, scoreboard: int, registers: int, islands: Set[int]
) -> tuple[int, int] | None:
    """Where an island with nothing but the wait may stand when no other island can make it.

    The last instruction of the block, at most 96 cycles on, up to which nothing could notice the store. Returns its
    index and the kernel's least cycles up to there, or None right away.
    """
    bit = 1 << scoreboard
    last = a.cfg.blocks[a.cfg.block_of[start]].last
    cycles = 0
    for i in range(start, last + 1):
        if i != start and (i in islands or cycles >= _LONGEST_WAIT):
            return i, cycles
        ins = a.instructions[i]
        touched = ins.opaque or a.isa.max_registers(ins) is not None
        if touched or touches_scoreboard(ins) & bit or (ins.reads | ins.writes) & registers:
            return (i, cycles) if i != start else None
        cycles += a.issue_cycles[i]
    return (last, cycles - a.issue_cycles[last]) if last != start else None
