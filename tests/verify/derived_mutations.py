"""Faults in derived addresses: maps that lie about what follows from what, and values recorded from elsewhere."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

from tests.verify.subject import Mutant, Mutator, Subject

__all__ = ["DERIVED_MUTATORS"]

_MOV, _WIDE = 0x202, 0x225
_SOURCE = {_MOV: 32, _WIDE: 64}  # first bit of the register that is copied
_PROMISES = ("effects", "liveness", "hazards", "instructions")
Change = Callable[[random.Random, list[Any], Subject], bool]


def _lie(s: Subject, rng: random.Random, what: str, change: Change) -> Mutant | None:
    derived = copy.deepcopy(s.claim["derived"])
    if not change(rng, derived, s):
        return None
    return s.file(s.data, what, *_PROMISES, claim=lambda k: k.update(derived=derived))


def lying_factor(s: Subject, rng: random.Random) -> Mutant | None:
    def change(rng: random.Random, derived: list[Any], s: Subject) -> bool:
        term = rng.choice([t for d in derived for t in d["terms"]])
        term["times"] = rng.choice((-term["times"], term["times"] + 1, 2 * term["times"]))
        return True

    return _lie(s, rng, "map has another factor", change)


def lying_constant(s: Subject, rng: random.Random) -> Mutant | None:
    def change(rng: random.Random, derived: list[Any], s: Subject) -> bool:
        rng.choice(derived)["offset"] += rng.choice((-16, 1, 128, 1 << 32))
        return True

    return _lie(s, rng, "map has another constant", change)


def lying_leader(s: Subject, rng: random.Random) -> Mutant | None:
    def change(rng: random.Random, derived: list[Any], s: Subject) -> bool:
        item = rng.choice(derived)
        others = [x["id"] for x in s.claim["sites"] if x["probe"] == "address" and x["id"] != item["from"]]
        item["from"] = rng.choice([*others, item["id"]])
        return True

    return _lie(s, rng, "map names another leader", change)


def lying_term(s: Subject, rng: random.Random) -> Mutant | None:
    def change(rng: random.Random, derived: list[Any], s: Subject) -> bool:
        term = rng.choice([t for d in derived for t in d["terms"]])
        if rng.random() < 0.5:
            others = [x["id"] for x in s.claim["sites"] if x["probe"] == "value" and x["id"] != term["site"]]
            term["site"] = rng.choice(others)
        else:
            term["part"] = {"low": "high", "high": "low", "pair": "low"}[term["part"]]
        return True

    return _lie(s, rng, "map has a term of another word", change)


def lying_sign(s: Subject, rng: random.Random) -> Mutant | None:
    def change(rng: random.Random, derived: list[Any], s: Subject) -> bool:
        terms = [t for d in derived for t in d["terms"] if t["part"] != "pair"]
        if not terms:
            return False
        term = rng.choice(terms)
        term["signed"] = not term["signed"]
        return True

    return _lie(s, rng, "map extends a word in another way", change)


def lost_term(s: Subject, rng: random.Random) -> Mutant | None:
    def change(rng: random.Random, derived: list[Any], s: Subject) -> bool:
        item = rng.choice([d for d in derived if d["terms"]])
        item["terms"].remove(rng.choice(item["terms"]))
        return True

    return _lie(s, rng, "map leaves out a term", change)


def lying_access(s: Subject, rng: random.Random) -> Mutant | None:
    """What is said of one access is true of another: perhaps under another condition."""

    def change(rng: random.Random, derived: list[Any], s: Subject) -> bool:
        one, other = rng.sample(derived, 2)
        for key in ("pc", "at", "address"):
            one[key], other[key] = other[key], one[key]
        same = {str((d["from"], d["offset"], d["terms"])) for d in (one, other)}
        return len(same) > 1

    return _lie(s, rng, "map exchanges two derived accesses", change)


def lying_values(s: Subject, rng: random.Random) -> Mutant | None:
    """The map says that another register was recorded."""
    sites = copy.deepcopy(s.claim["sites"])
    site = rng.choice([x for x in sites if x["probe"] == "value"])
    number = rng.randrange(len(site["value"]["registers"]))
    old = site["value"]["registers"][number]
    site["value"]["registers"][number] = f"R{(int(old[1:]) + rng.choice((1, 2, 7))) % 200}"
    return s.file(s.data, f"map names another register for {old}", *_PROMISES, claim=lambda k: k.update(sites=sites))


def wrong_value(s: Subject, rng: random.Random) -> Mutant | None:
    """A word is recorded from another register, and the map knows."""
    values = {x["at"] // 16: x["id"] for x in s.claim["sites"] if x["probe"] == "value"}
    found = [(j, i) for j, i in s.probes if i in values and s.traced[j].word & 0xFFF == _MOV]
    if not found:
        return None
    j, i = rng.choice(found)
    words, at = s.words(), _SOURCE[_MOV]
    old = words[j] >> at & 0xFF
    new = old ^ rng.choice((1, 2, 4))
    words[j] = words[j] & ~(0xFF << at) | new << at
    sites = copy.deepcopy(s.claim["sites"])
    if rng.random() < 0.7:
        registers = next(x["value"]["registers"] for x in sites if x["id"] == values[i])
        registers[:] = [f"R{new}" if r == f"R{old}" else r for r in registers]
    what = f"`{s.traced[j].text}` records R{new}"
    return s.mutant(words, what, *_PROMISES, claim=lambda k: k.update(sites=sites))


DERIVED_MUTATORS: tuple[Mutator, ...] = (
    lying_factor,
    lying_constant,
    lying_leader,
    lying_term,
    lying_sign,
    lost_term,
    lying_access,
    lying_values,
    wrong_value,
)
