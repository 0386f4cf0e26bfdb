"""Registers that hardware still reads or writes behind the program's back.

A register that is dead by data flow is still not free while

* the matrix unit owns it (WGMMA operands, until the group's wait; facts/sass.md 6.2),
* a WGMMA in the same fence window will touch it (the dependency is taken at WARPGROUP.ARRIVE),
* a load has yet to write it or a store has yet to read it (until the scoreboard's wait; 6.4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from xtrace.isa.model import Instruction, Latency

from .cfg import Block, ControlFlow
from .dataflow import forward

__all__ = ["Awaited", "InFlight", "inflight"]

_BEFORE_FENCE = 8  # cycles from a register's write to the fence of a matrix operation that uses it (7.1)
_ACTING_TAGS = frozenset({"matrix_commit", "matrix_wait", "memory"})
_MAX_GROUPS = 8  # older groups are merged into the oldest: more ownership, never less


class Awaited(NamedTuple):
    """What an instruction's own wait changes."""

    busy: int  # as in :class:`InFlight`, once the wait is over
    guarded: tuple[int, ...]  # by scoreboard: registers that its wait frees


@dataclass(frozen=True)
class InFlight:
    """State before each instruction, before that instruction's own wait mask has acted."""

    busy: tuple[int, ...]  # registers not to be written (owned, in a fence window, or pending)
    claimed: tuple[int, ...]  # bit k: the kernel may have claims outstanding on scoreboard k
    awaited: Mapping[int, Awaited]  # of instructions that wait for a scoreboard
    due: tuple[tuple[int, ...], ...]  # per scoreboard: registers whose results have yet to arrive


@dataclass(frozen=True, slots=True)
class _State:
    claimed: int
    writes: tuple[int, ...]  # per scoreboard: registers a claim still has to write
    reads: tuple[int, ...]  # per scoreboard: registers a claim still has to read
    unprotected: int  # read by a memory operation that claims no scoreboard
    open_group: int  # matrix operands issued since the last commit
    groups: tuple[int, ...]  # committed groups, newest first

    def merge(self, other: _State) -> _State:
        n = max(len(self.groups), len(other.groups))
        mine = self.groups + (0,) * (n - len(self.groups))
        its = other.groups + (0,) * (n - len(other.groups))
        return _State(
            self.claimed | other.claimed,
            tuple(a | b for a, b in zip(self.writes, other.writes, strict=True)),
            tuple(a | b for a, b in zip(self.reads, other.reads, strict=True)),
            self.unprotected | other.unprotected,
            self.open_group | other.open_group,
            tuple(a | b for a, b in zip(mine, its, strict=True)),
        )

    @property
    def busy(self) -> int:
        bits = self.unprotected | self.open_group
        for part in (self.writes, self.reads, self.groups):
            for mask in part:
                bits |= mask
        return bits


def _pending_groups(ins: Instruction) -> int:
    for tag in ins.tags:
        if tag.startswith("pending="):
            return int(tag[8:])
    return 0


def _awaited(s: _State, wait: int, window: int) -> Awaited:
    guarded = tuple(w | r if wait >> k & 1 else 0 for k, (w, r) in enumerate(zip(s.writes, s.reads, strict=True)))
    kept = [0 if wait >> k & 1 else w | r for k, (w, r) in enumerate(zip(s.writes, s.reads, strict=True))]
    busy = s.unprotected | s.open_group | window
    for mask in (*kept, *s.groups):
        busy |= mask
    return Awaited(busy, guarded)


def _step(s: _State, ins: Instruction, late: int) -> _State:
    """State behind ``ins``. ``late``: registers of classes that memory units may read after issue."""
    control = ins.control
    sources = ins.reads & late
    claimed, writes, reads = s.claimed, list(s.writes), list(s.reads)
    unprotected, open_group, groups = s.unprotected, s.open_group, s.groups
    wait = control.wait_mask
    for k in range(len(writes)):
        if wait >> k & 1:
            writes[k] = reads[k] = 0
    claimed &= ~wait
    if ins.latency is Latency.ASYNC_MATRIX:
        open_group |= ins.reads | ins.writes
    if "matrix_commit" in ins.tags:
        groups = (open_group, *groups)
        if len(groups) > _MAX_GROUPS:
            groups = (*groups[: _MAX_GROUPS - 1], groups[_MAX_GROUPS - 1] | groups[_MAX_GROUPS])
        open_group = 0
    if "matrix_wait" in ins.tags and not ins.guard:
        groups = groups[: _pending_groups(ins)]
    touched = ins.writes if not ins.opaque else 0
    unprotected &= ~touched  # the kernel's own write shows that the reader is done
    if control.write_sb is not None:
        k = control.write_sb
        claimed |= 1 << k
        writes[k] |= ins.writes
        if control.read_sb is None:
            reads[k] |= sources
    if control.read_sb is not None:
        claimed |= 1 << control.read_sb
        reads[control.read_sb] |= sources
    if "memory" in ins.tags and control.read_sb is None and control.write_sb is None:
        unprotected |= sources
    return _State(claimed, tuple(writes), tuple(reads), unprotected, open_group, groups)


def _acts(ins: Instruction) -> bool:
    """Whether an instruction can do more to the state than show that a register's reader is done."""
    c = ins.control
    claims = c.write_sb is not None or c.read_sb is not None
    return bool(claims or c.wait_mask or ins.latency is Latency.ASYNC_MATRIX or ins.tags & _ACTING_TAGS)


def _fence_windows(cfg: ControlFlow) -> list[int]:
    """Backward: registers that a matrix operation touches before the next fence is passed (going back)."""
    ins = cfg.instructions
    fences = {x.index for x in ins if "matrix_fence" in x.tags}
    uses = {x.index: x.reads | x.writes for x in ins if x.latency is Latency.ASYNC_MATRIX}
    before = [0] * len(ins)
    if not uses:
        return before
    marks: list[list[int]] = [[] for _ in cfg.blocks]  # fences and matrix operations of each block, last one first
    for i in sorted(fences | uses.keys(), reverse=True):
        marks[cfg.block_of[i]].append(i)
    into = [0] * len(cfg.blocks)
    changed = True
    while changed:
        changed = False
        for block in reversed(cfg.blocks):
            bits = _behind(into, block)
            for i in marks[block.number]:
                bits = 0 if i in fences else bits | uses[i]
            if bits != into[block.number]:
                into[block.number] = bits
                changed = True
    behind_fence: dict[int, int] = {}
    for block in cfg.blocks:
        bits, stop = _behind(into, block), block.last + 1
        for i in marks[block.number]:
            before[i + 1 : stop] = [bits] * (stop - i - 1)
            if i in fences:
                behind_fence[i] = bits
            bits, stop = 0 if i in fences else bits | uses[i], i + 1
        before[block.first : stop] = [bits] * (stop - block.first)
    for fence, bits in behind_fence.items():  # a result must have arrived when the fence issues
        stack = [(fence, 0)]
        seen: dict[int, int] = {}
        while stack:
            i, cycles = stack.pop()
            if cycles >= _BEFORE_FENCE or seen.get(i, _BEFORE_FENCE) <= cycles:
                continue
            seen[i] = cycles
            before[i] |= bits
            stack += [(p, cycles + max(ins[p].control.stall, 1)) for p in cfg.predecessors[i]]
    return before


def _behind(into: list[int], block: Block) -> int:
    bits = 0
    for s in block.successors:
        bits |= into[s]
    return bits


def inflight(cfg: ControlFlow, scoreboards: int, late: int) -> InFlight:
    """Forward may-analysis over all paths from the entry.

    ``late`` is the set of registers (general and uniform) that memory and asynchronous units may read after issue.
    """
    ins = cfg.instructions
    acts = [_acts(x) for x in ins]

    def through(state: _State, block: Block) -> _State:
        for i in block.indices:
            if acts[i] or state.unprotected & ins[i].writes:
                state = _step(state, ins[i], late)
        return state

    zero = (0,) * scoreboards
    start = forward(cfg, _State(0, zero, zero, 0, 0, ()), through)
    fence = _fence_windows(cfg)
    busy = [0] * len(ins)
    claimed = [0] * len(ins)
    awaited: dict[int, Awaited] = {}
    due = [zero] * len(ins)
    for block in cfg.blocks:
        if block.number not in start:
            continue
        state = start[block.number]
        owned = state.busy
        for i in block.indices:
            busy[i] = owned | fence[i]
            claimed[i] = state.claimed
            if wait := ins[i].control.wait_mask:
                awaited[i] = _awaited(state, wait, fence[i])
            due[i] = state.writes
            if acts[i] or state.unprotected & ins[i].writes:
                state = _step(state, ins[i], late)
                owned = state.busy
    return InFlight(tuple(busy), tuple(claimed), awaited, tuple(due))
