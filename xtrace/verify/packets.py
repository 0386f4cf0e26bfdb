"""Kinds of packets, as a trace map lists them: what each word of one holds.

A packet of n words and a tag is n // 4 + 1 quads of 16 bytes: words that mean nothing, two for each address, one that
means nothing if there are addresses and an even number of clocks, the clocks, the tag. With short clocks, the low
halves of all but the first and the last come before these two, two in a word. In a striped slot all packets have the
size of a stripe.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

__all__ = ["Packet", "packets_of"]


@dataclass(frozen=True)
class Packet:
    """One kind of packet: its tag, and the original instructions before which its events are recorded, in order."""

    tag: int
    sites: tuple[int, ...]
    addresses: tuple[int, ...] = ()  # events (by number) with an address
    listed: tuple[int, ...] | None = None  # events with a clock of their own; None: all
    made_with: tuple[int | None, ...] = ()  # for each address: the event that tells whether the access was made
    flush: int | None = None  # original instruction before which it is stored once more, with what is left of a loop
    values: frozenset[int] = frozenset()  # events of addresses that are registers recorded for themselves
    halves: frozenset[int] = frozenset()  # of these, one register alone
    short: bool = False  # of clocks between the first and the last, low halves: two in a word, the earlier below
    stripe: int | None = None  # bytes of every packet of the kernel
    uncleared: frozenset[int] = frozenset()  # events that, if left out, have the clock of an earlier packet

    @cached_property
    def clocks(self) -> tuple[int, ...]:
        return tuple(range(len(self.sites))) if self.listed is None else self.listed

    @cached_property
    def words(self) -> int:
        if self.short:
            return -(-(len(self.sites) - 2) // 2) + 2
        return 2 * len(self.addresses) + (bool(self.addresses) and len(self.clocks) % 2 == 0) + len(self.clocks)

    @cached_property
    def size(self) -> int:
        return 16 * (self.words // 4 + 1) if self.stripe is None else self.stripe

    def shift(self, event: int) -> int | None:
        """Where the low half of the event's clock stands in its word; None: the clock is whole."""
        return (event - 1) % 2 * 16 if self.short and 0 < event < len(self.sites) - 1 else None

    def clock_word(self, event: int) -> int:
        """Words from the one with the clock of an event to the tag."""
        if self.short:
            return {0: 2, len(self.sites) - 1: 1}.get(event, self.words - (event - 1) // 2)
        return len(self.clocks) - bisect_left(self.clocks, event)

    def address_word(self, n: int) -> int:
        """Words from the low half of the n-th address to the tag."""
        return self.words - 2 * n


def packets_of(claim: Mapping[str, Any], word_bytes: int) -> dict[int, Packet] | str:
    """The map's packets by tag; a string says what is wrong with them."""
    ids = {site.get("id"): site.get("at", site["pc"]) // word_bytes for site in claim.get("sites") or ()}
    recorded: dict[Any, Mapping[str, Any]] = {
        s.get("id"): {} if s["probe"] == "value" else s.get("address")
        for s in claim.get("sites") or ()
        if s.get("probe", "time") in ("address", "value")
    }
    values = {s.get("id"): s for s in claim.get("sites") or () if s.get("probe", "time") == "value"}
    if any(type(n) not in (int, type(None)) for n in ids):
        return "map names a site by something that is no number"
    wanted = [s.get("id") for s in claim.get("sites") or () if s.get("id") is not None]
    if len(wanted) != len(set(wanted)):
        return "map gives two sites the same number"
    packets: dict[int, Packet] = {}
    used: list[int] = []
    for item in claim.get("packets") or ():
        if item["tag"] in packets:
            return f"map has two packets with the tag {item['tag']}"
        if stray := [n for n in item["sites"] if n not in ids]:
            return f"packet {item['tag']} has site number {stray[0]}, which the map does not have"
        packet = _packet(item, ids, recorded, values, word_bytes)
        if isinstance(packet, str):
            return f"packet {item['tag']} {packet}"
        stripe = (claim.get("slot") or {}).get("stripe")
        if stripe is not None and packet.size > stripe:
            return f"packet {item['tag']} is larger than a stripe"
        packet = replace(packet, stripe=stripe)
        packets[item["tag"]] = packet
        used += item["sites"]
    if len(used) != len(set(used)):
        return "map has a site in two packets"
    if silent := sorted(set(wanted) - set(used)):
        return f"map names site number {silent[0]}, which is in no packet"
    return packets


def _packet(
    item: Mapping[str, Any],
    ids: Mapping[Any, int],
    recorded: Mapping[Any, Mapping[str, Any]],
    values: Mapping[Any, Mapping[str, Any]],
    word_bytes: int,
) -> Packet | str:
    sites, flush = item["sites"], item.get("flush")
    addresses, clocks = item.get("addresses", []), item.get("clocks", sites)
    if addresses != [n for n in sites if n in recorded]:
        return "does not list the addresses of just its own accesses, in order"
    if clocks != [n for n in sites if n in clocks] or clocks[-1:] != sites[-1:]:
        return "does not list clocks of its sites in order, up to the last one"
    witnesses = [recorded[n].get("made_with") for n in addresses]
    telling = [
        [n for n, w in zip(addresses[:k], witnesses, strict=False) if w is None and n not in values]
        for k in range(len(addresses))
    ]
    if any(w is not None and w not in earlier for w, earlier in zip(witnesses, telling, strict=True)):
        return "has an access that is made with none before it that tells for itself"
    if flush is not None and (type(flush) is not int or flush % word_bytes):
        return f"is said to be flushed at {flush!r}, which is no instruction"
    if (short := item.get("short_clocks", False)) is not False and (
        short is not True or addresses or "clocks" in item or flush is not None or len(sites) < 3
    ):
        return "cannot have short clocks"
    uncleared = item.get("uncleared", [])
    if uncleared != [n for n in sites[:-1] if n in uncleared] or (uncleared and (short or flush is not None)):
        return "does not list events that are not cleared in order, or must clear them"
    if not set(uncleared) <= set(clocks):
        return "has an event that is not cleared, without a clock of its own"
    return Packet(
        item["tag"],
        tuple(ids[n] for n in sites),
        tuple(sites.index(n) for n in addresses),
        tuple(sites.index(n) for n in clocks) if "clocks" in item else None,
        tuple(None if w is None else addresses.index(w) for w in witnesses),
        None if flush is None else flush // word_bytes,
        frozenset(sites.index(n) for n in addresses if n in values),
        frozenset(sites.index(n) for n in addresses if n in values and len(values[n]["value"]["registers"]) == 1),
        short,
        uncleared=frozenset(sites.index(n) for n in uncleared),
    )
