"""The verifier's own control-flow graph and data-flow solver, over one decoded kernel.

Everything is per instruction and kept in plain lists: state is one big integer per program point, and a transfer
function is a pair (keep, gen). Composing those over a basic block makes a fixpoint over thousands of instructions a
few thousand integer operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from xtrace.isa.model import Flow, Instruction, RegisterLayout

__all__ = ["Program", "backward_may", "build", "forward_may", "forward_must"]


@dataclass(slots=True)
class Program:
    """Instructions of one kernel with successor lists.

    ``unknown`` lists program points whose successors could not be found (register jumps without a table); data-flow
    results are not trustworthy then. ``probe[i]`` is true for words that are not the kernel's.
    """

    code: Sequence[Instruction]
    succ: list[list[int]]
    pred: list[list[int]]
    starts: list[int]  # first instruction of each basic block, ascending
    entries: list[int]  # indices where control can enter from outside
    unknown: list[int]
    probe: list[bool]
    layout: RegisterLayout
    block_of: list[int] = field(default_factory=list)

    def reachable(self) -> list[bool]:
        seen = [False] * len(self.code)
        work = list(self.entries)
        for i in work:
            seen[i] = True
        while work:
            i = work.pop()
            for j in self.succ[i]:
                if not seen[j]:
                    seen[j] = True
                    work.append(j)
        return seen

    def without(self, gone: range) -> Program:
        """The same code with no way into or out of a part of it."""
        if not gone:
            return self
        succ, pred = (
            [[] if i in gone else [j for j in side[i] if j not in gone] for i in range(len(self.code))]
            for side in (self.succ, self.pred)
        )
        return replace(self, succ=succ, pred=pred)

    def blocks(self) -> list[range]:
        ends = [*self.starts[1:], len(self.code)]
        return [range(a, b) for a, b in zip(self.starts, ends, strict=True)]


def build(
    code: Sequence[Instruction],
    layout: RegisterLayout,
    *,
    entry_pcs: Iterable[int] = (0,),
    tables: Mapping[int, Sequence[int]] | None = None,
    probe: Sequence[bool] | None = None,
) -> Program:
    """Build the graph.

    Parameters
    ----------
    entry_pcs
        Byte offsets of the kernel entry and of local functions.
    tables
        Targets of each indirect branch by its byte offset (EIATTR 0x34).
    """
    count = len(code)
    index = {ins.pc: ins.index for ins in code}
    succ: list[list[int]] = []
    unknown: list[int] = []
    returns = [ins.index + 1 for ins in code if ins.flow is Flow.CALL and ins.index + 1 < count]
    joins: dict[int, list[int]] = {}  # convergence barrier bits -> where its region ends
    barriers = layout["B"].mask if "B" in layout.classes else 0
    for ins in code:
        if ins.base == "BSSY" and ins.target is not None and ins.target in index:
            joins.setdefault(ins.writes & barriers, []).append(index[ins.target])
    for i, ins in enumerate(code):
        out: list[int] = []
        falls = ins.falls_through or ins.conditional
        if ins.flow is Flow.RETURN:
            out.extend(returns)
            if not returns:
                unknown.append(i)
        elif ins.flow is Flow.INDIRECT:
            listed = (tables or {}).get(ins.pc)
            if not listed or any(t not in index for t in listed):
                unknown.append(i)
            out.extend(index[t] for t in listed or () if t in index)
        elif ins.flow is Flow.EXIT:
            pass
        elif ins.flow in (Flow.BRANCH, Flow.CALL) or (ins.flow is Flow.PUSH and ins.base == "WARPSYNC"):
            if ins.target is None or ins.target not in index:
                unknown.append(i)
            elif not ins.never:
                out.append(index[ins.target])
            if ins.flow is Flow.CALL:
                falls = ins.conditional  # comes back through the callee's return only
            elif ins.flow is Flow.PUSH:
                falls = True
        else:
            falls = True
            if ins.base == "BSYNC":
                # Lanes that reconverge go on where the matching BSSY said: nearly always the next instruction.
                ends = joins.get(ins.reads & barriers, [])
                if i + 1 not in ends:
                    out.extend(ends)
        if falls:
            if i + 1 < count:
                out.append(i + 1)
            elif ins.flow is not Flow.EXIT or ins.conditional:
                unknown.append(i)
        succ.append(sorted(set(out)))
    pred: list[list[int]] = [[] for _ in range(count)]
    for i, targets in enumerate(succ):
        for j in targets:
            pred[j].append(i)
    entries = sorted({index[pc] for pc in entry_pcs if pc in index})
    heads = set(entries) | ({0} if count else set())
    for i in range(count):
        if succ[i] != [i + 1]:
            heads.update(succ[i])
            if i + 1 < count:
                heads.add(i + 1)
    starts = sorted(heads)
    program = Program(code, succ, pred, starts, entries, unknown, list(probe or [False] * count), layout)
    program.block_of = [0] * count
    for number, block in enumerate(program.blocks()):
        for i in block:
            program.block_of[i] = number
    live = program.reachable()
    program.unknown = [i for i in unknown if live[i]]
    return program


def _solve(
    program: Program, keep: Sequence[int], gen: Sequence[int], boundary: int, *, forward: bool, must: bool, top: int
) -> list[int]:
    """State before (forward) or after (backward) each instruction; ``f(x) = (x & keep) | gen``."""
    blocks = program.blocks()
    order = list(range(len(blocks)))
    b_keep, b_gen = [], []
    for block in blocks:
        k, g = -1, 0
        for i in block if forward else reversed(block):
            k, g = k & keep[i], (g & keep[i]) | gen[i]
        b_keep.append(k)
        b_gen.append(g)
    start_of = {block.start: n for n, block in enumerate(blocks)}
    edges: list[list[int]] = [[start_of[j] for j in program.succ[block.stop - 1]] for block in blocks]
    inverse: list[list[int]] = [[] for _ in blocks]
    for n, targets in enumerate(edges):
        for m in targets:
            inverse[m].append(n)
    sources, sinks = (inverse, edges) if forward else (edges, inverse)
    entry = {program.block_of[i] for i in program.entries} if forward else set()
    out = [top if must else 0] * len(blocks)
    into = list(out)
    work = order if forward else order[::-1]
    queued = [True] * len(blocks)
    while work:
        later: list[int] = []
        for n in work:
            queued[n] = False
            states = [out[m] for m in sources[n]]
            if n in entry:
                states.append(boundary)
            if must:
                x = top
                for s in states:
                    x &= s
            else:
                x = 0 if forward or sources[n] else boundary
                for s in states:
                    x |= s
            into[n] = x
            y = (x & b_keep[n]) | b_gen[n]
            if y != out[n]:
                out[n] = y
                for m in sinks[n]:
                    if not queued[m]:
                        queued[m] = True
                        later.append(m)
        work = sorted(set(later), reverse=not forward)
    result = [0] * len(program.code)
    for n, block in enumerate(blocks):
        x = into[n]
        for i in block if forward else reversed(block):
            result[i] = x
            x = (x & keep[i]) | gen[i]
    return result


def forward_may(program: Program, keep: Sequence[int], gen: Sequence[int], boundary: int = 0) -> list[int]:
    """Union over paths, state before each instruction."""
    return _solve(program, keep, gen, boundary, forward=True, must=False, top=0)


def forward_must(
    program: Program, keep: Sequence[int], gen: Sequence[int], boundary: int = 0, *, top: int
) -> list[int]:
    """Intersection over paths, state before each instruction; ``top`` for points no path reaches."""
    return _solve(program, keep, gen, boundary, forward=True, must=True, top=top)


def backward_may(program: Program, keep: Sequence[int], gen: Sequence[int]) -> list[int]:
    """Union over paths, state after each instruction."""
    return _solve(program, keep, gen, 0, forward=False, must=False, top=0)
