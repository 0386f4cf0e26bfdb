"""Recorded addresses: what the original says an access's address is, and what the map must say about it.

The address is stated from the disassembled text alone. A kernel register keeps a made-up value in the dry run until a
kernel instruction writes it, so whatever a probe reads elsewhere, too late or from another register shows.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from xtrace.isa.model import Flow, Instruction
from xtrace.verify import exits
from xtrace.verify.certificate import Promise
from xtrace.verify.emulate import Warp
from xtrace.verify.pair import Pair

__all__ = ["Access", "access_at", "accesses_of", "read_registers", "register_bits", "written"]

_EFFECTS = Promise.EFFECTS
_PAIR = re.compile(r"(?:desc\[UR\d+\])?\[R(\d+)\.64(?:\+(-?0x[0-9a-f]+))?\]")
_UNIFORM = re.compile(r"(?:desc\[UR\d+\])?\[(?:R(\d+|Z)\.U32\+)?UR(\d+)(?:\+(-?0x[0-9a-f]+))?\]")
_MNEMONICS = ("LDG", "LD", "STG", "ST", "LDGSTS", "ATOMG", "ATOM", "REDG", "RED")


@dataclass(frozen=True, slots=True)
class Access:
    """An access whose address an island before original instruction ``at`` reads."""

    at: int
    terms: tuple[tuple[str, ...], ...]  # registers that are added up, low half first
    conditions: tuple[str, ...]  # e.g. "P0", "!P3": all must hold
    offset: int  # added by readers
    made_with: int | None  # number of the site that tells whether this access was made

    @property
    def registers(self) -> tuple[str, ...]:
        return (*(name for term in self.terms for name in term), *(c.lstrip("!") for c in self.conditions))

    def observe(self, warp: Warp, known: set[str], rng: random.Random, wish: bool | None) -> tuple[int, bool]:
        """Address without offset and whether the access is made, as the kernel's registers say now.

        Registers that nobody has written since they were last observed keep their value; ``known`` is the list of them.
        ``wish``: whether the access is to be made, as far as its predicates are not known; None: at random.
        """
        for name in self.registers:
            if name not in known or name not in warp.registers:
                known.add(name)
                if name.startswith("P"):
                    made = rng.random() < 0.5 if wish is None else wish
                    warp.registers[name] = int(made is (name in self.conditions))
                else:  # high halves of device addresses are never 0; low halves may be
                    high = any(len(term) == 2 and term[1] == name for term in self.terms)
                    warp.registers[name] = 0 if rng.random() < 0.1 and not high else rng.randrange(1, 1 << 20)
        total = sum(warp.registers[n] << 32 * k for term in self.terms for k, n in enumerate(term))
        made = all(warp.registers[c.lstrip("!")] != c.startswith("!") for c in self.conditions)
        return total & (1 << 64) - 1, made


def written(ins: Instruction, layout: Any) -> int:
    """Registers that an instruction may change; the model lists the predicate of LDGSTS, which is only read."""
    return ins.writes & ~layout["P"].mask if ins.base == "LDGSTS" else ins.writes


def accesses_of(pair: Pair) -> dict[int, Access] | None:
    """Accesses by site number; None after a finding."""
    found: dict[int, Access] = {}
    sites = [s for s in (pair.claim or {}).get("sites") or () if s.get("probe", "time") in ("address", "value")]
    for site in sites:
        access = access_at(pair, site)
        if isinstance(access, str):
            pair.fail(_EFFECTS, f"map: site {site.get('id')} {access}")
            return None
        found[site["id"]] = access
    for number, access in found.items():
        other = None if access.made_with is None else found.get(access.made_with)
        if access.made_with is not None and (other is None or other.conditions != access.conditions):
            pair.fail(_EFFECTS, f"map: site {number} is made with site {access.made_with}, which has another condition")
            return None
    return found


def _value(pair: Pair, site: Mapping[str, Any]) -> Access | str:
    """Registers that are recorded for themselves are like an address that every lane uses."""
    claim, at = site.get("value"), site.get("at")
    registers = claim.get("registers") if isinstance(claim, Mapping) else None
    if not isinstance(registers, list) or len(registers) not in (1, 2) or type(site.get("id")) is not int:
        return "has no registers or number"
    if not all(isinstance(r, str) and re.fullmatch(r"R(\d|[1-9]\d|1\d\d|2[0-4]\d|25[0-4])", r) for r in registers):
        return "is a value of something that is no general register"
    if at != site["pc"] or at % pair.word_bytes or not 0 <= at // pair.word_bytes < len(pair.original.code):
        return "stands at no instruction"
    return Access(at // pair.word_bytes, (tuple(registers),), (), 0, None)


def access_at(pair: Pair, site: Mapping[str, Any]) -> Access | str:
    """The access or value that a site of the map claims to be, or what is wrong with that."""
    if site.get("probe") == "value":
        return _value(pair, site)
    code, size = pair.original.code, pair.word_bytes
    claim, pc, at = site.get("address"), site["pc"], site.get("at")
    if not isinstance(claim, Mapping) or type(site.get("id")) is not int or type(at) is not int:
        return "has no address, number or place"
    if pc % size or at % size or not 0 <= pc // size < len(code) or not 0 <= at // size < len(code):
        return "stands at no instruction"
    index, place = pc // size, at // size
    stated = _stated(code[index])
    if stated is None:
        return f"is no access with an address that can be stated: {code[index].text}"
    terms, conditions, offset = stated
    if claim.get("offset") != offset or claim.get("conditional") is not bool(conditions):
        return f"does not have offset or condition of {code[index].text}"
    made_with = claim.get("made_with")
    if type(made_with) not in (int, type(None)):
        return "is made with something that is no site"
    access = Access(place, terms, conditions, offset, made_with)
    low, high = sorted((index, place))
    names = set(access.registers)
    for i in range(low, high):
        if pair.original.block_of[i] != pair.original.block_of[high] or code[i].flow is not Flow.FALL:
            return "is recorded in another basic block than its access"
        if hit := names & set(pair.isa.layout.names(written(code[i], pair.isa.layout))):
            return f"is recorded where {sorted(hit)[0]} is no longer, or not yet, what the access reads"
    return access


def _stated(ins: Instruction) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...], int] | None:
    """Registers to add up, conditions and offset, from the text."""
    text = ins.text.split(" ", 1)[1] if ins.text.startswith("@") else ins.text
    opcode, _, rest = text.partition(" ")
    operands = [x.strip() for x in rest.split(",")]
    base = opcode.split(".")[0]
    memory = [x for x in operands if "[" in x]
    if base not in _MNEMONICS or ".E" not in f"{opcode}." or len(memory) != (2 if base == "LDGSTS" else 1):
        return None
    conditions = [ins.guard.removeprefix("@")] if ins.guard else []
    if base == "LDGSTS":
        conditions += operands[2:]
    if not all(re.fullmatch(r"!?P[0-6]", c) for c in conditions):
        return None
    if match := _PAIR.fullmatch(memory[-1]):
        low = int(match[1])
        return ((f"R{low}", f"R{low + 1}"),), tuple(conditions), int(match[2] or "0", 16)
    if match := _UNIFORM.fullmatch(memory[-1]):
        low = int(match[2])
        wide = (f"UR{low}", f"UR{low + 1}")
        terms = (wide,) if match[1] in (None, "Z") else (wide, (f"R{match[1]}",))
        return terms, tuple(conditions), int(match[3] or "0", 16)
    return None


def register_bits(pair: Pair, accesses: Iterable[Access]) -> int:
    """Registers of these accesses as a bit set."""
    bits = 0
    for name in {name for access in accesses for name in access.registers}:
        kind = name.rstrip("0123456789")
        bits |= pair.isa.layout[kind].bit(int(name[len(kind) :]))
    return bits


def read_registers(pair: Pair) -> dict[int, int]:
    """Kernel registers that each probe word may read: those of the access that its island records, and the guard of an
    EXIT behind it.
    """
    allowed: dict[int, int] = {}
    at = {a.at: a for s in (pair.claim or {}).get("sites") or () if isinstance(a := _maybe(pair, s), Access)}
    for i, island in pair.align.islands():
        if i in at:
            allowed.update(dict.fromkeys(island, register_bits(pair, [at[i]])))
    for j, bits in exits.read_registers(pair).items():
        allowed[j] = allowed.get(j, 0) | bits
    return allowed


def _maybe(pair: Pair, site: Mapping[str, Any]) -> Access | str:
    return access_at(pair, site) if site.get("probe", "time") in ("address", "value") else "none"
