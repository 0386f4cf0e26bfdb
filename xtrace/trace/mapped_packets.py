"""What a trace map says about the packets of one kernel, checked before any byte is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from xtrace.errors import BadInput
from xtrace.trace.tags import MAX_SITES, MAX_TAG, MAX_WORDS, QUAD, SHORTEST, Address, Packet

__all__ = ["malformed", "packets"]

_VALUE: Mapping[str, Any] = {"offset": 0}  # stands for the address of a site that records a value


def packets(entry: Mapping[str, Any], ids: Collection[int]) -> tuple[Packet, ...]:
    """The packets of a kernel's map entry; each of the record sites ``ids`` is in one.

    BadInput XT8101 if they are not so, or larger than a stripe.
    """
    name, raw = str(entry.get("name"))[:200], entry.get("packets")
    if not isinstance(raw, list) or not all(isinstance(item, Mapping) for item in raw):
        raise malformed(f"kernel {name}: 'packets' is not a list of objects")
    recorded = {
        s.get("id"): _VALUE if s["probe"] == "value" else s.get("address")
        for s in entry["sites"]
        if s.get("probe") in ("address", "value")
    }
    out: dict[int, Packet] = {}
    left = set(ids)
    for item in raw:
        tag, sites = item.get("tag"), item.get("sites")
        if type(tag) is not int or not 1 <= tag <= MAX_TAG or tag in out:
            raise malformed(f"kernel {name}: packet tags must be distinct and between 1 and {MAX_TAG}")
        if not isinstance(sites, list) or not 1 <= len(sites) <= MAX_SITES:
            raise malformed(f"kernel {name}: packet {tag} does not list 1 to {MAX_SITES} sites")
        for site in sites:
            if type(site) is not int or site not in left:
                raise malformed(f"kernel {name}: packet {tag} names no record site, or one of another packet")
            left.remove(site)
        out[tag] = _packet(item, recorded, f"kernel {name}: packet {tag}")
        stripe = (entry.get("slot") or {}).get("stripe")
        if stripe is not None and QUAD * out[tag].quads > stripe:
            raise malformed(f"kernel {name}: packet {tag} is larger than a stripe of {stripe} bytes")
    if left:
        raise malformed(f"kernel {name}: site {min(left)} is in no packet")
    return tuple(out.values())


def _packet(item: Mapping[str, Any], recorded: Mapping[Any, Any], what: str) -> Packet:
    tag, sites = item["tag"], item["sites"]
    numbers = [n for n in sites if n in recorded]
    if (short := item.get("short_clocks", False)) is not False:
        if short is not True or numbers or {"flush", "uncleared"} & set(item) or len(sites) < SHORTEST:
            raise malformed(f"{what} cannot have short clocks")
        return Packet(tag, tuple(sites), short=True)
    if not numbers:
        return Packet(tag, tuple(sites), uncleared=_uncleared(item, sites, what))
    clocks = item.get("clocks")
    if item.get("addresses") != numbers:
        raise malformed(f"{what} does not list the addresses of its accesses in order")
    if not isinstance(clocks, list) or clocks != [n for n in sites if n in clocks] or clocks[-1:] != sites[-1:]:
        raise malformed(f"{what} does not list clocks of its sites in order, up to the last one")
    addresses: list[Address] = []
    for n in numbers:
        claim = recorded[n]
        offset, witness = (claim.get("offset"), claim.get("made_with")) if isinstance(claim, Mapping) else (None, None)
        if type(offset) is not int or not -(1 << 31) <= offset < 1 << 31:
            raise malformed(f"{what}: the address of site {n} has no offset")
        telling = [numbers[k] for k, x in enumerate(addresses) if x.made_with is None and not x.value]
        if witness is not None and witness not in telling:
            raise malformed(f"{what}: site {n} is made with no earlier access of the packet that tells for itself")
        made_with = None if witness is None else numbers.index(witness)
        addresses.append(Address(sites.index(n), offset, made_with, claim is _VALUE))
    own = tuple(sites.index(n) for n in clocks)
    packet = Packet(tag, tuple(sites), tuple(addresses), own, uncleared=_uncleared(item, clocks, what))
    if packet.words > MAX_WORDS:
        raise malformed(f"{what} has more than {MAX_WORDS} words")
    return packet


def _uncleared(item: Mapping[str, Any], clocks: Sequence[int], what: str) -> tuple[int, ...]:
    """Numbers of the events that may be left over from an earlier packet; they, and those before, have own clocks."""
    sites, listed = item["sites"], item.get("uncleared", [])
    if not isinstance(listed, list) or listed != [n for n in sites[:-1] if n in listed] or (listed and "flush" in item):
        raise malformed(f"{what} does not list its uncleared events in order, without the last")
    numbers = tuple(sites.index(n) for n in listed)
    if any(sites[k] not in clocks for n in numbers for k in (n, max(n - 1, 0))):
        raise malformed(f"{what} has an uncleared event that may have another one's clock")
    return numbers


def malformed(what: str) -> BadInput:
    """The error for a map that does not say what it must."""
    return BadInput("XT8101", f"malformed trace map: {what}", hint="use the map written together with the traced image")
