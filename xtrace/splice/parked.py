"""Packets whose clocks do not all last until they are stored: places, runs of registers, and the way between.

What is done with a clock between its site and its store (see :mod:`.carry`) wants islands: those of other events, some
behind an event where its clock has arrived, and some in front of the store. Helper islands in which nothing is done are
left out again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from xtrace.analysis import KernelAnalysis

from .build import Builder, Fill, fill_of, registers_of
from .carry import FETCHED, carry
from .chains import Between, Chain, between, cycles_of, interferes, touched
from .fills import many
from .line import PREPARATION, End, Line
from .model import EVENT_BYTES, Packet, Placement, quads
from .places import ends
from .route import Carried, Route, Skipped, Word
from .words import Words

__all__ = ["parked_packet"]

_ARRIVED = 6  # cycles behind a clock's island until another island can read it
_APART = 2 * _ARRIVED  # cycles between two events that are worth an island in between
_RUNS = 3  # runs of registers tried for each quad
_CHOICES = 3  # of runs for all quads
_LEVELS = 2  # places in front of a store tried for what can be done there
_LONG = 16  # cycles that are enough to fill registers in front of their store
_ALL_LANES = 64  # cycles that stores of all lanes cost


class _Way(NamedTuple):
    cost: int
    end: End
    fills: list[Fill]
    carried: Carried


def parked_packet(
    line: Line, uniform: Sequence[int], placement: Placement, short: Words | None = None
) -> Packet | None:
    """The packet of a chain, its clocks carried on from register to register as needed, or None.

    ``uniform``: registers that clocks may be parked in; ``short``: words of the chain with short clocks.
    """
    chain = line.chain
    if len(uniform) < len(chain.events) or not line.helpers or line.words.addresses:
        return None  # a uniform register holds what all lanes have in common: clocks, but no addresses
    rested = _with_rests(line.a, chain, line.taken)
    for parts in (rested, chain) if len(rested.places) > len(chain.places) else (chain,):
        around = Line(line.a, parts, line.free, line.taken, line.claimed, line.form)
        around.words = short or around.words
        around.parked = tuple(uniform[: len(chain.events)])
        if (way := _best(around, placement)) is not None:
            around.end_at(way.end)
            return Builder(around, way.fills, way.carried).packet
    return None


def _with_rests(a: KernelAnalysis, chain: Chain, islands: set[int]) -> Chain:
    """The chain with a place more between two far events, where the clock of the first one has arrived."""
    places, gaps, moved = [chain.places[0]], [], [0]
    optional = {event.place for event in chain.events if event.optional}
    for k, gap in enumerate(chain.gaps):
        start, end = chain.places[k], chain.places[k + 1]
        rest = None if k in optional or gap.cycles < _APART else _rest(a, start)
        if rest is not None and rest not in {*islands, start, end}:
            behind = between(a, rest, end, islands)
            if behind is not None:
                places.append(rest)
                gaps.append(_piece(a, start, rest))
                gap = behind
        places.append(end)
        gaps.append(gap)
        moved.append(len(places) - 1)
    return Chain(places, gaps, [replace(event, place=moved[event.place]) for event in chain.events])


def _rest(a: KernelAnalysis, start: int) -> int | None:
    """The first instruction behind ``start``, in its block, that is far enough for a clock to have arrived."""
    cycles = 0
    for i in range(start, a.cfg.blocks[a.cfg.block_of[start]].last):
        cycles += a.issue_cycles[i]
        if interferes(a, i):
            return None
        if cycles >= _ARRIVED:
            return i + 1
    return None


def _piece(a: KernelAnalysis, start: int, end: int) -> Between:
    return Between(touched(a, range(start, end)), cycles_of(a, range(start, end)))


def _best(line: Line, placement: Placement) -> _Way | None:
    """Places behind the chain, and what is stored there, that cost least; rather all words at once, at the last one."""
    once: list[tuple[tuple[int, int, int], End]] = []
    places = [ends(line, placement)[0], *line.late_places()]
    for number, end in enumerate(places):
        line.end_at(end)
        if (stores := len(next(_at_once(line), []))) > 0:
            # Not behind the kernel's own accesses, few stores, and late, where fewer registers are needed again.
            once.append(((line.accesses_before(line.places[-1]), stores, -number), end))
    if once:
        _, end = min(once, key=lambda found: found[0])
        line.end_at(end)
        choices = list(itertools.islice(_at_once(line, _ages(line)), _CHOICES))
        ways = [way for fills in choices if (way := _way(line, end, fills)) is not None]
        if ways:
            best = min(ways, key=lambda way: way.cost)
            for longer in list(_ends_before(line, end, best.fills)):
                at = len(line.chain.places) + len(longer) - 1
                fills = [replace(fill, first=at, at=at) for fill in best.fills]
                ways += [way for way in (_way(line, longer, fills),) if way is not None]
            return min(ways, key=lambda way: way.cost)
    for end in places:
        line.end_at(end)
        found = many(line, placement)
        if found is not None and (way := _way(line, end, found)) is not None:
            return way
    return None


def _at_once(line: Line, ages: Mapping[int, tuple[int, int]] | None = None) -> Iterator[list[Fill]]:
    """All words of a packet of parked clocks at the last place, four at a time where possible, else two.

    With ``ages``, runs that the kernel has left alone for long come first: clocks may be read right into them.
    """
    at = len(line.places) - 1
    here = line.free.at(line.places[at])
    if not here.scoreboards or line.chain.events[-1].place > at:
        return
    runs = {words: list(here.groups(words)) for words in (4, 2)}
    count, first = quads(line.words.count), line.words.first
    fours = min(len(runs[4]), count)
    wanted = [(4, 4 * quad) for quad in range(fours)]
    wanted += [(2, word) for word in range(4 * fours, 4 * count, 2) if word + 1 >= first]
    if ages is not None:
        for words, found in runs.items():
            found.sort(key=partial(_age, ages, words), reverse=True)
    yield from _chosen(wanted, runs, [], at)


def _age(ages: Mapping[int, tuple[int, int]], words: int, data: int) -> tuple[int, int]:
    return sum(ages[data + k][0] for k in range(words)), sum(ages[data + k][1] for k in range(words))


def _chosen(
    wanted: list[tuple[int, int]], runs: dict[int, list[int]], fills: list[Fill], at: int
) -> Iterator[list[Fill]]:
    if len(fills) == len(wanted):
        yield fills
        return
    words, word = wanted[len(fills)]
    used = sum(((1 << fill.words) - 1) << fill.data for fill in fills)
    usable = (d for d in runs[words] if not ((1 << words) - 1) << d & used)
    for data in itertools.islice(usable, _RUNS):
        yield from _chosen(wanted, runs, [*fills, Fill(data, words, EVENT_BYTES * word, at, at)], at)


def _ages(line: Line) -> dict[int, tuple[int, int]]:
    """For each register the places, and the cycles, that the kernel has left it alone before the last place."""
    last, a = len(line.places) - 1, line.a
    end = line.places[last]
    registers = list(line.free.at(end).groups(1))
    places = dict.fromkeys(registers, last + 1)
    busy = 0
    for k in range(last - 1, -1, -1):
        busy |= line.gaps[k].touched
        places |= {r: last - k - 1 for r in registers if busy >> r & 1 and places[r] > last}
    cycles = dict.fromkeys(registers, _LONG)
    passed, busy = 0, 0
    for i in range(end - 1, a.cfg.blocks[a.cfg.block_of[end]].first - 1, -1):
        if passed >= _LONG:
            break
        busy |= touched(a, (i,))
        cycles |= {r: passed for r in registers if busy >> r & 1 and cycles[r] == _LONG}
        passed += a.issue_cycles[i]
    return {r: (places[r], cycles[r]) for r in registers}


def _ends_before(line: Line, end: End, fills: Sequence[Fill]) -> Iterator[End]:
    """The same last place, with others in front of it: where a lane can be elected, where registers can be filled."""
    a, start, last = line.a, line.chain.places[-1], line.places[-1]
    if not end:
        return
    targets = sum(1 << r for word, r in registers_of(list(fills)).items() if word >= line.words.first)
    line.end_at(end)
    elected = line.sole or any(line.cycles(k, len(line.places) - 1) >= PREPARATION and
                               line.lasting(k, len(line.places) - 1) for k in range(len(line.places)))  # fmt: skip
    election: int | None = None
    levels: dict[int, int] = {}  # number of registers that can be filled: the first such place
    busy, cycles = 0, 0
    for i in range(last - 1, start, -1):
        busy |= touched(a, (i,))
        cycles += a.issue_cycles[i]
        if i in line.taken:
            return
        here = line.free.at(i)
        lasting = sum(1 << r for r in here.groups(1)) & ~busy & targets
        if lasting:
            levels[lasting.bit_count()] = i
        bits = (line.a.isa.layout["P"].bit(p) for p in here.predicates)
        if election is None and not elected and cycles >= PREPARATION and any(not bit & busy for bit in bits):
            election = i
    rest = _rest(a, start)
    always = {i for i in (election, rest) if i is not None and start < i < last}
    for filled in (None, *(levels[n] for n in sorted(levels, reverse=True)[:_LEVELS])):
        between_ = sorted(always | ({filled} if filled is not None else set()))
        if between_:
            stops = [start, *between_, last]
            yield [(q, _piece(a, p, q)) for p, q in itertools.pairwise(stops)]


def _way(line: Line, end: End, fills: list[Fill]) -> _Way | None:
    line.end_at(end)
    carried = carry(_route(line, fills), line.parked)
    if carried is None:
        return None
    return _Way(carried.cost + max(_election(line, at) for at in {fill.at for fill in fills}), end, fills, carried)


def _election(line: Line, at: int) -> int:
    """Cycles that a store is expected to wait for a lane."""
    if line.sole:
        return 0
    since = max((line.cycles(k, at) for k in range(at + 1) if line.lasting(k, at)), default=None)
    return _ALL_LANES if since is None else max(PREPARATION - since, 0)


def _route(line: Line, fills: list[Fill]) -> Route:
    words, register = line.words, registers_of(fills)
    events = line.chain.events
    time = tuple(itertools.accumulate((gap.cycles for gap in line.gaps), initial=0))
    free = tuple(tuple(sorted(line.free.at(i).groups(1), key=lambda r: line.claimed >> r & 1)) for i in line.places)
    busy = [line.free.busy(i) for i in line.places]
    skipped: dict[int, list[Skipped]] = {}
    found: dict[int, Word] = {}
    for k, event in enumerate(events):
        word = words.clock(k)
        assert word is not None
        if word not in found:
            found[word] = Word(register[word], fill_of(fills, word).at, k, words.above(k))
        if event.after is not None:
            transient = tuple(line.free.at(event.record.site.index).groups(1))
            arrives = time[event.place + 1] + FETCHED - event.after
            skipped.setdefault(event.place, []).append(Skipped(k, transient, arrives))
    return Route(
        time,
        free,
        tuple(gap.touched | busy[k + 1] for k, gap in enumerate(line.gaps)),
        {event.place: k for k, event in enumerate(events) if not event.optional},
        skipped,
        tuple(found.values()),
        frozenset((register[words.tag],)),
        tuple(
            frozenset(r for fill in fills if fill.at < k for r in range(fill.data, fill.data + fill.words))
            for k in range(len(line.places))
        ),
    )
