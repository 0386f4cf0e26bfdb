"""Code that some lanes of a warp run while all its others stand and wait.

The shape is that of one elected lane's work: a branch, past which one side leads at once to the instruction where the
lanes meet again (BSYNC, WARPSYNC.ALL), while the other side does something first. Whoever runs that something has the
warp to itself: the rest can only be on its way to the meeting point, where it waits. On that way are at most a few
instructions that claim no scoreboard.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass

from xtrace.isa.model import Flow, Instruction, RegisterLayout

from .cfg import ControlFlow

__all__ = ["Region", "barrier_of", "joins_all", "regions"]

_LETS_GO = frozenset({"WARPSYNC", "BREAK", "YIELD"})  # may set those free that wait, or wait for them
_MOST_STEPS = 64  # instructions from the branch to the meeting point
_BARRIER = re.compile(r"\bB(\d+)\b")
_PLAIN_BRANCH = re.compile(r"@!?P\d BRA (0x[0-9a-f]+|`\([^)]*\));?$")


@dataclass(frozen=True, slots=True)
class Region:
    """Blocks ``inside`` are entered through ``branch`` alone, and left only towards the meeting point."""

    branch: int  # instruction
    inside: frozenset[int]  # blocks
    barrier: int  # bit of the convergence barrier at which the others wait; 0: WARPSYNC.ALL
    enters: int  # predicate (bit) that is true in every lane that enters; 0: not known


def barrier_of(ins: Instruction) -> int:
    """Bit of the convergence barrier that BSSY, BSYNC or BREAK names; 0 where there is none."""
    named = _BARRIER.search(ins.text.split(ins.base, 1)[1])
    return 1 << int(named[1]) if named else 0


def joins_all(ins: Instruction) -> bool:
    """Whether all lanes of the warp wait for each other here."""
    return ins.opcode == "WARPSYNC.ALL" and not ins.guard


def regions(cfg: ControlFlow, layout: RegisterLayout, occupied: Set[int]) -> list[Region]:
    """All of them. At the instructions ``occupied`` something stands that the waiting lanes must not run."""
    found = []
    for block in cfg.blocks:
        last = cfg.instructions[block.last]
        if last.flow is not Flow.BRANCH or not last.guard or len(block.successors) != 2:
            continue
        taken, falls = block.successors
        if cfg.blocks[taken].first == block.last + 1:
            taken, falls = falls, taken
        for rest, enter in ((taken, falls), (falls, taken)):
            region = _region(cfg, layout, block.last, rest, enter, occupied)
            if region is not None:
                found.append(region)
                break
    return found


def _region(
    cfg: ControlFlow, layout: RegisterLayout, branch: int, rest: int, enter: int, occupied: Set[int]
) -> Region | None:
    """The lanes that go to block ``rest`` wait; those that go to block ``enter`` work."""
    way = _way_to_meeting(cfg, rest, occupied)
    if way is None:
        return None
    meeting, passed = way
    home = cfg.block_of[branch]
    inside: set[int] = set()
    stack = [enter]
    while stack:
        n = stack.pop()
        if n in passed or n in inside:
            continue
        if n == home or not cfg.blocks[n].successors:
            return None
        inside.add(n)
        stack += cfg.blocks[n].successors
    if not inside or any(
        p not in inside and p in cfg.reachable and (p != home or n != enter)
        for n in inside
        for p in cfg.blocks[n].predecessors
    ):
        return None
    barrier = 0 if joins_all(meeting) else barrier_of(meeting)
    for n in inside:
        for i in cfg.blocks[n].indices:
            ins = cfg.instructions[i]
            if ins.opaque or ins.flow is Flow.EXIT or ins.base in _LETS_GO:
                return None
            if ins.base == "BSSY" and barrier_of(ins) == barrier:
                return None
    if _meets_outsiders(cfg, inside, enter):
        return None
    last = cfg.instructions[branch]
    enters = 0
    if _PLAIN_BRANCH.match(last.text) and last.guard.startswith("@!") == (enter == cfg.block_of[branch + 1]):
        enters = last.reads & layout["P"].mask
    return Region(branch, frozenset(inside), barrier, enters)


def _way_to_meeting(cfg: ControlFlow, start: int, occupied: Set[int]) -> tuple[Instruction, set[int]] | None:
    """The meeting point that a straight way leads to from block ``start``, and the blocks that it touches."""
    passed: set[int] = set()
    i = cfg.blocks[start].first
    for _ in range(_MOST_STEPS):
        passed.add(cfg.block_of[i])
        ins = cfg.instructions[i]
        if i in occupied:
            return None
        if joins_all(ins) or (ins.base == "BSYNC" and not ins.guard):
            return ins, passed
        straight = ins.flow is Flow.FALL and "converge" not in ins.tags
        if (
            ins.opaque
            or ins.control.write_sb is not None
            or ins.control.read_sb is not None
            or len(cfg.successors[i]) != 1
            or not (straight or (ins.flow is Flow.BRANCH and not ins.guard))
        ):
            return None
        i = cfg.successors[i][0]
    return None


def _meets_outsiders(cfg: ControlFlow, inside: set[int], enter: int) -> bool:
    """Whether a convergence barrier that was set outside may be waited for inside."""
    synced = 0
    for n in inside:
        for i in cfg.blocks[n].indices:
            if cfg.instructions[i].base == "BSYNC":
                synced |= barrier_of(cfg.instructions[i]) or -1
    if synced < 0:
        return True
    seen: dict[int, int] = {}
    stack = [(enter, synced)]  # barriers that nothing inside has set on the way here
    while stack:
        n, foreign = stack.pop()
        if n not in inside or not foreign & ~seen.get(n, 0):
            continue
        foreign |= seen.get(n, 0)
        seen[n] = foreign
        for i in cfg.blocks[n].indices:
            ins = cfg.instructions[i]
            if ins.base == "BSSY":
                foreign &= ~barrier_of(ins)
            elif ins.base == "BSYNC" and barrier_of(ins) & foreign:
                return True
        stack += [(s, foreign) for s in cfg.blocks[n].successors]
    return False
