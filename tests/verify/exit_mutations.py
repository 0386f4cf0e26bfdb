"""Faults in front of exits: headers of lanes that go on, of nobody, elsewhere, or with a descriptor of their own."""

from __future__ import annotations

import copy
import random

from tests.verify.fields import IMMEDIATE, put
from tests.verify.subject import Mutant, Mutator, Subject

__all__ = ["EXIT_MUTATORS"]

_UNIFORM_SOURCE = (32, 8)


def _asking(s: Subject) -> list[int]:
    """Elections among the lanes that leave."""
    return [j for j, _ in s.probes if s.traced[j].base == "ELECT" and s.traced[j].reads & s.model.layout["P"].mask]


def _described(s: Subject) -> list[int]:
    return [j for j, _ in s.probes if "desc[" in s.traced[j].text]


def those_who_stay(s: Subject, rng: random.Random) -> Mutant | None:
    """The storing lane is one of those that go on: if none does, the warp leaves no header."""
    if not (found := _asking(s)):
        return None
    j, words = rng.choice(found), s.words()
    words[j] ^= 1 << 90
    return s.mutant(words, f"`{s.traced[j].text}` of the others", "effects")


def another_condition(s: Subject, rng: random.Random) -> Mutant | None:
    """The exit does not depend on this predicate."""
    if not (found := _asking(s)):
        return None
    j, words = rng.choice(found), s.words()
    words[j] ^= rng.randrange(1, 7) << 87
    if words[j] >> 87 & 7 == 7:  # any lane of the warp may write it, only earlier than necessary
        return None
    return s.mutant(words, f"`{s.traced[j].text}` by another predicate", "liveness", "effects")


def another_descriptor(s: Subject, rng: random.Random) -> Mutant | None:
    """Loading does not fill it in, or something else is written into it."""
    place = next((p for p in s.claim["patches"] if p["value"] == "header_policy"), None)
    if place is None:
        return None
    high, words, how = (place["offset"] - s.new.offset) // 16, s.words(), rng.randrange(3)
    patches = copy.deepcopy(s.claim["patches"])
    if how == 0:
        patches.remove(place)
        words[high] = put(words[high], IMMEDIATE, rng.choice((1, 0x12F00000, 1 << 31)))
    elif how == 1:
        own = s.traced[high].writes >> 1  # the lower half, which is moved in by its neighbour
        low = next(j for j, _ in s.probes if s.traced[j].base == "UMOV" and s.traced[j].writes == own)
        words[low] = put(words[low], IMMEDIATE, 1 << rng.randrange(32))
    else:
        next(p for p in patches if p["value"] == "header_policy")["value"] = rng.choice(("header_hi", "slot_count"))
    what = f"descriptor with another value ({how})"
    return s.mutant(words, what, "effects", "liveness", claim=lambda k: k.update(patches=patches))


def another_pair(s: Subject, rng: random.Random) -> Mutant | None:
    """The descriptor is in other registers."""
    if not (found := _described(s)):
        return None
    j, words = rng.choice(found), s.words()
    words[j] ^= rng.choice((2, 4, 8)) << 64
    return s.mutant(words, f"`{s.traced[j].text}` with another descriptor", "effects", "liveness", "hazards")


def another_address(s: Subject, rng: random.Random) -> Mutant | None:
    """The header's address is copied from elsewhere, or in half."""
    moves = []
    for _, island in s.islands:
        pairs = {s.traced[j].word >> 24 & 0xFF for j in island if "desc[" in s.traced[j].text}
        wanted = {f"R{r + k}" for r in pairs for k in range(2)}
        moves += [j for j in island if s.traced[j].base == "MOV" and s.traced[j].text.split()[1].rstrip(",") in wanted]
    if not moves:
        return None
    j, words = rng.choice(moves), s.words()
    words[j] ^= rng.choice((1, 2, 4)) << _UNIFORM_SOURCE[0]
    return s.mutant(words, f"`{s.traced[j].text}` from elsewhere", "effects", "liveness")


EXIT_MUTATORS: tuple[Mutator, ...] = (
    those_who_stay,
    another_condition,
    another_descriptor,
    another_pair,
    another_address,
)
