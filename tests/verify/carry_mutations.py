"""Faults on the way of clocks from register to register: overwritten, read before they arrive, parked too late."""

from __future__ import annotations

import random

from tests.verify.fields import DESTINATION, STALL, A, C, get, put
from tests.verify.subject import Mutant, Mutator, Subject
from xtrace.isa.model import Flow

__all__ = ["CARRY_MUTATORS"]

_SOURCES = {"R2UR": (A,), "PRMT": (A, C), "MOV": ((32, 8),)}
_FORMS = {"R2UR": 0x2CA, "PRMT": 0x816, "MOV": 0x202}  # those that read general registers
_PROMISES = ("effects", "liveness", "hazards")


def _steps(s: Subject) -> list[tuple[int, int, int, tuple[int, int], int]]:
    """(clock read, its site, step that reads the register, field that names it, site of the step)."""
    found = []
    for k, (j, i) in enumerate(s.probes):
        ins = s.traced[j]
        if not i or ins.word & 0xFFF != _FORMS.get(ins.base):
            continue
        for field in _SOURCES[ins.base]:
            register = get(ins.word, field)
            written = [
                (n, at) for n, at in s.probes[:k] if at and s.traced[n].writes >> register & 1 and register != 255
            ]
            if written and s.traced[written[-1][0]].base == "CS2R":
                found.append((*written[-1], j, field, i))
    return found


def overwritten_between(s: Subject, rng: random.Random) -> Mutant | None:
    """A clock that is read in between goes to the register of one that waits there to be carried on."""
    found = []
    for first, _, step, field, _ in _steps(s):
        register = get(s.traced[step].word, field)
        clocks = (j for j, i in s.probes if i and first < j < step and s.traced[j].base == "CS2R")
        found += [(j, register) for j in clocks if "SR_CLOCKLO" in s.traced[j].text]
    if not found:
        return None
    j, register = rng.choice(found)
    words = s.words()
    words[j] = put(words[j], DESTINATION, register)
    return s.mutant(words, f"`{s.traced[j].text}` into R{register}, which holds another clock", *_PROMISES)


def reused_by_the_kernel(s: Subject, rng: random.Random) -> Mutant | None:
    """A clock waits in a register that the kernel writes before the clock is carried on."""
    found = []
    for first, start, step, field, end in _steps(s):
        if any(s.code[k].flow is not Flow.FALL for k in range(start, end)):
            continue
        written = 0
        for k in range(start, end):
            written |= s.code[k].writes if not s.code[k].guard else 0
        found += [(first, step, field, n) for n in range(255) if written >> n & 1]
    if not found:
        return None
    first, step, field, register = rng.choice(found)
    words = s.words()
    words[first] = put(words[first], DESTINATION, register)
    words[step] = put(words[step], field, register)
    return s.mutant(words, f"R{register} between `{s.traced[first].text}` and `{s.traced[step].text}`", *_PROMISES)


def carried_too_early(s: Subject, rng: random.Random) -> Mutant | None:
    """A step reads a clock that is read right in front of it: too early by its latency."""
    places = []
    for j, i in s.probes:
        ins = s.traced[j]
        if not i or ins.word & 0xFFF != _FORMS.get(ins.base) or s.traced[j - 1].base != "CS2R":
            continue
        places += [(j, field) for field in _SOURCES[ins.base]]
    if not places:
        return None
    j, field = rng.choice(places)
    words = s.words()
    words[j] = put(words[j], field, get(words[j - 1], DESTINATION))
    words[j - 1] = put(words[j - 1], STALL, 17)
    return s.mutant(words, f"`{s.traced[j].text}` reads `{s.traced[j - 1].text}` at once", *_PROMISES)


def wrong_source(s: Subject, rng: random.Random) -> Mutant | None:
    """A step carries on what another register holds."""
    steps = _steps(s)
    if not steps:
        return None
    _, _, step, field, _ = rng.choice(steps)
    words = s.words()
    words[step] = put(words[step], field, get(words[step], field) ^ rng.choice((1, 2, 4, 8)))
    return s.mutant(words, f"`{s.traced[step].text}` reads another register", *_PROMISES)


def lost_step(s: Subject, rng: random.Random) -> Mutant | None:
    """A clock is not carried on."""
    steps = _steps(s)
    if not steps:
        return None
    _, _, step, _, _ = rng.choice(steps)
    words = s.words()
    words[step] = 0x7918 | words[step] & ~((1 << 105) - 1)
    return s.mutant(words, f"no `{s.traced[step].text}`", *_PROMISES)


CARRY_MUTATORS: tuple[Mutator, ...] = (
    overwritten_between,
    reused_by_the_kernel,
    carried_too_early,
    wrong_source,
    lost_step,
)
