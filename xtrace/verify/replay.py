"""Derived addresses once more, with numbers: the original kernel's integer arithmetic on made-up registers.

Along random ways, loops several times around, every instruction below computes what hardware would; whatever else
writes registers writes random bits. At each derived access the address that it has must be what a reader would make
of the words recorded on the way. This shares neither code nor algebra with :mod:`xtrace.verify.sums`, and knows
nothing of linear forms: a mistake there would have to be made here too.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from xtrace.isa.model import Instruction
from xtrace.verify.accesses import Access, written
from xtrace.verify.pair import Pair
from xtrace.verify.walks import BlockGraph

__all__ = ["Recorded", "replay"]

Recorded = Mapping[int, tuple[Access, Mapping[str, Any]]]  # sites with an address or value, by number
_M32, _M64 = 0xFFFFFFFF, (1 << 64) - 1
_ROUNDS = 3  # of a loop
_TIMES = 2  # each way, with other registers


class _Unknown(Exception):  # noqa: N818 - a verdict on an instruction, not a fault
    """Not among the arithmetic that is computed."""


def replay(pair: Pair, claims: Sequence[Mapping[str, Any]], recorded: Recorded) -> dict[int, str]:
    """What is wrong, by number of the derived access."""
    program, size = pair.original, pair.word_bytes
    layout = pair.isa.layout
    words = [_Word.of(ins, layout.names(bits) if (bits := written(ins, layout)) else []) for ins in program.code]
    graph = BlockGraph(program)
    accessed: dict[int, list[Mapping[str, Any]]] = {}
    due: dict[int, list[Mapping[str, Any]]] = {}
    for claim in claims:
        accessed.setdefault(claim["pc"] // size, []).append(claim)
        due.setdefault(claim["at"] // size, []).append(claim)
    places: dict[int, list[tuple[int, Access]]] = {}
    for number, (access, _) in recorded.items():
        places.setdefault(access.at, []).append((number, access))
    wrong: dict[int, str] = {}
    rng = random.Random(len(program.code))
    wanted = {program.block_of[i] for i in accessed}
    for walk in graph.walks(wanted, rng) * _TIMES:
        lane = _Lane(rng)
        seen: dict[int, tuple[int, ...]] = {}
        made: dict[int, int] = {}
        for i in _steps(graph, [*walk.lead, *list(walk.tour) * _ROUNDS, *walk.tail]):
            for number, access in places.get(i, ()):
                seen[number] = tuple(lane.get(name) for term in access.terms for name in term)
            for claim in accessed.get(i, ()):
                made[claim["id"]] = lane.address(program.code[i])
            for claim in due.get(i, ()):
                off = _mismatch(claim, recorded, seen, made)
                if off is not None:
                    wrong.setdefault(claim["id"], f"is {off:#x} off in a run on made-up registers")
            lane.run(words[i])
    return wrong


def _steps(graph: BlockGraph, blocks: Sequence[int]) -> Iterator[int]:
    for n in blocks:
        yield from graph.blocks[n]


def _mismatch(
    claim: Mapping[str, Any], recorded: Recorded, seen: Mapping[int, tuple[int, ...]], made: Mapping[int, int]
) -> int | None:
    """By how much a reader would be wrong; None: not at all, or it would know that it does not know."""
    terms = claim.get("terms") or ()
    needed = [claim["from"], *(term["site"] for term in terms)]
    if any(n not in seen for n in needed) or claim["id"] not in made:
        return None
    low, high = seen[claim["from"]]
    total = low + (high << 32) + recorded[claim["from"]][0].offset + claim["offset"]
    for term in terms:
        words = seen[term["site"]]
        value = words[0] + (words[1] << 32) if term["part"] == "pair" else words[term["part"] == "high"]
        if term["signed"] and term["part"] != "pair":
            value -= (value >> 31) << 32
        total += term["times"] * value
    return (total - made[claim["id"]]) & _M64 or None


class _Word(NamedTuple):
    """An instruction taken apart."""

    writes: Sequence[str]
    guard: str
    operation: Callable[[_Lane, list[str], list[str]], dict[str, int]] | None
    modifiers: list[str]
    operands: list[str]

    @classmethod
    def of(cls, ins: Instruction, writes: Sequence[str]) -> _Word:
        text = ins.text.strip().rstrip(";").strip()
        guard, text = text.split(" ", 1) if text.startswith("@") else ("", text)
        opcode, _, rest = text.strip().partition(" ")
        base, *modifiers = opcode.split(".")
        operands = [x.strip().removesuffix(".reuse") for x in rest.split(",")]
        return cls(writes, guard, _OPERATIONS.get(base), modifiers, operands)


class _Lane:
    """Registers of one lane. What nobody has written is random, and then stays so."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._values: dict[str, int] = {}

    def get(self, name: str) -> int:
        if name not in self._values:
            self._values[name] = self._rng.getrandbits(1 if name.startswith(("P", "UP")) else 32)
        return self._values[name]

    def address(self, ins: Instruction) -> int:
        match = re.findall(r"\[R(\d+)\.64(?:\+(-?0x[0-9a-f]+))?\]", ins.text)[-1]
        low = int(match[0])
        return self.get(f"R{low}") + (self.get(f"R{low + 1}") << 32) + int(match[1] or "0", 16) & _M64

    def run(self, word: _Word) -> None:
        if not word.writes or (word.guard and self.get(word.guard.lstrip("@!")) == word.guard.startswith("@!")):
            return
        results: dict[str, int] = {}
        if word.operation is not None:
            try:
                results = word.operation(self, word.modifiers, word.operands)
            except (IndexError, ValueError, _Unknown):
                results = {}
        for name in word.writes:
            if name not in results:  # random when it is read
                self._values.pop(name, None)
        self._values.update(results)

    def word(self, text: str) -> int:
        if text in ("RZ", "URZ", "PT", "UPT"):
            return int(text in ("PT", "UPT"))
        if text.startswith("!"):
            return 1 - self.word(text[1:])
        if re.fullmatch(r"-U?R\d+", text):
            return -self.get(text[1:]) & _M32
        if re.fullmatch(r"U?[RP]\d+|c\[0x0\]\[0x[0-9a-f]+\]", text):
            return self.get(text)
        return int(text, 16) & _M32

    def wide(self, text: str) -> int:
        return 0 if text in ("RZ", "URZ") else self.get(text) | self.get(_after(text)) << 32


def _after(name: str) -> str:
    kind = name.rstrip("0123456789")
    return f"{kind}{int(name[len(kind) :]) + 1}"


def _signed(value: int) -> int:
    return value - (value >> 31 << 32)


def _put(name: str, value: int) -> dict[str, int]:
    return {} if name in ("RZ", "URZ") else {name: value & _M32}


def _put_wide(name: str, value: int) -> dict[str, int]:
    return {**_put(name, value), **_put(_after(name), value >> 32)}


def _need(known: bool) -> None:
    if not known:
        raise _Unknown


def _carried(o: list[str], total: int) -> dict[str, int]:
    """A sum, and its carry where the second operand takes it."""
    carry = {o[1]: total >> 32} if re.fullmatch(r"P\d", o[1]) else {}
    _need(not carry or (total >> 32 < 2 and not any(x.startswith("-R") for x in o)))
    return {**_put(o[0], total), **carry}


def _sources(o: list[str]) -> list[str]:
    return [x for x in o[1:] if not re.fullmatch(r"!?U?P(\d|T)", x)]


def _incoming(o: list[str]) -> str:
    return next(x for x in reversed(o) if re.fullmatch(r"!?P\d|PT", x))


def _move(lane: _Lane, mods: list[str], o: list[str]) -> dict[str, int]:
    _need(not mods)
    return _put(o[0], lane.word(o[1]))


def _constant(lane: _Lane, mods: list[str], o: list[str]) -> dict[str, int]:
    match = re.fullmatch(r"c\[0x0\]\[(0x[0-9a-f]+)\]", o[1])
    _need(match is not None and mods in ([], ["64"]))
    assert match is not None
    more = f"c[0x0][{int(match[1], 16) + 4:#x}]"
    return {**_put(o[0], lane.word(o[1])), **(_put(_after(o[0]), lane.word(more)) if mods else {})}


def _add(lane: _Lane, mods: list[str], o: list[str]) -> dict[str, int]:
    values = [lane.word(x) for x in _sources(o)]
    if mods == ["X"]:
        return _carried(o, sum(values) + lane.word(_incoming(o)))
    _need(not mods)
    return _carried(o, sum(values))


def _multiply(lane: _Lane, mods: list[str], o: list[str]) -> dict[str, int]:
    if mods[:1] == ["WIDE"]:
        _need(mods in (["WIDE"], ["WIDE", "U32"]))
        a, b = lane.word(o[1]), lane.word(o[2])
        product = _signed(a) * _signed(b) if mods == ["WIDE"] else a * b
        return _put_wide(o[0], product + lane.wide(o[3]))
    _need(mods in ([], ["X"], ["IADD"], ["MOV"], ["MOV", "U32"], ["SHL"], ["SHL", "U32"]))
    carry = lane.word(_incoming(o)) if mods == ["X"] else 0
    return _put(o[0], lane.word(o[1]) * lane.word(o[2]) + lane.word(o[3]) + carry)


def _lea(lane: _Lane, mods: list[str], o: list[str]) -> dict[str, int]:
    s = _sources(o)
    if not mods:
        return _carried(o, (lane.word(s[0]) << int(s[2], 16) & _M32) + lane.word(s[1]))
    _need(mods in (["HI", "X"], ["HI", "X", "SX32"]))
    high = _signed(lane.word(s[0])) >> 32 if mods[-1] == "SX32" else lane.word(s[2])
    shifted = ((lane.word(s[0]) | high << 32) << int(s[-1], 16)) >> 32
    return _put(o[0], shifted + lane.word(s[1]) + lane.word(_incoming(o)))


def _shift(lane: _Lane, mods: list[str], o: list[str]) -> dict[str, int]:
    a, n, b = lane.word(o[1]), int(o[2], 16), lane.word(o[3])
    match mods:
        case ["L", "U32"]:
            return _put(o[0], a << n)
        case ["L", "U64", "HI"]:
            return _put(o[0], (a | b << 32) << n >> 32)
        case ["R", "S32", "HI"]:
            return _put(o[0], _signed(b) >> n)
        case ["R", "U32", "HI"]:
            return _put(o[0], b >> n)
    raise _Unknown


def _zero(lane: _Lane, mods: list[str], o: list[str]) -> dict[str, int]:
    _need(o[1] == "SRZ")
    return _put(o[0], 0) if mods == ["32"] else _put_wide(o[0], 0)


_OPERATIONS: dict[str, Callable[[_Lane, list[str], list[str]], dict[str, int]]] = {
    "MOV": _move, "UMOV": _move, "LDC": _constant, "ULDC": _constant, "IADD3": _add, "VIADD": _add,
    "IMAD": _multiply, "LEA": _lea, "SHF": _shift, "USHF": _shift, "CS2R": _zero,
}  # fmt: skip
