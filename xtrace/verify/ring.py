"""The records that a warp left in its slot, read back from what probe code stored in a dry run.

The clock of an event that a warp left out is 0, and such an event is not counted; an event without a clock of its own
has the next one's. The high half of the address of an access that was not made is 0, unless another event tells
(``made_with``). With short clocks no event may be left out. The clock of an event that is not cleared is of this packet
if it is younger than that of the last event before which always has its own, in this packet or an earlier one. The way
back from the number of bytes that the header announces must meet exactly the events that were captured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from xtrace.verify.packets import Packet

__all__ = ["Ring", "Word", "fillers"]

_MOST_QUADS = 8
_COUNT_BITS = 24


class Word(NamedTuple):
    """Four stored bytes: the value (None: of a register that no probe set), the store, which of its words it was."""

    value: int | None
    store: int
    part: int
    one_lane: bool = False  # stored by the lane that an election chose
    of_all: bool = True  # among all lanes of the warp


@dataclass
class Ring:
    """A warp's slot and header during one walk, with the clocks that were read before each original instruction.

    ``runs[i]`` holds one set of clocks for every time that the island before instruction i was run.
    """

    size: int
    packets: Mapping[int, Packet]
    slot: dict[int, Word] = field(default_factory=dict)
    header: dict[int, int | None] = field(default_factory=dict)
    runs: dict[int, list[set[int]]] = field(default_factory=dict)
    exact: frozenset[int] = frozenset()  # instructions before which something is recorded that addresses derive from
    accesses: dict[int, list[tuple[int, bool]]] = field(default_factory=dict)  # address, and whether it was accessed
    payload: set[tuple[int, int]] = field(default_factory=set)  # (store, part) that was a clock or a tag
    filler: set[tuple[int, int]] = field(default_factory=set)  # (store, part) in front of a packet's clocks
    clocks: set[tuple[int, int, int, int]] = field(default_factory=set)  # (store, part, tag, event) of whole clocks

    def wrong(self, smid: int, end: int, pc: int) -> str:
        """What is wrong with the header or the packets it announces; empty if all is well.

        ``end``: original index of the EXIT before which the header was written, at ``pc`` in the original.
        """
        missing = [n for n in range(8) if self.header.get(4 * n) is None]
        if missing:
            return f"word {missing[0]} of the header is not written"
        emitted, counter = self.header[28] or 0, self.header[8] or 0
        # The last is never left out, but in a flush.
        ends = [(p.size, i) for p in self.packets.values() for i in (p.sites[-1], p.flush) if i is not None]
        stored = sum(size * len(self.runs.get(i, ())) for size, i in ends)
        if emitted != stored:
            return f"header says {emitted} bytes were emitted, the packets of this way have {stored}"
        events = sum(len(self.runs.get(i, ())) for p in self.packets.values() for i in p.sites)
        if counter >> 8 != events & ((1 << _COUNT_BITS) - 1):
            return f"header counts {counter >> 8} events, {events} were captured"
        if counter & 0xFF != smid & 0xFF:
            return "header does not name the multiprocessor"
        if self.header[12] != pc:
            return f"header names {self.header[12]:#x} as the exit, which is at {pc:#x} in the original"
        if self.header[4] not in self.runs[0][-1] or self.header[24] not in self.runs[end][-1]:
            return "header does not hold the clocks that were read at entry and exit"
        return self._walk_back(emitted)

    def _walk_back(self, emitted: int) -> str:
        left = {i: list(runs) for i, runs in self.runs.items()}
        made = {i: list(accesses) for i, accesses in self.accesses.items()}
        at, later = emitted, 1 << 32
        oldest = max(emitted - self.size, 0)  # what stood before it in the ring is overwritten
        while at > oldest:
            found = self._ending_at(at, later)
            if found is None:
                return f"no packet of the map ends {emitted - at} bytes before the last"
            packet, place = found
            clocks = [self._clock(packet, k, place, left) for k in range(len(packet.sites))]
            if at - packet.size < oldest:  # only its last quad is certainly whole
                captured = (x[-1] for p in self.packets.values() for i in p.sites if (x := left.get(i)) and x[-1])
                youngest = max(captured, key=min, default=set())
                last = next((clock for clock in reversed(clocks) if clock), None)
                return "" if last in youngest else "the oldest packet is not the one that was captured"
            self._clocks_of(packet, place)
            clocks = self._own(packet, clocks, at, later, oldest)
            if why := self._events(packet, clocks, later, left) or self._addresses(packet, clocks, place, made):
                return why
            self._parts(packet, place)
            later = min((clock for clock in clocks if clock), default=later)
            at -= packet.size
        if not oldest and any(left.get(i) for p in self.packets.values() for i in p.sites):
            return "not all that was captured is in the slot"
        return ""

    def _own(self, packet: Packet, clocks: Sequence[int | None], at: int, later: int, oldest: int) -> list[int | None]:
        """These clocks, with 0 for those of earlier packets."""
        previous = self._last_before(at - packet.size, later, oldest) if packet.uncleared else 0
        out: list[int | None] = []
        for k, clock in enumerate(clocks):
            left = k in packet.uncleared and clock is not None and clock <= previous
            out.append(0 if left else clock)
            previous = previous if k in packet.uncleared else clock or previous
        return out

    def _last_before(self, at: int, later: int, oldest: int) -> int:
        """The last clock, up to the packet that ends at ``at``, that is certainly of its own packet; 0: none."""
        while at > oldest and (found := self._ending_at(at, later)) is not None:
            packet, place = found
            for k in reversed(range(len(packet.sites))):
                if k not in packet.uncleared and (clock := self._word(place, packet.clock_word(k))):
                    return clock
            at -= packet.size
        return 0

    def _ending_at(self, at: int, later: int) -> tuple[Packet, int] | None:
        """The packet that ends ``at`` bytes behind the first, and where that is in the slot (perhaps past the ring)."""
        best: tuple[int, Packet, int] | None = None
        for place in range(at % self.size or self.size, self.size + 16 * (_MOST_QUADS - 1) + 1, self.size):
            word = self.slot.get(place - 4)
            packet = self.packets.get(word.value or 0) if word is not None else None
            if packet is None or packet.size > at or (at - packet.size) % self.size + packet.size != place:
                continue
            clocks = (self._word(place, packet.clock_word(k)) for k in reversed(range(len(packet.sites))))
            clock = next((c for c in clocks if c != 0), 0)
            age = -1 if clock is None or clock >= later else clock
            if best is None or age > best[0]:
                best = (age, packet, place)
        return None if best is None else best[1:]

    def _word(self, place: int, before: int) -> int | None:
        """The word so many words before the tag of the packet that ends at ``place``."""
        word = self.slot.get(place - 4 - 4 * before)
        return None if word is None else word.value

    def _clock(self, packet: Packet, event: int, place: int, left: Mapping[int, list[set[int]]]) -> int | None:
        """The clock of an event; of a low half, that of the clocks captured last at its site which has this half."""
        word, shift = self._word(place, packet.clock_word(event)), packet.shift(event)
        if word is None or shift is None:
            return word
        captured = next(iter(left.get(packet.sites[event], ())[-1:]), set())
        return next((clock for clock in captured if clock & 0xFFFF == word >> shift & 0xFFFF), None)

    def _clocks_of(self, packet: Packet, place: int) -> None:
        """Note which words of stores hold whole clocks."""
        for event in () if packet.short else packet.clocks:
            word = self.slot.get(place - 4 - 4 * packet.clock_word(event))
            if word is not None:
                self.clocks.add((word.store, word.part, packet.tag, event))

    def _events(self, packet: Packet, clocks: Sequence[int | None], later: int, left: dict[int, list[set[int]]]) -> str:
        """Compare with what was captured last at each site, and take that from what is ``left``."""
        previous = -1
        for k, (site, clock) in enumerate(zip(packet.sites, clocks, strict=True)):
            if clock == 0 and (k < len(clocks) - 1 or packet.flush is not None):
                continue  # if it did happen, an older packet will not have the clock that is still left
            runs = left.get(site)
            if clock is None or not runs or (clock not in runs.pop() and k in packet.clocks):
                return f"event {k} of packet {packet.tag} is not the clock that was read at its site"
            if not (previous < clock or (previous == clock and k - 1 not in packet.clocks)) or clock >= later:
                return f"clocks of packet {packet.tag} do not ascend"
            previous = clock
        return ""

    def _addresses(
        self, packet: Packet, clocks: Sequence[int | None], place: int, made: dict[int, list[tuple[int, bool]]]
    ) -> str:
        """Compare with what the kernel's registers were at each access, and take that from what is in ``made``."""
        done: list[bool] = []
        for n, (event, witness) in enumerate(zip(packet.addresses, packet.made_with, strict=True)):
            if clocks[event] == 0:
                done.append(False)
                continue
            words = [self.slot.get(place - 4 - 4 * (packet.address_word(n) - half)) for half in (0, 1)]
            low, high = (None if word is None else word.value for word in words)
            value, accessed = made[packet.sites[event]].pop()
            shown = event in packet.values or (bool(high) if witness is None else done[witness])
            done.append(shown)
            if shown is not accessed:
                return f"event {event} of packet {packet.tag} tells wrongly whether the access was made"
            if event in packet.halves:
                high = value >> 32
            if accessed and (low, high) != (value & 0xFFFFFFFF, value >> 32):
                return f"event {event} of packet {packet.tag} is not the address of its access"
            if not all(word is not None and word.one_lane for word in words):
                return f"event {event} of packet {packet.tag} may mix the addresses of several lanes"
            if packet.sites[event] in self.exact and not all(word is not None and word.of_all for word in words):
                return f"event {event} of packet {packet.tag} may be another lane's than what is derived from it"
        return ""

    def _parts(self, packet: Packet, place: int) -> None:
        """Note which words of stores mean something."""
        total = packet.size // 4
        lead, pad = total - packet.words - 1, total - len(packet.clocks) - 2
        unused = {*range(lead), *([pad] if packet.addresses and len(packet.clocks) % 2 == 0 else [])}
        unused |= {lead + 2 * n + 1 for n, event in enumerate(packet.addresses) if event in packet.halves}
        for n in range(total):
            word = self.slot.get(place - packet.size + 4 * n)
            if word is not None:
                (self.filler if n in unused else self.payload).add((word.store, word.part))


def fillers(rings: Sequence[Ring]) -> set[tuple[int, int]]:
    """(store, part) whose value nobody reads, in any of these walks."""
    payload: set[tuple[int, int]] = set().union(*(r.payload for r in rings))
    return set().union(*(r.filler for r in rings)) - payload
