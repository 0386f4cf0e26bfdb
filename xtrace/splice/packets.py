"""From chains of sites to packets: registers, storing lane, cursor and stores.

Each event's clock goes into a register of its own at its site, and the registers go to memory four at a time, in an
island further on where the values have long arrived - rather at the beginning of a wait than anywhere else, because
the kernel would stand there anyway. The storing lane is elected, and the cursor moved, in an island before. The
register of an optional event is cleared at the place before it: a zero in memory says that it did not happen.

Where not enough registers last that long, the clocks are parked in uniform registers that the kernel never names, and
fetched into registers that are free where they are stored.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from xtrace.analysis import KernelAnalysis

from .build import Builder, Fill, fill_of
from .chains import Chain
from .line import End, Line
from .model import EVENT_BYTES, QUAD_BYTES, Form, Packet, Placement, quads
from .places import ends, parts, store_places
from .resources import FreeFinder
from .words import Words, fits

__all__ = ["form_packet"]

_CANDIDATES = 12  # runs of registers tried per quad and place
_FETCHED = 13  # cycles from the end of an island that parks a clock to the island that fetches it
_MOST_TRIES = 400  # combinations tried per chain: bounds the time per site


def form_packet(
    a: KernelAnalysis,
    chain: Chain,
    free: FreeFinder,
    islands: set[int],
    claimed: int = 0,
    uniform: Sequence[int] = (),
    placement: Placement = Placement.BY_COST,
    form: Form = Form.SCHEDULED,
    short: Words | None = None,
) -> Packet | None:
    """Make the whole chain one packet, or return None.

    Parameters
    ----------
    islands
        Instructions at which an island stands; gains the helper islands.
    claimed
        Registers of other packets: used only where there are no others, so that a register may hold one tag for good.
    uniform
        Uniform registers to park clocks in.
    short
        Words of the chain with short clocks, if these are wanted. They are put together where they are parked.
    """
    if not fits(chain.events, chain.gaps):
        return None
    line = Line(a, chain, free, islands, claimed, form)
    if len(chain.events) == 1 and len(chain.places) == 1:
        fills = _one(line)
        return None if fills is None else Builder(line, fills).packet
    if short is not None:
        line.words = short
        if (packet := _parked(line, uniform, ends(line, placement), placement)) is not None:
            return packet
        line.words, line.parked = chain.words, ()
        line.end_at(line.near)
    possible = ends(line, placement)
    for end in possible:
        line.end_at(end)
        fills = _many(line, placement)
        if fills is not None:
            return Builder(line, fills).packet
    for end in possible if (line.sole or line.words.addresses) and line.helpers else ():
        line.end_at(end)
        if (fills := _narrow(line)) is not None:
            return Builder(line, fills).packet
    return _parked(line, uniform, possible, placement)


def _parked(line: Line, uniform: Sequence[int], possible: Sequence[End], placement: Placement) -> Packet | None:
    chain = line.chain
    if len(uniform) < len(chain.events) or not line.helpers or line.words.addresses:
        return None  # a uniform register holds what all lanes have in common: clocks, but no addresses
    line.parked = tuple(uniform[: len(chain.events)])
    places = [possible[0], *line.late_places()]
    once: list[tuple[tuple[int, int, int], End, list[Fill]]] = []
    for number, place in enumerate(places):
        line.end_at(place)
        fills = _at_once(line)
        if fills is not None:
            # Not behind the kernel's own accesses, few stores, and late, where fewer registers are needed again.
            once.append(((line.accesses_before(line.places[-1]), len(fills), -number), place, fills))
    if once:
        _, place, fills = min(once, key=lambda found: found[0])
        line.end_at(place)
        if (captures := _transient(line, fills)) is not None:
            return Builder(line, fills, captures).packet
    for place in places:
        line.end_at(place)
        fills = _many(line, placement)
        if fills is not None and (captures := _transient(line, fills)) is not None:
            return Builder(line, fills, captures).packet
    return None


def _narrow(line: Line) -> list[Fill] | None:
    """Registers in pairs and one by one, stored at the last place: what one lane stores is cheap at any width.

    If none is left for the word that names the packet, it goes through the first of these registers, once that has
    been stored.
    """
    at = len(line.places) - 1
    if not line.stores_at(at):
        return None
    places = line.words.places([e.place for e in line.chain.events], at)
    fills = _pieces(line, places, at)
    if fills is None:
        fills = _pieces(line, {word: place for word, place in places.items() if word != line.words.tag}, at)
        if fills:
            fills.append(Fill(fills[0].data, 1, EVENT_BYTES * line.words.tag, at, at))
    return fills or None


def _pieces(line: Line, places: Mapping[int, int], at: int) -> list[Fill] | None:
    """Registers for words of a packet, each from its place on to place ``at``, which stores them."""
    fills: list[Fill] = []
    used, word = 0, line.words.tag
    while word >= line.words.first:
        if word not in places:  # it means nothing, or is no word of these
            word -= 1
            continue
        address = any(word - 1 == line.words.address(k) for k in line.words.addresses)
        for words in (2,) if address else (2, 1) if word % 2 and word - 1 in places else (1,):
            since = min(places[word], places[word + 1 - words])
            data = next(_runs(line, since, at, words, used), None)
            if data is not None:
                break
        else:
            return None
        used |= ((1 << words) - 1) << data
        fills.insert(0, Fill(data, words, EVENT_BYTES * (word + 1 - words), since, at))
        word -= words
    return fills


def _at_once(line: Line) -> list[Fill] | None:
    """All words of a packet of parked clocks at the last place, four at a time where possible, else two."""
    at = len(line.places) - 1
    here = line.free.at(line.places[at])
    events = line.chain.events
    if not here.scoreboards or events[-1].place > at:
        return None
    fills: list[Fill] = []
    used = 0
    for quad in range(quads(line.words.count)):
        wanted = [(4, 4 * quad)]
        if not any(not 15 << d & used for d in here.groups(4)):
            wanted = [(2, word) for word in (4 * quad, 4 * quad + 2) if word + 1 >= line.words.first]
        for words, word in wanted:
            unit = (1 << words) - 1
            data = next((d for d in here.groups(words) if not unit << d & used), None)
            if data is None:
                return None
            used |= unit << data
            fills.append(Fill(data, words, EVENT_BYTES * word, at, at))
    return fills


def _transient(line: Line, fills: list[Fill]) -> list[int] | None:
    """A register for each event that holds its clock for the few cycles until it is parked.

    None where one is missing, or where the clock of an optional event would be fetched too early.
    """
    used = sum(((1 << fill.words) - 1) << fill.data for fill in fills)
    out = []
    for number, event in enumerate(line.chain.events):
        if event.after is not None:
            fetched = fill_of(fills, line.words.first + number).at  # such a chain has no short clocks
            if event.after + line.cycles(event.place + 1, fetched) < _FETCHED:
                return None  # the islands of a packet are scheduled without those of optional events
        here = line.free.at(event.record.site.index).groups(1)
        register = next((r for r in here if not used >> r & 1), None)
        if register is None:
            return None
        out.append(register)
    return out


def _one(line: Line) -> list[Fill] | None:
    """Registers of a packet with one event: a pair, else a single register that is stored twice."""
    if line.words.addresses:
        return _one_access(line)
    for words in (2, 1):
        for at in [1, 0] if line.end and words == 2 and 0 not in line.waits else [0]:
            data = next(_runs(line, 0, at, words, 0), None)
            if data is not None and line.free.at(line.places[at]).scoreboards:
                return [Fill(data, words, QUAD_BYTES - 2 * EVENT_BYTES, 0, at)]
    return None


def _one_access(line: Line) -> list[Fill] | None:
    """Registers of a packet with the address and clock of one access: four, else two pairs."""
    for at in [1, 0] if line.end else [0]:
        if not line.stores_at(at):
            continue
        if (data := next(_runs(line, 0, at, 4, 0), None)) is not None:
            return [Fill(data, 4, 0, 0, at)]
        pairs = list(itertools.islice(_runs(line, 0, at, 2, 0), 2))
        if len(pairs) == 2:
            return [Fill(data, 2, 2 * EVENT_BYTES * k, 0, at) for k, data in enumerate(pairs)]
    return None


def _many(line: Line, placement: Placement) -> list[Fill] | None:
    """Registers and store places of all quads: the first combination that fits, preferred ones first."""
    wanted = []
    for part in parts(line):
        places = store_places(line, part, placement)
        wanted.append((part[0].place, [k for k in places if line.stores_at(k)]))
    return _search(line, wanted, [], [_MOST_TRIES])


def _search(line: Line, wanted: list[tuple[int, list[int]]], fills: list[Fill], tries: list[int]) -> list[Fill] | None:
    if len(fills) == len(wanted):
        return fills
    first, places = wanted[len(fills)]
    used = sum(15 << fill.data for fill in fills)
    for at in places:
        for data in _runs(line, at if line.parked else first, at, 4, used):
            tries[0] -= 1
            if tries[0] < 0:
                return None
            fill = Fill(data, 4, QUAD_BYTES * len(fills), at if line.parked else first, at)
            found = _search(line, wanted, [*fills, fill], tries)
            if found is not None:
                return found
    return None


def _runs(line: Line, first: int, at: int, words: int, used: int) -> Iterator[int]:
    """Runs of registers that are free at place ``first`` and that no kernel instruction touches up to ``at``."""
    taken = line.touched(first, at) | line.owned(first, at) | line.sources | used
    unit = (1 << words) - 1
    usable = [d for d in line.free.at(line.places[first]).groups(words) if not unit << d & taken]
    if line.form < Form.PACKED:  # naive: those of the other packets, else the lowest; then rather no other packet's
        naive = line.form is Form.NAIVE
        yield from sorted(usable, key=lambda d: (bool(unit << d & line.claimed) != naive, d if naive else 0))
        return
    # Those that the kernel needs soonest come first: the others may serve where they must last longer. Never-named
    # registers that no other packet has are better still, because one of them may hold the tag for good.
    usable.sort(key=lambda d: (line.named >> d & unit != 0 or bool(unit << d & line.claimed), line.lasts(at, d, unit)))
    yield from usable[:_CANDIDATES]
