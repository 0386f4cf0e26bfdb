"""Faults in packets: wrong tags, counts and places, captures and elections that do not last, cursors that come late."""

from __future__ import annotations

import random

from tests.verify.fields import DESTINATION, ELECTED, IMMEDIATE, OFFSET, get, put
from tests.verify.subject import Mutant, Mutator, Subject
from xtrace.isa.model import Flow

__all__ = ["PACKET_MUTATORS"]

_DATA, _GUARD = (32, 8), (12, 3)


def _stores(s: Subject) -> list[tuple[int, int]]:
    """(traced index, original index of the site) of stores to the ring."""
    headers = {s.traced[j].text.split("[")[1].split("]")[0].split("+0x")[0] for j, i in s.probes if _in_exit(s, j, i)}
    places = ((j, i) for j, i in s.probes if s.traced[j].base == "STG")
    return [(j, i) for j, i in places if not any(f"[{name}" in s.traced[j].text for name in headers)]


def _in_exit(s: Subject, j: int, i: int) -> bool:
    """Whether the word is a store of 16 bytes or a half of such before an EXIT: the header, not a packet."""
    return s.traced[j].base == "STG" and s.code[i].flow is Flow.EXIT and "128" in s.traced[j].opcode


def _tags(s: Subject) -> list[int]:
    """Words that load a tag: moves of its number, the only ones in islands of packets."""
    numbers = {p["tag"] for p in s.claim["packets"]}
    data = 0
    for j, _ in _stores(s):
        data |= s.traced[j].reads & s.model.layout["R"].mask
    moves = [j for j, _ in s.probes if s.traced[j].base == "MOV" and s.traced[j].writes & data]
    return [j for j in moves if s.traced[j].word & 0xFFF == 0x802 and get(s.traced[j].word, IMMEDIATE) in numbers]


def _captures(s: Subject) -> list[tuple[int, int]]:
    pcs = {x["pc"] // 16 for x in s.claim["sites"] if x["id"] is not None}
    found = [(j, i) for j, i in s.probes if i in pcs and s.traced[j].base == "CS2R"]
    return [(j, i) for j, i in found if "SR_CLOCKLO" in s.traced[j].text and i and s.code[i].flow is not Flow.EXIT]


def wrong_tag(s: Subject, rng: random.Random) -> Mutant | None:
    """A packet that says it is of another kind."""
    places = _tags(s)
    if not places:
        return None
    j = rng.choice(places)
    words, tag = s.words(), get(s.traced[j].word, IMMEDIATE)
    other = rng.choice([p["tag"] for p in s.claim["packets"] if p["tag"] != tag] + [tag + 4096, 0])
    words[j] = put(words[j], IMMEDIATE, other)
    return s.mutant(words, f"`{s.traced[j].text}` loads {other}", "effects")


def _moves(s: Subject, *, count: bool) -> list[int]:
    """Additions to the offset (of bytes) or to the counter (of events, in the bits above the SM number)."""
    found = [j for j, i in s.probes if i and s.traced[j].base == "UIADD3"]
    return [j for j in found if (get(s.traced[j].word, IMMEDIATE) >= 256) is count]


def wrong_count(s: Subject, rng: random.Random) -> Mutant | None:
    places = _moves(s, count=True)
    if not places:
        return None
    j, words = rng.choice(places), s.words()
    words[j] = put(words[j], IMMEDIATE, get(words[j], IMMEDIATE) + rng.choice((256, -256, 1, 4096)))
    return s.mutant(words, f"`{s.traced[j].text}` counts wrong", "effects")


def wrong_offset(s: Subject, rng: random.Random) -> Mutant | None:
    places = _moves(s, count=False)
    if not places:
        return None
    j, words = rng.choice(places), s.words()
    words[j] = put(words[j], IMMEDIATE, get(words[j], IMMEDIATE) + rng.choice((16, -16, 8, 4)))
    return s.mutant(words, f"`{s.traced[j].text}` moves the cursor wrong", "effects")


def wrong_quad(s: Subject, rng: random.Random) -> Mutant | None:
    places = _stores(s)
    if not places:
        return None
    j, _ = rng.choice(places)
    words = s.words()
    words[j] = put(words[j], OFFSET, get(words[j], OFFSET) + rng.choice((16, -16, 4, 8)))
    return s.mutant(words, f"`{s.traced[j].text}` stores to another place of the packet", "effects")


def lost_store(s: Subject, rng: random.Random) -> Mutant | None:
    places = _stores(s)
    if not places:
        return None
    j, _ = rng.choice(places)
    words = s.words()
    words[j] = 0x7918 | 0xFE2 << 105 | words[j] & 0x3F << 116  # NOP that waits as the store did
    return s.mutant(words, f"no `{s.traced[j].text}`", "effects")


def capture_elsewhere(s: Subject, rng: random.Random) -> Mutant | None:
    """The clock goes to a register that the store does not read, or not there."""
    places = _captures(s)
    if not places:
        return None
    j, _ = rng.choice(places)
    words, here = s.words(), get(s.traced[j].word, DESTINATION)
    words[j] = put(words[j], DESTINATION, here ^ rng.choice((1, 2, 3)))
    return s.mutant(words, f"`{s.traced[j].text}` into the wrong register", "effects", "liveness", "hazards")


def clobbered_capture(s: Subject, rng: random.Random) -> Mutant | None:
    """Capture and store agree on a register that the kernel writes in between."""
    gpr, captures = s.model.layout["R"], _captures(s)
    found = []
    for store, end in _stores(s):
        first = get(s.traced[store].word, _DATA)
        width = {"64": 2, "128": 4}.get(s.traced[store].opcode.rsplit(".", 1)[-1], 1)
        for j, start in captures:
            part = get(s.traced[j].word, DESTINATION) - first
            if not (0 <= part < width and start < end) or any(
                s.code[k].flow is not Flow.FALL for k in range(start, end)
            ):
                continue
            for k in range(start, end):
                for n in gpr_numbers(gpr, s.code[k].writes):
                    if n % width == part and n != first + part:
                        found.append((j, store, n, part))
    if not found:
        return None
    j, store, n, part = rng.choice(found)
    words = s.words()
    words[j] = put(words[j], DESTINATION, n)
    words[store] = put(words[store], _DATA, n - part)
    return s.mutant(words, f"`{s.traced[j].text}` into R{n}, which the kernel overwrites", "effects", "liveness")


def gpr_numbers(gpr: object, bits: int) -> list[int]:
    return [n for n in range(255) if bits & gpr.bit(n)]  # type: ignore[attr-defined]


def early_store(s: Subject, rng: random.Random) -> Mutant | None:
    """A store changes places with a clock that it stores."""
    found = []
    for store, _ in _stores(s):
        reads = s.traced[store].reads
        found += [(j, store) for j, _ in _captures(s) if j < store and s.traced[j].writes & reads]
    if not found:
        return None
    j, store = rng.choice(found)
    words = s.words()
    words[j], words[store] = words[store], words[j]
    return s.mutant(words, f"`{s.traced[store].text}` before `{s.traced[j].text}`", "effects", "liveness", "hazards")


def lost_election(s: Subject, rng: random.Random) -> Mutant | None:
    """Election and store agree on a predicate that the kernel writes in between, or no longer agree."""
    elects = [(j, i) for j, i in s.probes if s.traced[j].base == "ELECT"]
    guarded = [(j, i) for j, i in _stores(s) if s.traced[j].guard]
    found = []
    for store, end in guarded:
        number = get(s.traced[store].word, _GUARD)
        before = [(j, i) for j, i in elects if j < store and get(s.traced[j].word, ELECTED) == number]
        if before:
            j, start = before[-1]
            written = 0
            for k in range(start, end):
                written |= s.code[k].writes
            found += [(j, store, p) for p in range(7) if written & s.model.layout["P"].bit(p) and p != number]
    words = s.words()
    if found:
        j, store, p = rng.choice(found)
        words[j] = put(words[j], ELECTED, p)
    elif guarded:
        store, _ = rng.choice(guarded)
        p = (get(s.traced[store].word, _GUARD) + rng.randrange(1, 7)) % 7
    else:
        return None
    words[store] = put(words[store], _GUARD, p)
    return s.mutant(words, f"`{s.traced[store].text}` under P{p}", "effects", "liveness", "hazards")


def late_cursor(s: Subject, rng: random.Random) -> Mutant | None:
    """The cursor moves behind the first store of the packet."""
    found = []
    for place in [j for j, i in s.probes if i and s.traced[j].base == "ULOP3"]:
        later = [store for store, _ in _stores(s) if store > place]
        if later:
            found.append((place, later[0]))
    if not found:
        return None
    place, store = rng.choice(found)
    words = s.words()
    words[place], words[store] = words[store], words[place]
    return s.mutant(words, f"`{s.traced[place].text}` behind its store", "effects", "hazards")


def slot_without_slack(s: Subject, rng: random.Random) -> Mutant | None:
    """The map promises that nothing wraps, but a store is in a loop."""
    if not _stores(s) or not s.claim["loops" if "loops" in s.claim else "packets"]:
        return None
    if s.claim["slot"]["stride"] == s.claim["slot"]["ring"]:
        return None
    slot = {**s.claim["slot"], "stride": s.claim["slot"]["ring"]}
    return s.file(
        s.data, "map says the slot has no room behind its ring", "effects", claim=lambda k: k.update(slot=slot)
    )


def lying_packets(s: Subject, rng: random.Random) -> Mutant | None:
    """The map has the sites of a packet in another order, or of two packets exchanged, or a packet too few."""
    packets = [{**p, "sites": list(p["sites"])} for p in s.claim["packets"]]
    if not packets:
        return None
    n = rng.randrange(len(packets))
    if len(packets[n]["sites"]) > 1:
        packets[n]["sites"].reverse()
    elif len(packets) > 1:
        m = (n + rng.randrange(1, len(packets))) % len(packets)
        packets[n]["sites"], packets[m]["sites"] = packets[m]["sites"], packets[n]["sites"]
    else:
        packets = []
    return s.file(s.data, f"map lies about packet {n}", "effects", claim=lambda k: k.update(packets=packets))


def _clears(s: Subject) -> list[int]:
    """Words by which a packet that goes over a back edge begins and ends with nothing in the places left out."""
    places = {0, *(p["flush"] // 16 for p in s.claim["packets"] if "flush" in p)}
    data = 0
    for j, i in _stores(s):
        data |= s.traced[j].reads & s.model.layout["R"].mask if i in places - {0} else 0
    moves = [j for j, i in s.probes if i in places and s.traced[j].base == "MOV" and s.traced[j].writes & data]
    return [j for j in moves if s.traced[j].word & 0xFFF == 0x802 and not get(s.traced[j].word, IMMEDIATE)]


def uncleared(s: Subject, rng: random.Random) -> Mutant | None:
    """A place of the first packet of a loop, or of its flush, holds something old."""
    places = _clears(s)
    if not places:
        return None
    j, words = rng.choice(places), s.words()
    if rng.random() < 0.5:
        words[j] = put(words[j], IMMEDIATE, rng.choice((1, 77)))
        return s.mutant(words, f"`{s.traced[j].text}` does not clear", "effects")
    words[j] = 0x7918 | 0xFE2 << 105 | words[j] & 0x3F << 116  # NOP that waits as the move did
    return s.mutant(words, f"no `{s.traced[j].text}`", "effects", "liveness")


def lying_flush(s: Subject, rng: random.Random) -> Mutant | None:
    """The map knows of no flush, or places it elsewhere."""
    packets = [dict(p) for p in s.claim["packets"]]
    flushed = [p for p in packets if "flush" in p]
    if not flushed:
        return None
    packet = rng.choice(flushed)
    if rng.random() < 0.5:
        del packet["flush"]
    else:
        packet["flush"] = rng.choice([packet["flush"] + 16, 0])
    return s.file(s.data, "map lies about a flush", "effects", claim=lambda k: k.update(packets=packets))


PACKET_MUTATORS: tuple[Mutator, ...] = (
    wrong_tag,
    wrong_count,
    wrong_offset,
    wrong_quad,
    lost_store,
    capture_elsewhere,
    clobbered_capture,
    early_store,
    lost_election,
    late_cursor,
    slot_without_slack,
    lying_packets,
    uncleared,
    lying_flush,
)
