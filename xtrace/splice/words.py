"""What each word of a packet holds.

A packet ends with its clocks, in the order of its events, and its tag. Addresses stand before the clocks, two words
each, so that a 64-bit register pair is copied by one instruction: a word without meaning is left between where the
number of clocks is even. What is left of the first quad, in front, has no meaning either.

Accesses close to each other share a clock, read at the last of them (a *run*): a clock each would cost half as much
again.

In a packet with short clocks all clocks but the first and the last are cut to their low 16 bits, two in a word, the
earlier one below. These words come first; where one is left with a single clock, its high half has no meaning. The
first and the last clock follow. The two say how long the packet took: if less than 2**16 cycles, what was cut off is
known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .model import MAX_EVENTS, MAX_WORDS, lead, quads

if TYPE_CHECKING:
    from .chains import Between, Event

__all__ = ["Words", "fits", "words"]

_RUN = 48  # least cycles from the first access of a run to its last


@dataclass(frozen=True, slots=True)
class Words:
    """Words of a packet, its tag left out: events (by number) with an address, and with a clock of their own."""

    addresses: tuple[int, ...]
    clocks: tuple[int, ...]
    short: bool = False

    @property
    def count(self) -> int:
        if self.short:
            return 2 + (len(self.clocks) - 1) // 2
        pad = bool(self.addresses) and len(self.clocks) % 2 == 0
        return 2 * len(self.addresses) + pad + len(self.clocks)

    @property
    def first(self) -> int:
        """Number of the first word that means something, counted from the start of the packet."""
        return lead(self.count)

    def clock(self, event: int) -> int | None:
        """Word with the event's own clock, or with its low half."""
        if event not in self.clocks:
            return None
        if self.short and event < len(self.clocks) - 1:
            return self.first + (event - 1) // 2 if event else self.tag - 2
        return self.first + self.count - len(self.clocks) + self.clocks.index(event)

    def above(self, event: int) -> int | None:
        """The event whose clock is in the high half of the word with that of ``event`` in the low half."""
        return event + 1 if self.short and event % 2 and event + 2 < len(self.clocks) else None

    def address(self, event: int) -> int | None:
        """Word with the low half of the event's address; the high half is the next one."""
        return self.first + 2 * self.addresses.index(event) if event in self.addresses else None

    @property
    def tag(self) -> int:
        return self.first + self.count

    def places(self, of_events: Sequence[int], tag: int) -> dict[int, int]:
        """Place from which on each word with a meaning has its value, from those of the events and the tag's."""
        found = {self.tag: tag}
        for event, place in enumerate(of_events):
            low, clock = self.address(event), self.clock(event)
            found |= {} if low is None else {low: place, low + 1: place}
            found |= {} if clock is None else {clock: place}
        return found

    def events(self, quad: int) -> list[int]:
        """Events that have a word in this quad, in order."""
        held = set()
        for event in {*self.addresses, *self.clocks}:
            low, clock = self.address(event), self.clock(event)
            places = [word for word in (low, low if low is None else low + 1, clock) if word is not None]
            if any(word // 4 == quad for word in places):
                held.add(event)
        return sorted(held)


def words(events: Sequence[Event], gaps: Sequence[Between]) -> Words:
    """Words of a chain's events; ``gaps[k]`` is what stands between places ``k`` and ``k + 1``."""
    addresses = tuple(k for k, event in enumerate(events) if event.record.site.wide)
    clocks: list[int] = []
    start = 0  # event that begins the run
    for k in range(len(events)):
        following = events[k + 1] if k + 1 < len(events) else None
        if k not in addresses or following is None or following.optional or k + 1 not in addresses:
            shared = False
        else:
            shared = sum(gap.cycles for gap in gaps[events[start].place : following.place]) <= _RUN
        if not shared:
            clocks.append(k)
            start = k + 1
    return Words(addresses, tuple(clocks))


def fits(events: Sequence[Event], gaps: Sequence[Between]) -> bool:
    """Whether a packet can hold these events.

    The header's count of events is completed from the number of quads, so at least as many as quads must happen. An
    optional access would leave two registers unset on the way without it: it has a packet of its own.
    """
    if len(events) > MAX_EVENTS or any(e.optional and e.record.site.wide for e in events):
        return False
    found = words(events, gaps)
    certain = sum(not event.optional for event in events)
    return not found.addresses or (found.count <= MAX_WORDS and quads(found.count) <= max(certain, 1))
