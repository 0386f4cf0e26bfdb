"""Which records are emitted together, in one order.

Two places are *control equivalent* when each run of the first is followed by exactly one run of the second: the first
dominates the second, the second postdominates the first, and both lie in the same loops. A chain is a run of control
equivalent sites with nothing between them at which lanes or registers could change hands. Small side loops in between
(the retries of an mbarrier wait) do not matter. A site on a side path that runs at most once between two neighbours
(a wait that is skipped when its phase is known to be over) belongs to the chain as an optional event.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from xtrace.analysis import KernelAnalysis
from xtrace.isa.model import Flow

from .model import MAX_EVENTS, PlacedSite
from .words import Words, fits, words

__all__ = [
    "Between",
    "Chain",
    "Event",
    "alone",
    "between",
    "chains",
    "cycles_of",
    "disturbs",
    "interferes",
    "reached",
    "single",
    "split",
    "touched",
]

_MAX_BETWEEN = 4096  # instructions: bounds the work for a pair of sites
_OPTIONAL_RUN = 2  # optional events between two neighbours
_COUNTED = 4  # cycles from a count of events to the next one


@dataclass(frozen=True, slots=True)
class Between:
    """Everything that may run from one island to the next."""

    touched: int  # registers that an instruction in between reads or writes
    cycles: int  # least time that it takes


@dataclass(frozen=True, slots=True)
class Event:
    record: PlacedSite
    place: int  # number of its place in the chain; of an optional event: of the place before it
    after: int | None = None  # optional: least cycles to the next place

    @property
    def optional(self) -> bool:
        return self.after is not None


@dataclass
class Chain:
    """Places in the order of execution, what stands between them, and the events that are captured there."""

    places: list[int]  # instructions
    gaps: list[Between]
    events: list[Event]

    @property
    def words(self) -> Words:
        """What the words of its packet hold."""
        return words(self.events, self.gaps)

    @property
    def sites(self) -> list[PlacedSite]:
        return [event.record for event in self.events]


def chains(a: KernelAnalysis, records: Sequence[PlacedSite], islands: set[int]) -> list[Chain]:
    """Records in address order as maximal chains of at most 15.

    ``islands`` are the instructions that any site stands at; gains the places that chains need in front of a first
    optional event.
    """
    out: list[Chain] = []
    k = 0
    while k < len(records):
        chain, k = _start(a, records, k, islands)
        while k < len(records):
            grown = _extend(a, chain, records, k, islands)
            if grown == k:
                break
            k = grown
        k -= _cut_to_runs(a, chain, records[k : k + 1], islands)
        out.append(chain)
    return out


def single(p: PlacedSite) -> Chain:
    """A chain of nothing but one event."""
    return Chain([p.site.index], [], [Event(p, 0)])


def _cut_to_runs(a: KernelAnalysis, chain: Chain, following: Sequence[PlacedSite], islands: Set[int]) -> int:
    """End a full chain of accesses where its last run begins, if that goes on: number of events taken off.

    Two packets that share a run would need a clock each for it, and stores of both in a row.
    """
    clocks = chain.words.clocks
    whole = len(chain.words.addresses) == len(chain.events) == len(chain.places) and len(clocks) > 1
    if not whole or not following or not following[0].site.wide:
        return 0
    if between(a, chain.places[-1], following[0].site.index, islands) is None:
        return 0
    kept = clocks[-2] + 1
    cut = len(chain.events) - kept
    del chain.events[kept:], chain.places[kept:], chain.gaps[kept - 1 :]
    return cut


def split(chain: Chain) -> list[Chain]:
    """A chain of two or more events as two shorter ones. An optional event at the cut becomes a chain of its own."""
    middle = max(len(chain.events) // 2, 1)
    cut = next((k for k in range(middle, len(chain.events)) if not chain.events[k].optional), middle)
    parts = [_part(chain, chain.events[:cut]), _part(chain, chain.events[cut:])]
    return [piece for part in parts for piece in part]


def _part(chain: Chain, events: Sequence[Event]) -> list[Chain]:
    """``events`` as a chain; optional ones at its ends are chains of their own."""
    ends = [e for e in events if not e.optional]
    if not ends:
        return [single(e.record) for e in events]
    first, last = events.index(ends[0]), len(events) - events[::-1].index(ends[-1])
    loose = [*events[:first], *events[last:]]
    start, stop = ends[0].place, ends[-1].place
    kept = [Event(e.record, e.place - start, e.after) for e in events[first:last]]
    middle = Chain(chain.places[start : stop + 1], chain.gaps[start:stop], kept)
    return [middle, *(single(e.record) for e in loose)]


def _start(a: KernelAnalysis, records: Sequence[PlacedSite], k: int, islands: set[int]) -> tuple[Chain, int]:
    """A chain with its first event, or with a place of its own in front of an optional first event and the next."""
    p = records[k]
    plain = single(p), k + 1
    if k + 1 == len(records) or alone(a, p) or alone(a, records[k + 1]):
        return plain
    before = a.cfg.blocks[a.cfg.block_of[p.site.index]].predecessors
    if len(before) != 1 or between(a, p.site.index, records[k + 1].site.index, islands) is not None:
        return plain
    place = a.cfg.blocks[before[0]].last
    if place in islands or place == 0 or a.divergent[place]:
        return plain
    chain = Chain([place], [], [])
    grown = _extend(a, chain, records, k, islands | {place})
    if grown == k:
        return plain
    islands.add(place)
    return chain, grown


def _extend(a: KernelAnalysis, chain: Chain, records: Sequence[PlacedSite], k: int, islands: Set[int]) -> int:
    """Add record ``k`` as the next place, or as an optional event together with the place behind it."""
    here, last = chain.places[-1], len(chain.places) - 1
    for run in range(_OPTIONAL_RUN + 1):
        if k + run >= len(records) or len(chain.events) + run + 1 > MAX_EVENTS:
            return k
        new = records[k : k + run + 1]
        if any(alone(a, p) for p in (*new, *(e.record for e in chain.events))):
            return k
        side = [p.site.index for p in new[:-1]]
        gap = between(a, here, new[-1].site.index, islands - set(side))
        if gap is None:
            continue
        after = _optional(a, here, side, new[-1].site.index)
        if after is None:
            return k
        grown = [Event(p, last, cycles) for p, cycles in zip(new[:-1], after, strict=True)]
        grown.append(Event(new[-1], last + 1))
        if not fits([*chain.events, *grown], [*chain.gaps, gap]):
            return k
        chain.events += grown
        chain.places.append(new[-1].site.index)
        chain.gaps.append(gap)
        return k + run + 1
    return k


def alone(a: KernelAnalysis, p: PlacedSite) -> bool:
    """Whether a record must be done within its own island.

    Where a second lane group may run it can do so at any kernel instruction, and move the cursor. At the entry
    the island is part of the prologue's, which leaves nothing half done.
    """
    return p.site.index == 0 or a.divergent[p.site.index]


def between(a: KernelAnalysis, p: int, q: int, islands: Set[int]) -> Between | None:
    """What runs from island ``p`` to ``q``, or None unless they are control equivalent and nothing interferes."""
    blocks, block_of = a.cfg.blocks, a.cfg.block_of
    first, last = blocks[block_of[p]], blocks[block_of[q]]
    inside: Iterator[int]
    if p < q and first is last:
        inside = iter(range(p, q))
        cycles = cycles_of(a, range(p, q))
    else:
        side = None if first is last else _side_blocks(a, first.number, last.number)
        if side is None:
            return None
        head, tail = range(p, first.last + 1), range(last.first, q)
        cycles = cycles_of(a, head) + cycles_of(a, tail)
        inside = itertools.chain(head, *(blocks[n].indices for n in sorted(side)), tail)
    passed = list(itertools.islice(inside, _MAX_BETWEEN + 2))
    if len(passed) > _MAX_BETWEEN + 1 or any(disturbs(a, i) or (i in islands and i != p) for i in passed):
        return None
    return Between(touched(a, passed), cycles)


def interferes(a: KernelAnalysis, i: int) -> bool:
    """Whether lanes or registers may change hands at an instruction. One lane alone meets nobody."""
    ins = a.instructions[i]
    return ("converge" in ins.tags and not a.sole[i]) or ins.opaque or a.isa.max_registers(ins) is not None


def disturbs(a: KernelAnalysis, i: int) -> bool:
    """Whether the warp's lanes may not run an instruction and what is behind it together."""
    return interferes(a, i) or a.instructions[i].flow is Flow.EXIT or a.divergent[i]


def touched(a: KernelAnalysis, indices: Iterable[int]) -> int:
    """Registers (bit set) that kernel instructions read or write."""
    bits = 0
    for i in indices:
        bits |= a.instructions[i].reads | a.instructions[i].writes
    return bits


def cycles_of(a: KernelAnalysis, indices: range) -> int:
    return sum(a.issue_cycles[i] for i in indices)


def _side_blocks(a: KernelAnalysis, first: int, last: int) -> set[int] | None:
    """Blocks that may run after ``first`` and before ``last``; None unless the two are control equivalent."""
    blocks = a.cfg.blocks
    if a.loops_around[first] != a.loops_around[last]:
        return None
    side: set[int] = set()
    stack = list(blocks[first].successors)
    while stack:
        n = stack.pop()
        if n == last or n in side:
            continue
        if n == first or not blocks[n].successors:
            return None  # it may run again, or end, without passing the other
        side.add(n)
        stack += blocks[n].successors
    # ``first`` dominates ``last``: whoever enters the region comes from inside it.
    entered = {*side, first}
    for n in (*side, last):
        if any(p not in entered and p in a.cfg.reachable for p in blocks[n].predecessors):
            return None
    return side


def _optional(a: KernelAnalysis, first: int, side: list[int], last: int) -> list[int] | None:
    """Least cycles from each optional site to the next place; None unless each runs at most once, in this order."""
    blocks, block_of = a.cfg.blocks, a.cfg.block_of
    out = []
    region = reached(a, block_of[first], block_of[last]) if side else set()
    later: int | None = None
    for i in reversed(side):
        block = blocks[block_of[i]]
        behind = reached(a, block.number, block_of[last])
        if block.number not in region or block.number in behind:
            return None  # not on the way at all, or again and again
        if later is not None and block_of[later] not in {block.number, *behind}:
            return None  # on another path: then neither order is the order of execution
        before = cycles_of(a, range(first, blocks[block_of[first]].last + 1)) + cycles_of(a, range(block.first, i))
        after = cycles_of(a, range(i, block.last + 1)) + cycles_of(a, range(blocks[block_of[last]].first, last))
        least = min(before, after)
        if later is not None and block_of[later] == block.number:
            after = cycles_of(a, range(i, later))
            least = min(before, after)
        elif later is not None:
            onward = cycles_of(a, range(i, block.last + 1)) + cycles_of(a, range(blocks[block_of[later]].first, later))
            least = min(least, onward)
        if least < _COUNTED:
            return None
        out.append(after)
        later = i
    return out[::-1]


def reached(a: KernelAnalysis, start: int, end: int | None = None) -> set[int]:
    """Blocks that may run after block ``start``, up to block ``end``."""
    found: set[int] = set()
    stack = list(a.cfg.blocks[start].successors)
    while stack:
        n = stack.pop()
        if n not in found and n != end:
            found.add(n)
            stack += a.cfg.blocks[n].successors
    return found
