"""From chains of sites to packets: registers, storing lane, cursor and stores.

Each event's clock goes into a register of its own at its site, and the registers go to memory four at a time, in an
island further on where the values have long arrived - rather at the beginning of a wait than anywhere else, because
the kernel would stand there anyway. The storing lane is elected, and the cursor moved, in an island before. The
register of an optional event is cleared at the place before it: a zero in memory says that it did not happen.

Where not enough registers last that long, and where clocks are short, see :mod:`.parked`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from xtrace.analysis import KernelAnalysis

from .build import Builder, Fill
from .chains import Chain
from .fills import many, runs
from .line import Line
from .model import EVENT_BYTES, QUAD_BYTES, Form, Packet, Placement
from .parked import parked_packet
from .places import ends
from .resources import FreeFinder
from .words import Words, fits

__all__ = ["form_packet"]


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
        Words of the chain with short clocks, if these are wanted.
    """
    if not fits(chain.events, chain.gaps):
        return None
    line = Line(a, chain, free, islands, claimed, form)
    if len(chain.events) == 1 and len(chain.places) == 1:
        fills = _one(line)
        return None if fills is None else Builder(line, fills).packet
    if short is not None and (packet := parked_packet(line, uniform, placement, short)) is not None:
        return packet
    possible = ends(line, placement)
    for end in possible:
        line.end_at(end)
        fills = many(line, placement)
        if fills is not None:
            return Builder(line, fills).packet
    for end in possible if (line.sole or line.words.addresses) and line.helpers else ():
        line.end_at(end)
        if (fills := _narrow(line)) is not None:
            return Builder(line, fills).packet
    return parked_packet(line, uniform, placement)


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
            data = next(runs(line, since, at, words, used), None)
            if data is not None:
                break
        else:
            return None
        used |= ((1 << words) - 1) << data
        fills.insert(0, Fill(data, words, EVENT_BYTES * (word + 1 - words), since, at))
        word -= words
    return fills


def _one(line: Line) -> list[Fill] | None:
    """Registers of a packet with one event: a pair, else a single register that is stored twice."""
    if line.words.addresses:
        return _one_access(line)
    for words in (2, 1):
        for at in [1, 0] if line.end and words == 2 and 0 not in line.waits else [0]:
            data = next(runs(line, 0, at, words, 0), None)
            if data is not None and line.free.at(line.places[at]).scoreboards:
                return [Fill(data, words, QUAD_BYTES - 2 * EVENT_BYTES, 0, at)]
    return None


def _one_access(line: Line) -> list[Fill] | None:
    """Registers of a packet with the address and clock of one access: four, else two pairs."""
    for at in [1, 0] if line.end else [0]:
        if not line.stores_at(at):
            continue
        if (data := next(runs(line, 0, at, 4, 0), None)) is not None:
            return [Fill(data, 4, 0, 0, at)]
        pairs = list(itertools.islice(runs(line, 0, at, 2, 0), 2))
        if len(pairs) == 2:
            return [Fill(data, 2, 2 * EVENT_BYTES * k, 0, at) for k, data in enumerate(pairs)]
    return None
