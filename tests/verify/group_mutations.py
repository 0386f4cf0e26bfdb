"""Faults that only a second group of lanes, or a wait shared with the kernel, brings out."""

from __future__ import annotations

import random

from tests.verify.fields import WAIT, put
from tests.verify.subject import Mutant, Subject
from xtrace.analysis import KernelAnalysis
from xtrace.isa.model import Flow

__all__ = ["GROUP_MUTATORS"]

_NOP = 0x7918


def _apart(s: Subject) -> list[range]:
    """Islands with a store where, by the splicer's own analysis, another lane group may run."""
    a = KernelAnalysis(s.old, s.model, s.code, s.label)
    records = {site["pc"] // 16 for site in s.claim["sites"] if site["id"] is not None}
    a = a.probing(records)
    places = [island for i, island in s.islands if i and i in records and a.divergent[i]]
    return [x for x in places if any(s.traced[j].base == "STG" for j in x)]


def deferred_wait(s: Subject, rng: random.Random) -> Mutant | None:
    """A store that is left under way although another lane group may move the address."""
    places = [x for x in _apart(s) if s.traced[x[-1]].base == "NOP" and s.traced[x[-1]].control.wait_mask]
    if not places:
        return None
    j = rng.choice(places)[-1]
    words = s.words()
    words[j] = put(words[j], WAIT, 0)
    return s.mutant(words, f"store not waited for at {s.traced[j].pc:#x}", "hazards")


def stale_address(s: Subject, rng: random.Random) -> Mutant | None:
    """A store where lanes may be apart through the address that some earlier packet had."""
    places = [(x, [j for j in x if s.traced[j].base == "ULOP3"]) for x in _apart(s)]
    places = [(x, moves) for x, moves in places if moves]
    if not places:
        return None
    _, moves = rng.choice(places)
    words = s.words()
    words[moves[0]] = words[moves[0]] & 0x1FFFFF << 105 | _NOP
    return s.mutant(words, f"no new address at {s.traced[moves[0]].pc:#x}", "hazards", "effects")


def unshared_wait(s: Subject, rng: random.Random) -> Mutant | None:
    """A probe that does not wait along with the instruction at its site, although it needs the same register."""
    places = []
    for j, i in s.probes:
        shared = s.traced[j].control.wait_mask & s.code[i].control.wait_mask
        claimed = 0
        for k in next(island for at, island in s.islands if at == i):
            if k < j:
                claimed |= sum(
                    1 << x for x in (s.traced[k].control.read_sb, s.traced[k].control.write_sb) if x is not None
                )
        if shared & ~claimed and s.traced[j].base != "NOP" and s.code[i].flow is Flow.FALL:
            places.append((j, s.traced[j].control.wait_mask & ~(shared & ~claimed)))
    if not places:
        return None
    j, left = rng.choice(places)
    words = s.words()
    words[j] = put(words[j], WAIT, left)
    return s.mutant(words, f"does not wait at {s.traced[j].pc:#x}", "hazards", "liveness")


GROUP_MUTATORS = (deferred_wait, stale_address, unshared_wait)
