"""Faults in recorded addresses: wrong registers, places, conditions and lanes, and maps that lie about them."""

from __future__ import annotations

import copy
import random
from typing import Any

from tests.verify.subject import Mutant, Mutator, Subject

__all__ = ["ADDRESS_MUTATORS"]

_MOV, _SEL, _WIDE = 0x202, 0x207, 0x225
_SOURCE = {_MOV: 32, _SEL: 24, _WIDE: 64}  # first bit of the register that is copied
_PROMISES = ("effects", "liveness", "hazards", "instructions")


def _captures(s: Subject) -> list[tuple[int, int]]:
    """(traced index, original index of the site) of words that copy a register of the kernel's."""
    places = {x["at"] // 16 for x in s.claim["sites"] if x["probe"] == "address"}
    return [(j, i) for j, i in s.probes if i in places and s.traced[j].word & 0xFFF in _SOURCE]


def wrong_register(s: Subject, rng: random.Random) -> Mutant:
    j, _ = rng.choice(_captures(s))
    words, at = s.words(), _SOURCE[s.traced[j].word & 0xFFF]
    words[j] ^= (2 if words[j] & 0xFFF == _WIDE else rng.choice((1, 2, 4))) << at
    return s.mutant(words, f"`{s.traced[j].text}` copies another register", *_PROMISES)


def wrong_half(s: Subject, rng: random.Random) -> Mutant | None:
    """The high half where the low one belongs, or the other way round."""
    pairs = [(a, b) for (a, i), (b, k) in zip(_captures(s), _captures(s)[1:], strict=False) if i == k]
    pairs = [(a, b) for a, b in pairs if {s.traced[n].word & 0xFFF for n in (a, b)} == {_MOV, _SEL}]
    if not pairs:
        return None
    a, b = rng.choice(pairs)
    words = s.words()
    low, high = (words[n] >> _SOURCE[words[n] & 0xFFF] & 0xFF for n in (a, b))
    for n, register in ((a, high), (b, low)):
        at = _SOURCE[words[n] & 0xFFF]
        words[n] = words[n] & ~(0xFF << at) | register << at
    return s.mutant(words, f"`{s.traced[a].text}` and `{s.traced[b].text}` with sources exchanged", *_PROMISES)


def wrong_site(s: Subject, rng: random.Random) -> Mutant | None:
    """Two captures change places: each reads its registers at the other's access."""
    found = _captures(s)
    pairs = [(a, b) for a, i in found for b, k in found if i < k and s.traced[a].reads != s.traced[b].reads]
    if not pairs:
        return None
    a, b = rng.choice(pairs)
    words = s.words()
    words[a], words[b] = words[b], words[a]
    return s.mutant(words, f"`{s.traced[a].text}` and `{s.traced[b].text}` exchanged", *_PROMISES)


def lost_condition(s: Subject, rng: random.Random) -> Mutant | None:
    """An access that a lane does not make looks like one that it makes, or the other way round."""
    found = [j for j, _ in _captures(s) if s.traced[j].word & 0xFFF == _SEL]
    if not found:
        return None
    j, words = rng.choice(found), s.words()
    change = rng.choice(("always", "inverted", "another"))
    if change == "always":
        words[j] = words[j] & ~(15 << 87) | 7 << 87
    else:
        words[j] ^= 1 << (90 if change == "inverted" else 87)
    return s.mutant(words, f"`{s.traced[j].text}`, {change}", *_PROMISES)


def all_lanes(s: Subject, rng: random.Random) -> Mutant | None:
    """Every active lane stores its own address to the same place."""
    captured, copied, found = {j for j, _ in _captures(s)}, 0, []
    for j, i in s.probes:
        ins = s.traced[j]
        copied = copied | ins.writes if j in captured else copied & ~ins.writes
        if ins.base == "STG" and ins.guard and not s.ends(i) and ins.reads & copied:
            found.append(j)
        if ins.base == "STG":
            copied &= ~ins.reads
    if not found:
        return None
    j, words = rng.choice(found), s.words()
    words[j] |= 7 << 12
    return s.mutant(words, f"`{s.traced[j].text}` by all lanes", *_PROMISES)


def lost_capture(s: Subject, rng: random.Random) -> Mutant:
    j, _ = rng.choice(_captures(s))
    words = s.words()
    words[j] = 0x7918 | words[j] >> 105 << 105
    return s.mutant(words, f"no `{s.traced[j].text}`", *_PROMISES)


def _lie(s: Subject, rng: random.Random, what: str, change: Any) -> Mutant | None:
    sites, packets = copy.deepcopy(s.claim["sites"]), copy.deepcopy(s.claim["packets"])
    if not change(rng, [x for x in sites if x["probe"] == "address"], [p for p in packets if "addresses" in p]):
        return None
    return s.file(s.data, what, *_PROMISES, claim=lambda k: k.update(sites=sites, packets=packets))


def lying_offset(s: Subject, rng: random.Random) -> Mutant | None:
    def change(rng: random.Random, sites: list[Any], packets: list[Any]) -> bool:
        rng.choice(sites)["address"]["offset"] += rng.choice((-16, 4, 128))
        return True

    return _lie(s, rng, "map adds another offset", change)


def lying_condition(s: Subject, rng: random.Random) -> Mutant | None:
    def change(rng: random.Random, sites: list[Any], packets: list[Any]) -> bool:
        claim = rng.choice(sites)["address"]
        claim["conditional"] = not claim["conditional"]
        return True

    return _lie(s, rng, "map says an access is made by all lanes, or by some", change)


def lying_witness(s: Subject, rng: random.Random) -> Mutant | None:
    """An access without a condition of its own in the trace, and none that tells for it; or one too many."""

    def change(rng: random.Random, sites: list[Any], packets: list[Any]) -> bool:
        some = [x for x in sites if x["address"]["made_with"] is not None]
        if not some:
            return False
        site = rng.choice(some)
        others = [n for p in packets for n in p["addresses"] if n < site["id"] and n != site["address"]["made_with"]]
        site["address"]["made_with"] = rng.choice([None, *others, site["id"] + 1000])
        return True

    return _lie(s, rng, "map names another access as the one that tells", change)


def lying_place(s: Subject, rng: random.Random) -> Mutant | None:
    def change(rng: random.Random, sites: list[Any], packets: list[Any]) -> bool:
        one, other = rng.sample(sites, 2) if len(sites) > 1 else (sites[0], sites[0])
        one["at"] = other["at"] if one is not other else one["at"] + 16
        return True

    return _lie(s, rng, "map says that an address is read elsewhere", change)


def lying_clocks(s: Subject, rng: random.Random) -> Mutant | None:
    def change(rng: random.Random, sites: list[Any], packets: list[Any]) -> bool:
        packet = rng.choice(packets)
        missing = [n for n in packet["sites"] if n not in packet["clocks"]]
        if missing:
            packet["clocks"] = sorted([*packet["clocks"], rng.choice(missing)], key=packet["sites"].index)
        else:
            packet["clocks"] = packet["clocks"][:-1]
        return True

    return _lie(s, rng, "map has clocks that a packet has not", change)


def lying_addresses(s: Subject, rng: random.Random) -> Mutant | None:
    def change(rng: random.Random, sites: list[Any], packets: list[Any]) -> bool:
        packet = rng.choice(packets)
        packet["addresses"] = packet["addresses"][1:] if rng.random() < 0.5 else packet["addresses"][::-1]
        return packet["addresses"] != next(p["addresses"] for p in s.claim["packets"] if p["tag"] == packet["tag"])

    return _lie(s, rng, "map has the addresses of a packet in another order, or one too few", change)


ADDRESS_MUTATORS: tuple[Mutator, ...] = (
    wrong_register,
    wrong_half,
    wrong_site,
    lost_condition,
    all_lanes,
    lost_capture,
    lying_offset,
    lying_condition,
    lying_witness,
    lying_place,
    lying_clocks,
    lying_addresses,
)
