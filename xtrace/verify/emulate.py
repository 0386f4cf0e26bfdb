"""A tiny interpreter for probe code: where would its stores go?

It runs the islands of one warp on made-up launches, from the disassembled text alone, and so shares nothing with the
encoder that made them. The set of mnemonics below is at the same time the list of what a probe may consist of.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from xtrace.isa.model import Instruction

__all__ = ["MNEMONICS", "NotUnderstood", "Store", "Warp", "compile_word"]

_M32 = 0xFFFFFFFF
_ADDRESS = re.compile(r"\[(?:RZ\.U32\+)?(UR\d+)(?:\+(-?0x[0-9a-f]+))?\]")
_DESCRIBED = re.compile(r"desc\[(UR\d+)\]\[(R\d+)\.64(?:\+(-?0x[0-9a-f]+))?\]")
_IMMEDIATE = re.compile(r"-?0x[0-9a-f]+")
_CONSTANT = re.compile(r"c\[0x0\]\[(0x[0-9a-f]+)\]")
_WIDTHS = {"64": 8, "128": 16}


class NotUnderstood(Exception):  # noqa: N818 - a verdict on an instruction, not a fault
    """The interpreter has no meaning for this instruction."""


class Store(NamedTuple):
    """One executed store: bytes ``[address, address + size)``; None for words of registers that no probe has set.

    ``descriptor``: how caches treat the line; 0 without one.
    """

    address: int
    size: int
    data: tuple[int | None, ...]
    descriptor: int = 0


@dataclass
class Warp:
    """Registers and surroundings of one warp, seen from the lane that ELECT picks."""

    special: dict[str, int]
    constants: dict[int, int]
    registers: dict[str, int] = field(default_factory=dict)
    stores: list[Store] = field(default_factory=list)
    ticks: int = 1000
    elected: set[str] = field(default_factory=set)  # predicates that are true in the elected lane alone
    clocks: list[int] = field(default_factory=list)  # every value read from the SM clock's low half

    def get(self, name: str) -> int:
        try:
            return self.registers[name]
        except KeyError:
            raise NotUnderstood(f"{name} is read before a probe sets it") from None


Action = Callable[[Warp], None]
Value = Callable[[Warp], int]


def _register(name: str, step: int) -> str:
    kind = name.rstrip("0123456789")
    return f"{kind}{int(name[len(kind) :]) + step}"


def _value(text: str, patch: int | None = None) -> Value:
    text = text.removesuffix(".reuse")
    if _IMMEDIATE.fullmatch(text):
        number = (int(text, 16) if patch is None else patch) & _M32
        return lambda _: number
    if text in ("RZ", "URZ", "SRZ"):
        return lambda _: 0
    if text in ("PT", "UPT"):
        return lambda _: 1
    if text in ("!PT", "!UPT"):
        return lambda _: 0
    if re.fullmatch(r"U?[RP]\d+", text):
        return lambda w: w.get(text)
    if re.fullmatch(r"!U?P\d", text):
        return lambda w: 1 - w.get(text[1:])
    if re.fullmatch(r"-U?R\d+", text):
        return lambda w: -w.get(text[1:]) & _M32
    if match := _CONSTANT.fullmatch(text):
        offset = int(match[1], 16)

        def constant(w: Warp) -> int:
            if offset not in w.constants:
                raise NotUnderstood(f"reads constant bank 0 at {offset:#x}, which is no launch dimension")
            return w.constants[offset]

        return constant
    raise NotUnderstood(f"operand {text!r}")


def _pair(text: str) -> Value:
    if text in ("RZ", "URZ"):
        return lambda _: 0
    low, high = text, _register(text, 1)
    return lambda w: w.get(low) | w.get(high) << 32


def _put(w: Warp, name: str, value: int) -> None:
    if name not in ("RZ", "URZ", "PT", "UPT"):
        w.registers[name] = value
        w.elected.discard(name)


def _put_pair(w: Warp, name: str, value: int) -> None:
    _put(w, name, value & _M32)
    _put(w, _register(name, 1), value >> 32 & _M32)


_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
}


def _move(o: list[str], mods: list[str], imm: int | None) -> Action:
    if mods or len(o) != 2:
        raise NotUnderstood("move form")
    source = _value(o[1], imm)
    return lambda w: _put(w, o[0], source(w))


def _load_constant(o: list[str], mods: list[str], imm: int | None) -> Action:
    if mods not in ([], ["64"]):
        raise NotUnderstood("constant load of an odd size")
    source = _value(o[1])
    if not mods:
        return lambda w: _put(w, o[0], source(w))
    match = _CONSTANT.fullmatch(o[1])
    if match is None:
        raise NotUnderstood(f"operand {o[1]!r}")
    upper = _value(f"c[0x0][{int(match[1], 16) + 4:#x}]")
    return lambda w: _put_pair(w, o[0], source(w) | upper(w) << 32)


def _special(o: list[str], mods: list[str], imm: int | None) -> Action:
    name = o[1]

    def run(w: Warp) -> None:
        w.ticks += 32
        clock = name.startswith(("SR_CLOCK", "SR_GLOBALTIMER"))
        if not clock and name not in w.special and name != "SRZ":
            raise NotUnderstood(f"special register {name}")
        value = w.ticks if clock else w.special.get(name, 0)
        if name == "SR_CLOCKLO" and mods != ["wide"]:
            w.clocks.append(value)
        if mods == ["wide"]:
            _put_pair(w, o[0], value)
        else:
            _put(w, o[0], value & _M32)

    return run


def _clock(o: list[str], mods: list[str], imm: int | None) -> Action:
    return _special(o, [] if "32" in mods else ["wide"], imm)


def _add(o: list[str], mods: list[str], imm: int | None) -> Action:
    operands = [x for x in o[1:] if not re.fullmatch(r"!?U?P(\d|T)", x)]
    if mods == ["64"]:
        a, *rest = operands
        first, second = _pair(a), _value(rest[0], imm) if _IMMEDIATE.fullmatch(rest[0]) else _pair(rest[0])
        return lambda w: _put_pair(w, o[0], first(w) + second(w))
    if mods:
        raise NotUnderstood("addition with carry")
    values = [_value(x, imm) for x in operands if x not in ("RZ", "URZ")]
    if len(values) == 2:
        x, y = values
        return lambda w: _put(w, o[0], x(w) + y(w) & _M32)
    return lambda w: _put(w, o[0], sum(v(w) for v in values) & _M32)


def _multiply(o: list[str], mods: list[str], imm: int | None) -> Action:
    a, b = _value(o[1]), _value(o[2], imm)
    if mods and mods[0] == "WIDE":
        if mods != ["WIDE", "U32"]:
            raise NotUnderstood("signed wide multiplication")
        wide = _pair(o[3])
        return lambda w: _put_pair(w, o[0], a(w) * b(w) + wide(w))
    if mods not in ([], ["U32"], ["MOV", "U32"], ["MOV"], ["IADD"], ["SHL"], ["SHL", "U32"]):
        raise NotUnderstood("multiplication form")
    c = _value(o[3], imm if not _IMMEDIATE.fullmatch(o[2]) else None)
    return lambda w: _put(w, o[0], a(w) * b(w) + c(w) & _M32)


def _shift(o: list[str], mods: list[str], imm: int | None) -> Action:
    a, n, high = _value(o[1]), _value(o[2], imm), _value(o[3])
    if mods == ["R", "U32", "HI"] and o[1] in ("RZ", "URZ"):
        return lambda w: _put(w, o[0], high(w) >> n(w) if n(w) < 32 else 0)
    if mods == ["L", "U32"]:
        return lambda w: _put(w, o[0], a(w) << n(w) & _M32)
    raise NotUnderstood("shift form")


def _logic(o: list[str], mods: list[str], imm: int | None) -> Action:
    if mods != ["LUT"]:
        raise NotUnderstood("logic form")
    a, b, c, table = _value(o[1]), _value(o[2], imm), _value(o[3]), int(o[4], 16)

    def run(w: Warp) -> None:
        x, y, z, result = a(w), b(w), c(w), 0
        for k in range(8):
            if table >> k & 1:
                result |= (x if k & 4 else ~x) & (y if k & 2 else ~y) & (z if k & 1 else ~z)
        _put(w, o[0], result & _M32)

    return run


def _permute(o: list[str], mods: list[str], imm: int | None) -> Action:
    """Bytes of the result, from the lowest: a nibble of the selector chooses among those of two sources."""
    selector = int(o[2], 16)
    if mods or len(o) != 4 or imm is not None or selector & ~0x7777:
        raise NotUnderstood("permutation form")
    a, c = _value(o[1]), _value(o[3])
    chosen = [selector >> 4 * k & 7 for k in range(4)]

    def run(w: Warp) -> None:
        both = a(w) | c(w) << 32
        _put(w, o[0], sum((both >> 8 * n & 0xFF) << 8 * k for k, n in enumerate(chosen)))

    return run


def _lea(o: list[str], mods: list[str], imm: int | None) -> Action:
    if mods:
        raise NotUnderstood("address arithmetic form")
    a, b, n = _value(o[1]), _value(o[2], imm), int(o[3], 16)
    return lambda w: _put(w, o[0], (a(w) << n) + b(w) & _M32)


def _select(o: list[str], mods: list[str], imm: int | None) -> Action:
    if mods or len(o) != 4:
        raise NotUnderstood("selection form")
    a, b, p = _value(o[1]), _value(o[2], imm), _value(o[3])
    return lambda w: _put(w, o[0], a(w) if p(w) else b(w))


def _compare(o: list[str], mods: list[str], imm: int | None) -> Action:
    unsigned = len(mods) == 3 and mods[0] in _COMPARE and mods[1:] == ["U32", "AND"]
    either = len(mods) == 2 and mods[0] in ("EQ", "NE") and mods[1] == "AND"  # the sign does not matter
    if not (unsigned or either) or o[1] not in ("PT", "UPT"):
        raise NotUnderstood("comparison form")
    test, a, b, c = _COMPARE[mods[0]], _value(o[2]), _value(o[3], imm), _value(o[4])
    return lambda w: _put(w, o[0], int(test(a(w), b(w)) and c(w)))


def _elect(o: list[str], mods: list[str], imm: int | None) -> Action:
    if mods or len(o) != 3 or (o[2] != "PT" and o[1] != "URZ"):
        raise NotUnderstood("election form")
    among = _value(o[2])

    def run(w: Warp) -> None:
        _put(w, o[0], among(w))
        _put(w, o[1], 1)
        w.elected |= {o[0], o[1]}

    return run


def _nothing(o: list[str], mods: list[str], imm: int | None) -> Action:
    return lambda w: None


def _store(o: list[str], mods: list[str], imm: int | None) -> Action:
    match, described = _ADDRESS.fullmatch(o[0]), _DESCRIBED.fullmatch(o[0])
    if mods[:1] != ["E"] or len(mods) > 2 or mods[1:] not in ([], ["64"], ["128"]):
        raise NotUnderstood("store of an odd size")
    if match is not None:
        address, descriptor, offset = _pair(match[1]), _pair("URZ"), int(match[2] or "0", 16)
    elif described is not None:
        address, descriptor, offset = _pair(described[2]), _pair(described[1]), int(described[3] or "0", 16)
    else:
        raise NotUnderstood("store that is not through an address pair of the probes' own")
    size = _WIDTHS.get(mods[-1], 4)
    data = [_register(o[1], k) for k in range(size // 4)] if o[1] != "RZ" else []
    zeros = () if data else (0,) * (size // 4)

    def run(w: Warp) -> None:
        where = address(w) + offset & 0xFFFFFFFFFFFFFFFF
        w.stores.append(Store(where, size, zeros or tuple(w.registers.get(n) for n in data), descriptor(w)))

    return run


#: Everything a probe may consist of, and what it does.
MNEMONICS: dict[str, Callable[[list[str], list[str], int | None], Action]] = {
    "MOV": _move, "UMOV": _move, "R2UR": _move,
    "ULDC": _load_constant, "LDC": _load_constant,
    "S2R": _special, "S2UR": _special, "CS2R": _clock,
    "IADD3": _add, "UIADD3": _add, "VIADD": _add,
    "IMAD": _multiply, "UIMAD": _multiply,
    "SHF": _shift, "USHF": _shift,
    "LOP3": _logic, "ULOP3": _logic,
    "LEA": _lea, "ULEA": _lea,
    "PRMT": _permute, "UPRMT": _permute,
    "SEL": _select, "USEL": _select,
    "ISETP": _compare, "UISETP": _compare,
    "ELECT": _elect, "NOP": _nothing, "STG": _store,
}  # fmt: skip


def compile_word(ins: Instruction, patch: int | None = None) -> Action:
    """What ``ins`` does. ``patch`` replaces its immediate. Raises :class:`NotUnderstood`."""
    text = ins.text.strip()
    guard: Value | None = None
    if text.startswith("@"):
        name, _, text = text.partition(" ")
        guard = _value(name[1:])
    opcode, _, rest = text.strip().partition(" ")
    base, *mods = opcode.split(".")
    if base not in MNEMONICS:
        raise NotUnderstood(f"{base} is not among what a probe may consist of")
    operands = [x.strip() for x in rest.split(",")] if rest.strip() else []
    if patch is not None and sum(bool(_IMMEDIATE.fullmatch(x)) for x in operands) != 1:
        raise NotUnderstood("patched instruction without exactly one immediate")
    try:
        action = MNEMONICS[base](operands, mods, patch)
    except (IndexError, ValueError):
        raise NotUnderstood("operand list") from None
    if guard is None:
        return action
    condition = guard
    return lambda w: action(w) if condition(w) else None
