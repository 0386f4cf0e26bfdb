"""Writing a packet into its islands: captures, stores, cursor, storing lane."""

from __future__ import annotations

from dataclasses import dataclass

from xtrace.isa.nvidia.emit import Carry, Cursor, Store, Transfer
from xtrace.probe import Site

from .accesses import address, same_condition, value
from .chains import Event
from .line import COMMIT_AFTER, PREPARATION, Line, predicate_bit
from .model import EVENT_BYTES, Form, Packet, PlacedSite
from .route import Carried

__all__ = ["Builder", "Fill", "fill_of", "registers_of"]


@dataclass(frozen=True, slots=True)
class Fill:
    """One run of registers of a packet and the store of it."""

    data: int
    words: int
    offset: int  # bytes behind the packet's start
    first: int  # place from which on the registers must be the probe's alone
    at: int  # place that stores them


def fill_of(fills: list[Fill], word: int) -> Fill:
    """The one that a word of the packet belongs to."""
    return next(f for f in fills if f.offset <= EVENT_BYTES * word < f.offset + EVENT_BYTES * f.words)


def registers_of(fills: list[Fill]) -> dict[int, int]:
    """Register of each word of the packet."""
    return {fill.offset // EVENT_BYTES + k: fill.data + k for fill in fills for k in range(fill.words)}


def _reuses(fills: list[Fill]) -> bool:
    """Whether the last word goes through a register that is stored before."""
    return any(f.data <= fills[-1].data < f.data + f.words for f in fills[:-1])


class Builder:
    """Writes everything into the islands of a packet."""

    def __init__(self, line: Line, fills: list[Fill], carried: Carried | None = None) -> None:
        self._line = line
        self._chain = chain = line.chain
        by_place = {e.place: e.record for e in chain.events if not e.optional}
        phase = chain.events[0].record.site.phase
        islands = [by_place.get(k) or PlacedSite(Site(chain.places[k], phase, "prepare")) for k in range(line.count)]
        if not any(fill.at >= line.count for fill in fills):
            line.end_at([])
        last_phase = chain.events[-1].record.site.phase
        islands += [PlacedSite(Site(index, last_phase, "commit")) for index, _ in line.end]
        if carried is None:
            line.taken.update(index for index, _ in line.end)
        self._islands = islands
        registers = 0
        for fill in fills:
            registers |= ((1 << fill.words) - 1) << fill.data
        if carried is not None:
            written = [*carried.captures.values(), *(r for _, step in carried.transfers for r in step.general)]
            registers |= sum(1 << r for r in set(written) if not registers >> r & 1)
        optional = [e.record for e in chain.events if e.optional]
        self.packet = Packet(
            0, chain.sites, islands, optional, [], registers, words=line.words.count, short=line.words.short
        )
        if carried is None:
            self._captures(fills)
        else:
            fills = self._carry(fills, carried)
        self._stores(fills)
        self._shift = 0
        self._cursor(fills)
        if line.form >= Form.LANE:
            self._elections(sorted({fill.at + self._shift for fill in fills}))
        if carried is not None:
            self._late_tag(fills)
        self.packet.gaps = [gap.cycles for gap in line.gaps]
        self.packet.drop_empty()  # a place for an election that another one serves
        line.taken.update(p.site.index for p in self.packet.islands)

    def _captures(self, fills: list[Fill]) -> None:
        events = self._chain.events
        if len(fills) == 1 and fills[0].words == 1:
            events[0].record.capture = fills[0].data
            return
        register, words = registers_of(fills), self._line.words
        for k, event in enumerate(events):
            clock, low = words.clock(k), words.address(k)
            event.record.capture = None if clock is None else register[clock]
            if low is not None:
                self._address(event, register[low])
            if event.optional and event.record.capture is not None:
                event.record.cursor = Cursor(0, 1)
                self._islands[event.place].moves.append((event.record.capture, 0))
        if not _reuses(fills):
            self.packet.tag_register = register[words.tag]
            self.packet.tag_island = self._islands[fills[-1].first]

    def _address(self, event: Event, register: int) -> None:
        """The condition of an access is looked at once for all accesses of the packet that share it."""
        a, p = self._line.a, event.record
        if p.site.value is not None:
            p.address = value(a, p, register)
            return
        witnesses = (
            e.record
            for e in self._chain.events[: self._chain.events.index(event)]
            if e.record.site.access is not None and e.record.address and e.record.address.conditions
        )
        same = (w for w in witnesses if same_condition(a, w.site, p.site))
        p.witness = next(same, None)
        p.address = address(a, p, register, certain=p.witness is not None)

    def _carry(self, fills: list[Fill], carried: Carried) -> list[Fill]:
        """Returns the fills as they are to be stored: those that are complete last come last."""
        events, uniform = self._chain.events, self._line.parked
        for k, event in enumerate(events):
            p = event.record
            p.capture = carried.captures[k]
            if event.optional:
                p.transfers.append(Transfer(Carry.PARK, uniform[k], p.capture))
                p.cursor = Cursor(0, 1)
                self._islands[event.place].uniform_moves.append((uniform[k], 0))
        for place, step in carried.transfers:
            island = self._islands[place]
            behind = self._line.a.instructions[island.site.index]
            overwritten = "memory" in behind.tags and any(behind.writes >> r & 1 for r in step.sources)
            island.transfers.append(step._replace(settle=overwritten))
        used = {u for k, u in enumerate(uniform) if events[k].optional}
        used |= {step.target for _, step in carried.transfers if not step.general}
        self.packet.parked = tuple(sorted(used))

        def complete(fill: Fill) -> int:
            registers = range(fill.data, fill.data + fill.words)
            filled = (k for k, (_, step) in enumerate(carried.transfers) if any(r in registers for r in step.general))
            return max(filled, default=-1)

        return sorted(fills, key=complete)

    def _late_tag(self, fills: list[Fill]) -> None:
        """The tag goes to its register ahead of the store, in an island that there is anyway."""
        line, words = self._line, self._line.words
        register, at = registers_of(fills)[words.tag], fill_of(fills, words.tag).at
        self.packet.tag_register = register
        place = at
        for k in range(at - 1, -1, -1):
            island = self._islands[k]
            if line.touched(k, at) >> register & 1:
                break
            kept = island.id is not None or island.transfers or island.cursor or island.stores
            if kept and register in line.free.at(island.site.index).groups(1):
                place = k
                if line.cycles(k, at) >= COMMIT_AFTER:
                    break
        self.packet.tag_island = self._islands[place]

    def _stores(self, fills: list[Fill]) -> None:
        for fill in fills:
            stores = self._islands[fill.at].stores
            if fill.words == 1 and len(fills) == 1:
                stores.append(Store(fill.data, fill.offset, 1))
                stores.append(Store(fill.data, fill.offset + EVENT_BYTES, 1, fill=0))
            else:
                again = 0 if fill is fills[-1] and _reuses(fills) else None
                stores.append(Store(fill.data, fill.offset, fill.words, again))

    def _cursor(self, fills: list[Fill]) -> None:
        """In the last place that is early enough for the first store; if none is, in an island in front of them."""
        line, packet = self._line, self.packet
        first, last = min(fill.at for fill in fills), max(fill.at for fill in fills)
        cursor = Cursor(packet.size, sum(not e.optional for e in self._chain.events))
        place = None
        if line.cycles(0, first) < PREPARATION and line.helpers:
            place = line.prepare_place(last) or line.prepare_place(first)
        if place is not None:
            index, gap, predicate = place
            site = Site(index, packet.records[0].site.phase, "prepare")
            packet.islands.insert(0, PlacedSite(site, elect=predicate, cursor=cursor))
            line.taken.add(index)
            line.places.insert(0, index)
            line.gaps.insert(0, gap)
            self._shift = 1
            return
        at = next((k for k in range(first - 1, -1, -1) if line.cycles(k, first) >= PREPARATION), 0)
        packet.islands[at].cursor = cursor

    def _elections(self, stores: list[int]) -> None:
        """One lane for the stores: elected as early as needed, and again where no predicate lasts."""
        line, islands = self._line, self.packet.islands
        if line.sole:
            return
        elected, since = islands[0].elect, 0
        for store in stores:
            if elected is not None and not predicate_bit(line.a, elected) & line.touched(since, store):
                islands[store].predicate = elected
                continue
            found = self._election(store, stores[-1])
            if found is None:
                elected = None  # no predicate is dead here: every active lane stores the same bytes
                continue
            since, elected = found
            islands[since].elect = elected
            islands[store].predicate = elected

    def _election(self, store: int, last: int) -> tuple[int, int] | None:
        """Place and predicate for an election that a store can use, rather one that lasts to place ``last``."""
        line = self._line
        best: tuple[int, int] | None = None
        for k in range(store, self._shift - 1, -1):
            taken = self.packet.islands[k].elect  # an island elects one lane, into one predicate
            usable = [p for p in line.lasting(k, store) if taken in (None, p)]
            if not usable:
                continue
            lasting = [p for p in line.lasting(k, last) if p in usable]
            best = k, (lasting or usable)[0]
            if line.cycles(k, store) >= PREPARATION:
                break
        return best
