"""Packets, the unit in which a warp's events stand in its ring; the one reader of them. Vectorised over warps.

**A packet** of n words and a tag takes n // 4 + 1 quads of 16 bytes: undefined words, then the n words, then the tag,
by which the trace map lists the packet's sites. The words are two per address, low half first, then an undefined one if
there are addresses and the number of clocks is even, then the clocks (low halves, in order of time). Where no site
records an address each event has a clock; otherwise an event without one has that of the next event with one. A clock
of 0 says that its event did not happen: it is on a side path, or the packet is the first or the last of a loop and
begins or ends amid an iteration. The clock of an *uncleared* event may instead be left over from an earlier packet
(:mod:`xtrace.trace.stale`). A packet starts at ``offset mod ring`` and is contiguous: past the ring's end it goes
on in the slack. ``offset`` is what its warp emitted before.

With *short clocks* all but a packet's first and last clock are stored as their low 16 bits, two in a word, the earlier
one below; these words come first, then the two whole clocks. If the packet took less than 2**16 cycles from its first
clock to its last, the others are exactly ``last - ((last - low) mod 2**16)``. If it took longer, nobody can tell: the
events between are *ambiguous*, and left out. No event of such a packet is missing.

With *stripes* every packet of a kernel has the same size, undefined words in front included.

**Reading** walks back from where the warp's last packet ended: :mod:`xtrace.trace.walk`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from xtrace.trace.stale import left_over
from xtrace.trace.tags import MAX_SITES, NO_TAG, QUAD, Tags
from xtrace.trace.walk import Walk

__all__ = [
    "Events",
    "by_slot",
    "chunks",
    "count_events",
    "lift",
    "plausible",
    "read_events",
]

_HALF = (1 << 16) - 1
_SHORT_IN_4_QUADS = 24  # events: twelve in two quads are the densest packet
_COUNT_BITS = 24  # of the number of events in a header
_EMPTY_QUADS = 4096  # more than a warp emits of packets with fewer events than quads
_CHUNK_QUADS = 1 << 21

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Events:
    """Surviving events with known times, ordered by warp and time; then what the walk found, one element per warp."""

    warp: Array  # index into the arrays given to read_events
    clock_lo: Array  # u32
    site: Array
    address: Array  # u64; 0: none recorded, or its lane did not make the access
    gaps_after: Array  # gaps between the event and the end of its warp
    ambiguous_after: Array  # events left out there because their times are ambiguous
    written: Array  # events read
    ambiguous: Array  # events left out
    gaps: Array  # quads that hold no packet
    unknown: Array  # places with a tag that the map does not know
    contradictory: Array  # warps whose ring holds more events than they emitted: their events are left out


def lift(count: Array, quads: Array, each: int = 1) -> Array:
    """Exact numbers of events from their low 24 bits: but for a few, packets have at least as many events as quads.

    Where all packets have ``each`` quads, undefined ones in front included, they have at least one event each.
    """
    low, least = count.astype(np.int64), quads.astype(np.int64) // each - _EMPTY_QUADS
    return least + ((low - least) & ((1 << _COUNT_BITS) - 1))


def plausible(events: Array, quads: Array, *, short: bool = False) -> Array:
    """Whether so many events fit into so many quads; ``short``: some packets have short clocks."""
    return (events >= 0) & (events * 4 <= quads * (_SHORT_IN_4_QUADS if short else MAX_SITES))


def by_slot(rings: Array, slots: int, stripe: int | None) -> Array:
    """One row per slot from the bytes (or wider elements) of all rings; ``stripe``: elements of a packet, if slots
    interleave.
    """
    if stripe is None:
        return rings.reshape(slots, -1)
    return rings.reshape(-1, slots, stripe).swapaxes(0, 1).reshape(slots, -1)


def read_events(
    slots: Array, rows: Array, quads: Array, emitted: Array, exit_lo: Array, *, ring: int, slack: int, tags: Tags
) -> Events:
    """What some warps left in their rings.

    Parameters
    ----------
    slots
        The slots, one row of little-endian u32 words each.
    rows, quads, emitted, exit_lo
        Per warp: row of its slot, quads and events emitted, low half of the clock at its exit.
    ring, slack
        Bytes of a slot that packets start in, and that they may go on in.
    """
    flat = slots.reshape(-1)
    base = rows.astype(np.int64) * slots.shape[1]
    walk = Walk(flat, base, quads.astype(np.int64), exit_lo.astype(np.int64), ring // QUAD, slack // QUAD, tags)
    warp, at, tag, gaps = walk.packets()
    n = tags.count[tag]
    ends = np.cumsum(n)
    step = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - n, n)
    event, end = np.repeat(tags.first[tag], n) + step, np.repeat(at, n)
    clock, there, unsure = _clocks(flat, end, event, np.repeat(tags.short[tag], n), tags)
    of = np.repeat(warp, n)
    if tags.uncertain.any():
        before = np.where(quads * QUAD > ring, -1, walk.gaps)
        there[left_over(clock, tags.uncleared[event], there, of, np.repeat(gaps, n), before)] = False
    written = np.bincount(of[there & ~unsure], minlength=len(rows)).astype(np.int64)
    ambiguous = np.bincount(of[unsure], minlength=len(rows)).astype(np.int64)
    contradictory = written + ambiguous > emitted
    keep = there & ~contradictory[of]
    written[contradictory] = ambiguous[contradictory] = 0
    later = np.cumsum(unsure[::-1])[::-1]  # ambiguous events from here to the end of the last warp
    beyond = np.cumsum(ambiguous[::-1])[::-1] - ambiguous
    keep &= ~unsure
    return Events(
        warp=of[keep],
        clock_lo=clock[keep],
        site=tags.sites[event][keep],
        address=_addresses(flat, end[keep], event[keep], tags),
        gaps_after=np.repeat(gaps, n)[keep],
        ambiguous_after=(later - beyond[of])[keep],
        written=written,
        ambiguous=ambiguous,
        gaps=walk.gaps,
        unknown=walk.unknown,
        contradictory=contradictory,
    )


def _clocks(flat: Array, end: Array, event: Array, short: Array, tags: Tags) -> tuple[Array, Array, Array]:
    """Clocks of events, whether each happened, and whether its time is ambiguous."""
    clock = flat[end - tags.clock_at[event]]
    there, unsure = (clock != 0) | short, np.zeros(len(clock), bool)
    some = np.flatnonzero(tags.shift[event] >= 0)
    if len(some):
        last, first = flat[end[some] - 1], flat[end[some] - 2]
        low = clock[some] >> tags.shift[event[some]].astype(np.uint32)
        clock[some] = last - ((last - low) & np.uint32(_HALF))
        unsure[some] = last - first > np.uint32(_HALF)
    return clock, there, unsure


def _addresses(flat: Array, end: Array, event: Array, tags: Tags) -> Array:
    """Addresses of events whose packets have their tags at ``end``."""
    found = np.zeros(len(event), np.uint64)
    some = np.flatnonzero(tags.address_at[event] > 0)
    end, event = end[some], event[some]
    low = end - tags.address_at[event]
    value = flat[low].astype(np.uint64) | flat[low + 1].astype(np.uint64) << np.uint64(32)
    made = flat[end - tags.made_at[event]] != 0
    found[some] = np.where(made, value + tags.offset[event], np.uint64(0))
    return found


def chunks(quads: Array, ring: int) -> Iterator[tuple[int, int]]:
    """Ranges of warps with about as much in their rings as one call of ``read_events`` should take."""
    part = np.cumsum(np.minimum(quads.astype(np.int64), ring // QUAD)) // _CHUNK_QUADS
    edges = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(quads)]
    yield from ((low, high) for low, high in pairwise(edges) if high > low)


def count_events(slots: Array, rows: Array, ring: int, tags: Tags, stripe: int | None = None) -> int:
    """Events of everything in the rings of some slots that looks like a packet, where no end is known.

    ``stripe``: bytes of every packet, if they have one size.
    """
    each = (stripe or QUAD) // 4
    total = 0
    step = max(1, _CHUNK_QUADS * QUAD // ring)
    for start in range(0, len(rows), step):
        part = slots[rows[start : start + step], each - 1 : ring // 4 : each]
        total += int(tags.count[np.minimum(part, NO_TAG)].sum())
    return total
