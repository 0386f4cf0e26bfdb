"""What islands are predicted to cost: a pure function of the kernel and of the finished words, wherever they come from.

The model counts what can be known from the two codes alone: issue cycles of the words, waits for the probes' own
scoreboards that the kernel's stall counts do not cover, memory-pipe slots of stores, bytes emitted. What it leaves out
is in docs/cost-model.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from xtrace.analysis import KernelAnalysis
from xtrace.analysis.ways import longest_way
from xtrace.isa.model import Flow
from xtrace.isa.nvidia.emit import SMID_BITS, UniformState
from xtrace.isa.nvidia.occupation import occupation

__all__ = ["Cost", "KernelCost", "Way", "kernel_cost"]

_TRIPS = 10  # of a loop, to tell the hot one: a common guess where nothing was measured
_UIADD_IMMEDIATE = 0x890

Remaining = tuple[int, ...]  # by scoreboard: cycles until a probe's claim is released, counted from here
Words = Sequence[int]


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one island, or of all on a way; per warp and pass."""

    words: int = 0
    issue: int = 0  # cycles: the stall counts of the words
    wait: int = 0  # cycles: waits for probe scoreboards that nothing in between covers, at most
    slots: int = 0  # of the memory pipe
    emitted: int = 0  # bytes by which the warp's trace grows
    events: int = 0

    @property
    def cycles(self) -> int:
        """Predicted added issue cycles."""
        return self.issue + self.wait

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.words + other.words,
            self.issue + other.issue,
            self.wait + other.wait,
            self.slots + other.slots,
            self.emitted + other.emitted,
            self.events + other.events,
        )


@dataclass(frozen=True, slots=True)
class Way:
    """One iteration of a loop, inner loops left out, or what runs once; along its longest way through the kernel."""

    loop: int | None  # id; None: what lies in no loop
    depth: int
    own: int  # issue cycles of the kernel's instructions
    cost: Cost

    @property
    def share(self) -> float | None:
        """Added issue cycles as a share of the kernel's own; None where it has none."""
        return self.cost.cycles / self.own if self.own else None


@dataclass(frozen=True)
class KernelCost:
    islands: dict[int, Cost]  # by instruction index
    once: Way
    loops: tuple[Way, ...]
    hot: Way  # where most issue cycles are expected: a loop, or what runs once


def kernel_cost(a: KernelAnalysis, islands: Mapping[int, Words], state: UniformState | None) -> KernelCost:
    """Predict the cost of ``islands``, words in front of instructions; ``state`` tells which of them move the cursor.

    Waits are exposed in full where the shortest time since the store, by the stall counts on the worst way, is shorter
    than the store's modelled release.
    """
    costs = _with_waits(a, {i: _island(words, state) for i, words in islands.items()}, islands)
    own: dict[int | None, dict[int, int]] = {}  # by innermost loop: issue cycles of its blocks
    added: dict[int, Cost] = {}
    for block in a.cfg.blocks:
        loop = a.loop_of(block.first)
        own.setdefault(None if loop is None else loop.id, {})[block.number] = _cycles(a, block.first, block.last)
    for i, cost in costs.items():
        block_number = a.cfg.block_of[i]
        added[block_number] = added.get(block_number, Cost()) + cost

    def way(loop: int | None, depth: int, blocks: Sequence[int]) -> Way:
        mine = own.get(loop, {})
        passed = [b for b in blocks if b in mine]
        return Way(loop, depth, sum(mine[b] for b in passed), sum((added[b] for b in passed if b in added), Cost()))

    loops = []
    for x in a.loops:
        latches = [b for b in x.blocks if x.head in a.cfg.blocks[b].successors]
        loops.append(way(x.id, x.depth, longest_way(a.cfg, x.head, x.blocks, own.get(x.id, {}), latches)))
    exits = [a.cfg.block_of[ins.index] for ins in a.instructions if ins.flow is Flow.EXIT]
    everywhere = range(len(a.cfg.blocks))
    once = way(None, 0, longest_way(a.cfg, 0, everywhere, own.get(None, {}), exits))
    hot = max([once, *loops], key=lambda w: _TRIPS**w.depth * w.own)
    return KernelCost(costs, once, tuple(loops), hot)


def _island(words: Words, state: UniformState | None) -> Cost:
    done = [occupation(word) for word in words]
    emitted = events = 0
    if state is not None:
        moved = [_increment(word) for word in words]
        emitted = sum(by for register, by in moved if register == state.offset)
        events = sum(by >> SMID_BITS for register, by in moved if register == state.smid)
    return Cost(len(words), sum(w.issue for w in done), 0, sum(w.slots for w in done), emitted, events)


def _increment(word: int) -> tuple[int | None, int]:
    """Uniform register to which the word adds a constant, and the constant."""
    target, source = word >> 16 & 0xFF, word >> 24 & 0xFF
    if word & 0xFFF != _UIADD_IMMEDIATE or target != source:
        return None, 0
    return target, word >> 32 & 0xFFFFFFFF


def _cycles(a: KernelAnalysis, first: int, last: int) -> int:
    return sum(a.issue_cycles[first : last + 1])


def _with_waits(a: KernelAnalysis, costs: dict[int, Cost], islands: Mapping[int, Words]) -> dict[int, Cost]:
    """Costs with exposed waits: a forward analysis of what is left of every claim, the worst way counting."""
    at: dict[int, list[int]] = {}  # islands by block, in order
    for i in sorted(islands):
        at.setdefault(a.cfg.block_of[i], []).append(i)
    nothing: Remaining = (0,) * a.isa.scoreboards
    before: dict[int, Remaining] = {}
    waits = dict.fromkeys(islands, 0)
    lengths = [_cycles(a, b.first, b.last) for b in a.cfg.blocks]

    def through(number: int, left: Remaining) -> Remaining:
        if number not in at:
            return _later(left, lengths[number])
        here = a.cfg.blocks[number].first
        for i in at[number]:
            left = _later(left, _cycles(a, here, i - 1))
            left, waits[i] = _run(islands[i], left)
            here = i
        return _later(left, _cycles(a, here, a.cfg.blocks[number].last))

    work = [0, *at]
    while work:
        number = work.pop()
        after = through(number, before.setdefault(number, nothing))
        for successor in a.cfg.blocks[number].successors:
            known = before.get(successor, nothing)
            joined = tuple(map(max, known, after))
            if joined != known:
                before[successor] = joined
                work.append(successor)
    return {i: cost + Cost(wait=waits[i]) for i, cost in costs.items()}


def _later(left: Remaining, cycles: int) -> Remaining:
    return tuple(max(rest - cycles, 0) for rest in left) if any(left) else left


def _run(words: Words, left: Remaining) -> tuple[Remaining, int]:
    """What is left of claims behind an island, and the cycles that it waited."""
    waited = 0
    for word in words:
        w = occupation(word)
        exposed = reduce(max, (rest for sb, rest in enumerate(left) if w.waits >> sb & 1), 0)
        waited += exposed
        left = _later(left, exposed)
        if w.claims:
            left = tuple(max(rest, w.release) if sb in w.claims else rest for sb, rest in enumerate(left))
        left = _later(left, w.issue)
    return left, waited
