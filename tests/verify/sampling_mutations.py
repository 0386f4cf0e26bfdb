"""Faults to plant in a sampled kernel: in its second copy, in the decision, and in what the map says about both."""

from __future__ import annotations

import random
from typing import Any

from tests.verify.subject import CODE, Mutant, Mutator, Subject
from xtrace.image import eiattr
from xtrace.isa.model import Flow, Instruction

_IMMEDIATE = 0xFFFFFFFF << 32
_GUARD = 0xF << 12


def copy_of(s: Subject) -> range:
    first = s.claim["copy"]["pc"] // 16
    return range(first, first + s.claim["copy"]["words"])


def branch_of(s: Subject) -> Instruction:
    """The branch of the decision."""
    return next(s.traced[j] for j, i in s.probes if i == 0 and s.traced[j].base == "BRA")


def bit_of_the_copy(s: Subject, rng: random.Random) -> Mutant:
    words, j, bit = s.words(), rng.choice(copy_of(s)), rng.randrange(128)
    words[j] ^= 1 << bit
    return s.mutant(words, f"bit {bit} of the copy's `{s.traced[j].text}`", "instructions", "targets")


def words_of_the_copy_swapped(s: Subject, rng: random.Random) -> Mutant | None:
    words, copy = s.words(), copy_of(s)
    k = rng.choice([j for j in copy[:-1] if words[j] != words[j + 1]])
    words[k], words[k + 1] = words[k + 1], words[k]
    return s.mutant(words, f"swapped two words of the copy at {16 * k:#x}", "instructions")


def branch_of_the_copy_leaves_it(s: Subject, rng: random.Random) -> Mutant:
    """As if the copy's branches had been brought along with the traced code."""
    words, copy = s.words(), copy_of(s)
    j = rng.choice([j for j in copy if s.traced[j].target is not None])
    goal = s.traced[s.position[j - copy.start]].target
    words[j] = s.model.retarget(words[j], 16 * j, 16 * j, goal)
    return s.mutant(words, f"the copy's `{s.traced[j].text}` goes to {goal:#x}", "instructions", "targets")


def kernel_branch_into_the_copy(s: Subject, rng: random.Random) -> Mutant:
    words, copy = s.words(), copy_of(s)
    i = rng.choice([i for i, ins in enumerate(s.code) if ins.target is not None and ins.flow is Flow.BRANCH])
    j, goal = s.position[i], copy.start * 16 + (s.code[i].target or 0)
    words[j] = s.model.retarget(words[j], 16 * j, 16 * j, goal)
    return s.mutant(words, f"traced `{s.traced[j].text}` goes on in the copy at {goal:#x}", "targets")


def decision_elsewhere(s: Subject, rng: random.Random) -> Mutant:
    words, branch, copy = s.words(), branch_of(s), copy_of(s)
    goal = 16 * rng.choice((copy.start + 1, copy.start - 1, rng.choice(copy[1:]), 0, s.position[1]))
    words[branch.index] = s.model.retarget(branch.word, branch.pc, branch.pc, goal)
    return s.mutant(words, f"decision leads to {goal:#x}", *CODE)


def decision_reversed(s: Subject, rng: random.Random) -> Mutant:
    words, j = s.words(), branch_of(s).index
    words[j] ^= 8 << 12
    return s.mutant(words, "warps that are sampled leave, the others are traced", "effects")


def decision_for_all(s: Subject, rng: random.Random) -> Mutant:
    words, j = s.words(), branch_of(s).index
    words[j] = words[j] & ~_GUARD | 7 << 12
    return s.mutant(words, "every warp leaves", *CODE)


def decision_by_another_predicate(s: Subject, rng: random.Random) -> Mutant:
    words, j = s.words(), branch_of(s).index
    words[j] ^= rng.randrange(1, 7) << 12
    return s.mutant(words, "decision reads another predicate", *CODE)


def decision_by_other_numbers(s: Subject, rng: random.Random) -> Mutant | None:
    """A constant of the arithmetic is another one.

    Of a test for one bit only that bit is taken away: looking at a second one as well may come to the same.
    """
    end = branch_of(s).index
    places = [j for j in range(end) if s.traced[j].base in ("ULOP3", "UIADD3") and s.traced[j].word & _IMMEDIATE]
    places += [j for j in range(end) if s.traced[j].base == "UIMAD" and s.traced[j].word & 0xFFF == 0x8A4]
    places = [j for j in places if j > 0 and "0x1f" not in s.traced[j].text]  # not the rounding of the block size
    if not places:
        return None
    words, j = s.words(), rng.choice(places)
    words[j] ^= 1 << 32 + (0 if words[j] >> 32 & 0xFFFFFFFF == 1 else rng.randrange(4))
    return s.mutant(words, f"other constant in `{s.traced[j].text}`", "effects")


def decision_by_another_test(s: Subject, rng: random.Random) -> Mutant:
    words, end = s.words(), branch_of(s).index
    j = rng.choice([j for j in range(end) if s.traced[j].base == "ISETP"])
    words[j] ^= 7 << 76  # equal or not: and so on
    return s.mutant(words, f"other comparison in `{s.traced[j].text}`", *CODE)


def decision_too_early(s: Subject, rng: random.Random) -> Mutant:
    words, end = s.words(), branch_of(s).index
    j = rng.choice([j for j in range(end) if s.traced[j].control.stall >= 4])
    words[j] = words[j] & ~(0x1F << 105) | 17 << 105
    return s.mutant(words, f"stall 1 at `{s.traced[j].text}`", "hazards")


def way_over_the_copy_elsewhere(s: Subject, rng: random.Random) -> Mutant:
    """Warps that are traced go on at another instruction, or fall into the copy."""
    words, copy = s.words(), copy_of(s)
    over = next(ins for ins in s.traced[: copy.start] if ins.base == "BRA" and not ins.guard)
    goal = rng.choice((copy.start, copy.stop - 1, copy.stop + 1, rng.choice(copy), over.index + 1, over.index - 1))
    words[over.index] = s.model.retarget(over.word, over.pc, over.pc, 16 * goal)
    return s.mutant(words, f"way over the copy leads to {16 * goal:#x}", *CODE)


def patch_of_the_copy(s: Subject, rng: random.Random) -> Mutant | None:
    """Loading would fill in an immediate of the untouched copy."""
    free = [j for j in copy_of(s) if not s.traced[j].word & _IMMEDIATE]
    if not free:
        return None
    at = s.new.offset + 16 * rng.choice(free) + 4

    def change(claim: dict[str, Any]) -> None:
        claim["patches"].append(claim["patches"][0] | {"offset": at})

    return s.file(s.data, f"the map patches the copy at file offset {at:#x}", "effects", claim=change)


def second_way_into_the_copy(s: Subject, rng: random.Random) -> Mutant | None:
    later = [j for j, i in s.probes if i > 0 and s.traced[j].base == "NOP"] or [j for j, i in s.probes if i > 0]
    words, j = s.words(), rng.choice(later)
    branch = branch_of(s)
    words[j] = s.model.retarget(branch.word, 16 * j, 16 * j, branch.target)
    return s.mutant(words, f"another branch into the copy at {16 * j:#x}", *CODE)


def rule_of_the_map(s: Subject, rng: random.Random) -> Mutant:
    def change(claim: dict[str, Any]) -> None:
        rule = claim["sample"]
        match rng.randrange(3):
            case 0:
                rule["cta_every"] += 1
            case 1:
                rule["cta_every"], rule["cta_offset"] = rule["cta_every"] + 1, rule["cta_every"]
            case _:
                rule["warps"] = [0, 1, 2, 3, 8, 9, 10, 11] if rule["warps"] is None else None

    return s.file(s.data, "the map has another rule", "effects", claim=change)


def rule_missing_in_the_map(s: Subject, rng: random.Random) -> Mutant:
    return s.file(s.data, "the map has no rule", "targets", claim=lambda claim: claim.pop("sample"))


def place_of_the_copy_in_the_map(s: Subject, rng: random.Random) -> Mutant:
    key, step = rng.choice((("pc", 16), ("pc", -16), ("words", 1), ("words", -1)))

    def change(claim: dict[str, Any]) -> None:
        claim["copy"][key] += step

    return s.file(s.data, f"the map's {key} of the copy is off by {step}", *CODE, claim=change)


def copy_missing_in_the_map(s: Subject, rng: random.Random) -> Mutant:
    return s.file(s.data, "the map has no copy", *CODE, claim=lambda claim: claim.pop("copy"))


def list_of_the_copy(s: Subject, rng: random.Random) -> Mutant | None:
    """A list of instructions names a wrong one of the copy."""
    lists = [r for r in s.new.info if eiattr.CARRIES.get(r.attr) is eiattr.Carries.OFFSETS and r.payload]
    if not lists:
        return None
    record = rng.choice(lists)
    half = len(record.payload) // 2
    at = record.payload_offset + half + 4 * rng.randrange(half // 4)
    data = bytearray(s.data)
    value = int.from_bytes(data[at : at + 4], "little") + rng.choice((16, -16, -16 * copy_of(s).start))
    data[at : at + 4] = value.to_bytes(4, "little", signed=False)
    return s.file(bytes(data), f"{eiattr.attribute_name(record.attr)} names {value:#x} of the copy", "targets")


SAMPLING_MUTATORS: tuple[Mutator, ...] = (
    bit_of_the_copy,
    words_of_the_copy_swapped,
    branch_of_the_copy_leaves_it,
    kernel_branch_into_the_copy,
    decision_elsewhere,
    decision_reversed,
    decision_for_all,
    decision_by_another_predicate,
    decision_by_other_numbers,
    decision_by_another_test,
    decision_too_early,
    way_over_the_copy_elsewhere,
    patch_of_the_copy,
    second_way_into_the_copy,
    rule_of_the_map,
    rule_missing_in_the_map,
    place_of_the_copy_in_the_map,
    copy_missing_in_the_map,
    list_of_the_copy,
)
