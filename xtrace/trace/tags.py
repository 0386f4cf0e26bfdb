"""Kinds of packets: what each word of one holds, and the same as tables by tag for reading many at once.

The layout of a packet is in :mod:`xtrace.trace.packets`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["MAX_SITES", "MAX_TAG", "MAX_WORDS", "NO_TAG", "QUAD", "SHORTEST", "Address", "Packet", "Tags"]

QUAD = 16  # bytes
MAX_TAG = (1 << 16) - 1
MAX_SITES = 15  # events of one packet
MAX_WORDS = 31  # of one packet, its tag left out
SHORTEST = 3  # events of a packet with short clocks
NO_TAG = MAX_TAG + 1  # stands for every word that cannot be a tag

Array = npt.NDArray[Any]


class Address(NamedTuple):
    """An address that an event of a packet records."""

    event: int  # number in the packet
    offset: int  # to be added to what is stored
    made_with: int | None = None  # address of the packet (by number) whose high half tells whether the access was made
    value: bool = False  # no address, but two registers that other addresses are derived from


class Packet(NamedTuple):
    """One kind of packet."""

    tag: int
    sites: Sequence[int]
    addresses: Sequence[Address] = ()
    clocks: Sequence[int] | None = None  # events (by number) with a clock of their own; None: all
    short: bool = False  # clocks between the first and the last have 16 bits
    uncleared: Sequence[int] = ()  # events (by number) whose clock may be left over from an earlier packet

    @property
    def words(self) -> int:
        """Its words, the tag left out."""
        if self.short:
            return 2 + (len(self.sites) - 1) // 2
        clocks = len(self.sites if self.clocks is None else self.clocks)
        return 2 * len(self.addresses) + bool(self.addresses and clocks % 2 == 0) + clocks

    @property
    def quads(self) -> int:
        """Its size, if nothing is put in front."""
        return self.words // 4 + 1


@dataclass(frozen=True)
class Tags:
    """The packets of a trace map: ``count[tag]`` events (0: no such tag) from number ``first[tag]`` on, in
    ``quads[tag]`` quads with ``clocks[tag]`` whole clocks; then one element per event of every packet. Places count
    back from the tag.
    """

    count: Array
    first: Array
    quads: Array
    clocks: Array
    short: Array  # whether it has short clocks
    uncertain: Array  # its words (bits, by place) with clocks of uncleared events
    sites: Array
    clock_at: Array
    shift: Array  # of a short clock in its word, bits; -1: a whole clock
    address_at: Array  # low half; 0: no address
    made_at: Array  # word that is 0 if the access was not made; the tag, which never is, for values
    offset: Array  # u64
    uncleared: Array

    @property
    def dense(self) -> bool:
        """Whether some packets have short clocks."""
        return bool(self.short.any())

    @classmethod
    def of(cls, packets: Sequence[Packet | tuple[int, Sequence[int]]], stripe: int | None = None) -> Tags:
        """From packets, or ``(tag, site ids)`` pairs of packets of clocks alone. ``stripe``: bytes of every one."""
        count, first, quads, clocks, uncertain = (np.zeros(NO_TAG + 1, np.int64) for _ in range(5))
        short = np.zeros(NO_TAG + 1, bool)
        rows: list[tuple[int, int, int, int, int, int, bool]] = []
        for packet in (Packet(*item) for item in packets):
            own = list(range(len(packet.sites)) if packet.clocks is None else packet.clocks)
            tag = packet.tag
            count[tag], first[tag], short[tag] = len(packet.sites), len(rows), packet.short
            quads[tag] = packet.quads if stripe is None else stripe // QUAD
            clocks[tag] = 2 if packet.short else len(own)
            if packet.short:
                rows += [(site, *_short_clock(packet, k), 0, 0, 0, False) for k, site in enumerate(packet.sites)]
                continue
            low = [packet.words - 2 * n for n in range(len(packet.addresses))]
            place = {x.event: n for n, x in enumerate(packet.addresses)}
            for event, site in enumerate(packet.sites):
                clock = len(own) - next(n for n, k in enumerate(own) if k >= event)
                stale = event in packet.uncleared
                uncertain[tag] |= stale << clock
                if event in place:
                    n, x = place[event], packet.addresses[place[event]]
                    made = low[n if x.made_with is None else x.made_with] - 1
                    rows.append((site, clock, -1, low[n], 0 if x.value else made, x.offset, stale))
                else:
                    rows.append((site, clock, -1, 0, 0, 0, stale))
        sites, clock_at, shift, address_at, made_at, offset, uncleared = np.array(rows, np.int64).reshape(-1, 7).T
        return cls(
            count, first, quads, clocks, short, uncertain, sites, clock_at, shift, address_at, made_at,
            offset.astype(np.uint64), uncleared.astype(bool),
        )  # fmt: skip


def _short_clock(packet: Packet, event: int) -> tuple[int, int]:
    """Words from the event's clock to the tag, and the shift of a short one."""
    last = len(packet.sites) - 1
    if event in (0, last):
        return (2 if event == 0 else 1), -1
    word, half = divmod(event - 1, 2)
    return packet.words - word, 16 * half
