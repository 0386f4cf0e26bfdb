"""Control-flow graph of one kernel: instruction successors and basic blocks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xtrace.errors import Refused
from xtrace.isa.model import Flow, Instruction

__all__ = ["Block", "ControlFlow", "build_cfg"]

_BARRIER = re.compile(r"\bB(\d+)\b")


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions ``first`` to ``last`` (indices, inclusive) that run as one piece."""

    number: int
    first: int
    last: int
    successors: tuple[int, ...]
    predecessors: tuple[int, ...]

    @property
    def indices(self) -> range:
        return range(self.first, self.last + 1)


@dataclass(frozen=True)
class ControlFlow:
    """Successors by instruction index, and the same as blocks. Block 0 is the entry."""

    instructions: tuple[Instruction, ...]
    successors: tuple[tuple[int, ...], ...]
    predecessors: tuple[tuple[int, ...], ...]
    blocks: tuple[Block, ...]
    block_of: tuple[int, ...]
    reachable: frozenset[int]  # block numbers reachable from the entry


def _barrier(ins: Instruction) -> str | None:
    m = _BARRIER.search(ins.text.split(ins.base, 1)[1])
    return m[1] if m else None


def _add_reconvergence(instructions: Sequence[Instruction], succ: list[tuple[int, ...]]) -> None:
    """A BSYNC may continue at the address named by any BSSY on the same barrier that reaches it.

    Which BSSYs reach it is found on the graph itself, so edges are added until nothing changes.
    A barrier that is saved or restored (BMOV) may come from anywhere: then every BSSY counts.
    """
    named = [(ins, ins.base) for ins in instructions if ins.opcode.startswith("B")]
    starts = [(ins.index, _barrier(ins), ins.target) for ins, base in named if base == "BSSY" and not ins.never]
    syncs = {ins.index: _barrier(ins) for ins, base in named if base == "BSYNC" and not ins.never}
    opened = {index: barrier for index, barrier, _ in starts}
    moved = any(base == "BMOV" for _, base in named)
    by_pc = {ins.pc: ins.index for ins in instructions}
    changed = True
    while changed:
        changed = False
        for start, barrier, target in starts:
            if target not in by_pc:
                continue
            goal = by_pc[target]
            for sync in _syncs_reached(succ, start, barrier, opened, syncs) if not moved else syncs:
                if goal not in succ[sync]:
                    succ[sync] = (*succ[sync], goal)
                    changed = True


def _syncs_reached(
    succ: Sequence[tuple[int, ...]],
    start: int,
    barrier: str | None,
    opened: Mapping[int, str | None],
    syncs: Mapping[int, str | None],
) -> set[int]:
    found: set[int] = set()
    seen = {start}
    stack = list(succ[start])
    while stack:
        i = stack.pop()
        if i in seen or opened.get(i, "") == barrier:  # opened again: this BSSY's claim ends here
            continue
        seen.add(i)
        if syncs.get(i, "") == barrier:
            found.add(i)
            continue
        stack += succ[i]
    return found


def _instruction_successors(
    instructions: Sequence[Instruction], indirect: Mapping[int, Sequence[int]], where: str
) -> list[tuple[int, ...]]:
    by_pc = {ins.pc: ins.index for ins in instructions}
    returns = [ins.index + 1 for ins in instructions if ins.flow is Flow.CALL]
    result: list[tuple[int, ...]] = []
    for ins in instructions:
        if ins.flow is Flow.FALL and ins.target is None and ins.falls_through:  # most are of this kind
            result.append((ins.index + 1,) if ins.index + 1 < len(instructions) else ())
            continue
        out: list[int] = []
        targets: list[int] = [] if ins.target is None else [ins.target]
        if ins.never:
            out.append(ins.index + 1)
            targets = []
        elif ins.flow is Flow.RETURN:
            out += returns
        elif ins.flow is Flow.INDIRECT:
            if ins.pc not in indirect:
                raise Refused(
                    "XT3001",
                    f"jump through a register without a known target list: {ins.text}",
                    where=f"{where} pc 0x{ins.pc:x}",
                    hint="the image has no INDIRECT_BRANCH_TARGETS entry for it, so its control flow is unknown",
                )
            targets = list(indirect[ins.pc])
        elif targets and ins.base == "BSSY":
            targets = []
        if ins.falls_through and not ins.never:
            out.append(ins.index + 1)
        for target in targets:
            if target not in by_pc:
                raise Refused(
                    "XT3002",
                    f"control flow leaves the kernel's code: {ins.text}",
                    where=f"{where} pc 0x{ins.pc:x}",
                    hint="code that branches outside its own section cannot be followed",
                )
            out.append(by_pc[target])
        result.append(tuple(dict.fromkeys(k for k in out if k < len(instructions))))
    return result


def build_cfg(
    instructions: tuple[Instruction, ...],
    *,
    indirect: Mapping[int, Sequence[int]] | None = None,
    where: str = "",
) -> ControlFlow:
    """Build the graph.

    Parameters
    ----------
    indirect
        Possible targets (byte offsets) of each register jump, from the image's own table.

    Raises
    ------
    Refused
        XT3001/XT3002 when the control flow cannot be known for certain.
    """
    succ = _instruction_successors(instructions, indirect or {}, where)
    _add_reconvergence(instructions, succ)
    pred: list[list[int]] = [[] for _ in instructions]
    leaders = {0}
    for i, out in enumerate(succ):
        for k in out:
            pred[k].append(i)
        if out != (i + 1,) or instructions[i].flow not in (Flow.FALL, Flow.PUSH):  # a guarded EXIT ends a block too
            leaders.update(out)
            leaders.add(i + 1)
    for ins in instructions:
        if ins.target is not None and ins.flow is Flow.PUSH:
            index = ins.target // ins.size
            if index < len(instructions):
                leaders.add(index)
    starts = sorted(k for k in leaders if k < len(instructions))
    ends = [*(s - 1 for s in starts[1:]), len(instructions) - 1] if starts else []
    block_of = [0] * len(instructions)
    for number, (first, last) in enumerate(zip(starts, ends, strict=True)):
        block_of[first : last + 1] = [number] * (last + 1 - first)
    blocks = tuple(
        Block(
            n,
            first,
            last,
            tuple(dict.fromkeys(block_of[k] for k in succ[last])),
            tuple(dict.fromkeys(block_of[k] for k in pred[first])),
        )
        for n, (first, last) in enumerate(zip(starts, ends, strict=True))
    )
    seen: set[int] = set()
    stack = [0] if blocks else []
    while stack:
        b = stack.pop()
        if b not in seen:
            seen.add(b)
            stack += blocks[b].successors
    return ControlFlow(
        instructions, tuple(succ), tuple(tuple(x) for x in pred), blocks, tuple(block_of), frozenset(seen)
    )
