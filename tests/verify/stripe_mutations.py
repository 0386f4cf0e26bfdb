"""Faults in striped slots and short clocks: wrong places, wrong halves, and maps that lie about them."""

from __future__ import annotations

import copy
import random
from typing import Any

from tests.verify.fields import DESTINATION, IMMEDIATE, A, C, get, put
from tests.verify.subject import Mutant, Mutator, Subject

__all__ = ["STRIPE_MUTATORS"]

_PROMISES = ("effects", "liveness", "hazards")


def _patched(s: Subject, value: str) -> list[int]:
    return [(p["offset"] - s.new.offset) // 16 for p in s.claim["patches"] if p["value"] == value]


def _cuts(s: Subject) -> list[int]:
    """Words that cut the offset to the ring, behind the prologue."""
    return [j for j, i in s.probes if i and s.traced[j].base == "ULOP3"]


def _halves(s: Subject) -> list[int]:
    return [j for j, _ in s.probes if s.traced[j].base in ("PRMT", "UPRMT")]


def wrong_mask(s: Subject, rng: random.Random) -> Mutant:
    """Also by a bit that the offset reaches only after a gigabyte."""
    j, words = rng.choice(_cuts(s)), s.words()
    mask = get(words[j], IMMEDIATE)
    words[j] = put(words[j], IMMEDIATE, mask ^ 1 << rng.choice((mask.bit_length() - 1, mask.bit_length(), 30, 31)))
    return s.mutant(words, f"`{s.traced[j].text}` with another mask", "effects")


def wrong_pitch(s: Subject, rng: random.Random) -> Mutant:
    """The number of slots is not filled in, that of another value is, or it is multiplied with something else."""
    j = rng.choice(_patched(s, "stripe_slots"))
    patches, how = copy.deepcopy(s.claim["patches"]), rng.randrange(3)
    patch = next(p for p in patches if (p["offset"] - s.new.offset) // 16 == j)
    words = s.words()
    if how == 0:
        patches.remove(patch)
        words[j] = put(words[j], IMMEDIATE, rng.choice((0, 1, 12, 1000)))
    elif how == 1:
        patch["value"] = rng.choice(("slot_count", "buffer_lo", "header_lo"))
    else:
        words[j] = put(words[j], A, get(words[j], A) ^ rng.choice((1, 2)))
    return s.mutant(
        words,
        f"`{s.traced[j].text}` with another factor ({how})",
        *_PROMISES,
        claim=lambda k: k.update(patches=patches),
    )


def wrong_base(s: Subject, rng: random.Random) -> Mutant:
    """Off by a packet, or by a slot that is not the warp's, or of another pair of registers."""
    words, how = s.words(), rng.randrange(3)
    own = get(words[_patched(s, "stripe_slots")[0]], C)
    slot = next(j for j, _ in s.probes if words[j] & 0xFFF == 0x8A5 and get(words[j], DESTINATION) == own)
    if how == 0:
        j = slot
        others = {0, 16, 32, 48, 64, s.claim["slot"]["ring"]} - {s.claim["slot"]["stripe"]}
        words[j] = put(words[j], IMMEDIATE, rng.choice(sorted(others)))
    else:
        j = rng.choice(_patched(s, "stripe_slots"))
        header = next(
            j for j, _ in s.probes if words[j] & 0xFFF == 0x8A5 and get(words[j], IMMEDIATE) == 32 and j != slot
        )
        other = get(words[header], DESTINATION) if how == 1 else own - 2
        words[j] = put(words[j], C, other & 0xFE)
    return s.mutant(words, f"`{s.traced[j].text}` with another base ({how})", *_PROMISES)


def wrong_selector(s: Subject, rng: random.Random) -> Mutant:
    """Halves exchanged, the high half of a clock for its low one, or one byte of another."""
    j, words = rng.choice(_halves(s)), s.words()
    words[j] = put(words[j], IMMEDIATE, rng.choice((0x1054, 0x7610, 0x5432, 0x5010, 0x3210, 0x7654, 0xD410, 0x5414)))
    return s.mutant(words, f"`{s.traced[j].text}` with another selector", "effects")


def other_half(s: Subject, rng: random.Random) -> Mutant:
    """A word gets the clock of another event, or two in the wrong order."""
    j, words = rng.choice(_halves(s)), s.words()
    low, high = get(words[j], A), get(words[j], C)
    if rng.random() < 0.5:
        words[j] = put(put(words[j], A, high), C, low)
    else:
        others = [other for k in _halves(s) if (other := get(words[k], C)) != high]
        words[j] = put(words[j], C, rng.choice(others or [low]))
    return s.mutant(words, f"`{s.traced[j].text}` with other halves", *_PROMISES)


def lost_half(s: Subject, rng: random.Random) -> Mutant:
    j, words = rng.choice(_halves(s)), s.words()
    words[j] = 0x7918 | words[j] & ~((1 << 105) - 1)
    return s.mutant(words, f"no `{s.traced[j].text}`", *_PROMISES)


def joined_too_early(s: Subject, rng: random.Random) -> Mutant | None:
    """Two clocks change places with what puts them together, or with what reads the result."""
    pairs = []
    for j in _halves(s):
        both = s.traced[j]
        clocks = [k for k, _ in s.probes if k < j and s.traced[k].base == "CS2R" and s.traced[k].writes & both.reads]
        users = [k for k, _ in s.probes if k > j and s.traced[k].base == "MOV" and s.traced[k].reads & both.writes]
        pairs += [(k, j) for k in clocks[-1:]] + [(j, k) for k in users[:1]]
    if not pairs:
        return None
    first, second = rng.choice(pairs)
    words = s.words()
    low = (1 << 105) - 1  # stalls stay where they are
    words[first], words[second] = words[first] & ~low | words[second] & low, words[second] & ~low | words[first] & low
    return s.mutant(words, f"`{s.traced[second].text}` before `{s.traced[first].text}`", *_PROMISES)


def lying_stripes(s: Subject, rng: random.Random) -> Mutant:
    slot: dict[str, Any] = dict(s.claim["slot"])
    other = {16: (32, 64), 32: (16, 64), 64: (16, 32)}[slot["stripe"]]
    change = rng.choice(("none", *other, 2 * slot["ring"], slot["ring"] // 2))
    if change == "none":
        del slot["stripe"]
    elif change in other:
        slot["stripe"] = change
    else:
        slot |= {"ring": change, "stride": change}
    return s.file(s.data, f"map says the slot is {slot}", "effects", claim=lambda k: k.update(slot=slot))


def lying_clocks(s: Subject, rng: random.Random) -> Mutant:
    packets = [dict(p) for p in s.claim["packets"]]
    packet = rng.choice([p for p in packets if "short_clocks" in p])
    if rng.random() < 0.5:
        del packet["short_clocks"]
    else:
        packet["sites"] = [*packet["sites"][:1], *reversed(packet["sites"][1:-1]), *packet["sites"][-1:]]
    return s.file(s.data, "map lies about short clocks", "effects", claim=lambda k: k.update(packets=packets))


STRIPE_MUTATORS: tuple[Mutator, ...] = (
    wrong_mask,
    wrong_pitch,
    wrong_base,
    wrong_selector,
    other_half,
    lost_half,
    joined_too_early,
    lying_stripes,
    lying_clocks,
)
