"""Operands of a disassembled NVIDIA instruction: text to registers.

Only shapes that are understood get a kind; everything else is :attr:`Kind.UNKNOWN`, which makes the whole instruction
opaque. Parsing is memoised by text, because a kernel uses few distinct operands.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

__all__ = ["Kind", "Operand", "Register", "parse_operand", "split_operands"]


class Kind(Enum):
    REGISTER = "register"  # R or UR, RZ and URZ included
    PREDICATE = "predicate"  # P or UP, PT and UPT included
    ALL_PREDICATES = "all predicates"  # PR, UPR
    BARRIER = "convergence barrier"
    MEMORY = "memory"  # [..], desc[..][..], with every register of the address
    CONSTANT = "constant"  # c[..][..], with the registers of the offset
    MATRIX = "matrix descriptor"  # gdesc[UR]
    IMMEDIATE = "immediate"
    NAME = "name"  # special register, scoreboard, asynchronous group: no register of ours
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Register:
    """One register as an operand names it; ``number`` is None for the constants RZ, URZ, PT, UPT."""

    file: str  # "R", "UR", "P", "UP", "B"
    number: int | None
    wide: bool = False  # marked as a 64-bit pair


@dataclass(frozen=True, slots=True)
class Operand:
    kind: Kind
    registers: tuple[Register, ...] = ()
    negated: bool = False  # only a source can be
    value: int | None = None  # of an integer immediate
    described: bool = False  # address under a memory descriptor


_UNKNOWN = Operand(Kind.UNKNOWN)
_REGISTER = re.compile(r"[-~|]*(U?R)(\d{1,3}|Z)((?:\.[A-Za-z0-9_]+)*)\|?((?:\.[A-Za-z0-9_]+)*)")
_PREDICATE = re.compile(r"(!?)(U?P)([0-6]|T)")
_INTEGER = re.compile(r"-?0x[0-9a-f]+|-?\d+")
_FLOAT = re.compile(r"[+-]?(?:\d+\.?\d*(?:e[+-]?\d+)?|INF|QNAN|SNAN)", re.IGNORECASE)
_CONSTANT = re.compile(r"[-~|]*(cx|c)\[(\w+)\]\[([^\[\]]*)\]\|?((?:\.\w+)*)")
_DESCRIBED = re.compile(r"desc\[(UR\d+|URZ)\](?:\[([^\[\]]*)\])?")
_MATRIX = re.compile(r"gdesc\[(UR\d+)\](?:\.(?:tnsp|neg)[AB])*")
_MEMORY = re.compile(r"\[([^\[\]]+)\]")
_REGISTER_JUMP = re.compile(r"(U?R\d+) +(-?0x[0-9a-f]+)")  # BRX R6 -0x220: a sum without a plus
_BARRIER = re.compile(r"B(\d{1,2})")
_NAME = re.compile(r"SR[A-Z_][A-Za-z0-9_.]*|SRZ|SB[0-5]|gsb0|[NPZ]{4,8}|\{[0-5](?:,[0-5])*\}")
_ADDRESS_REGISTER = re.compile(r"(-?)(U?R)(\d{1,3}|Z)((?:\.\w+)*)")

# Suffixes that do not change how many registers are read.
_NARROW = frozenset(
    ("reuse", "F32", "U32", "S32", "ROW", "COL", "H0", "H1", "H0_H0", "H1_H1", "H0_H1", "H1_H0")
    + ("B0", "B1", "B2", "B3", "B0_B0", "B1_B1", "B2_B2", "B3_B3", "B0_B1", "B2_B3")
)
_SCALES = frozenset(("X4", "X8", "X16", "U32", "S32", "reuse"))


def _number(text: str) -> int | None:
    return None if text == "Z" else int(text)


def _register(match: re.Match[str]) -> Operand:
    wide = False
    for suffix in (match[3] + match[4]).split("."):
        if suffix == "64":
            wide = True
        elif suffix and suffix not in _NARROW:
            return _UNKNOWN
    signed = match[0][0] in "-~|"
    return Operand(Kind.REGISTER, (Register(match[1], _number(match[2]), wide),), negated=signed)


def _address(text: str) -> tuple[Register, ...] | None:
    """Registers of an address expression such as ``R2.64+UR4+0x10``; None if it is not understood."""
    registers = []
    for part in text.split("+"):
        match = _ADDRESS_REGISTER.fullmatch(part)
        if match:
            suffixes = [s for s in match[4].split(".") if s]
            if any(s != "64" and s not in _SCALES for s in suffixes):
                return None
            registers.append(Register(match[2], _number(match[3]), "64" in suffixes))
        elif not _INTEGER.fullmatch(part):
            return None
    return tuple(registers)


def _constant(match: re.Match[str]) -> Operand:
    registers: tuple[Register, ...] = ()
    if match[1] == "cx":  # bindless: the bank is a 64-bit uniform pair
        bank = _ADDRESS_REGISTER.fullmatch(match[2])
        if not bank or bank[2] != "UR":
            return _UNKNOWN
        registers = (Register("UR", _number(bank[3]), wide=True),)
    elif not _INTEGER.fullmatch(match[2]):
        return _UNKNOWN
    offset = _address(match[3])
    if offset is None:
        return _UNKNOWN
    return Operand(Kind.CONSTANT, registers + offset)


@lru_cache(maxsize=65536)
def parse_operand(text: str) -> Operand:
    """The operand that ``text`` spells. Never raises: what is not understood has kind UNKNOWN."""
    if match := _REGISTER.fullmatch(text):
        return _register(match)
    if match := _PREDICATE.fullmatch(text):
        register = Register(match[2], None if match[3] == "T" else int(match[3]))
        return Operand(Kind.PREDICATE, (register,), negated=bool(match[1]))
    if _INTEGER.fullmatch(text):
        return Operand(Kind.IMMEDIATE, value=int(text, 0) if "x" in text else int(text))
    if match := _DESCRIBED.fullmatch(text):
        address = _address(match[2]) if match[2] else ()
        if address is None:
            return _UNKNOWN
        number = match[1][2:]
        return Operand(Kind.MEMORY, (Register("UR", _number(number), wide=True), *address), described=True)
    if match := _MEMORY.fullmatch(text):
        address = _address(match[1])
        return _UNKNOWN if address is None else Operand(Kind.MEMORY, address)
    if match := _CONSTANT.fullmatch(text):
        return _constant(match)
    if match := _MATRIX.fullmatch(text):
        return Operand(Kind.MATRIX, (Register("UR", int(match[1][2:])),))
    if text in ("PR", "UPR"):
        return Operand(Kind.ALL_PREDICATES, (Register("UP" if text == "UPR" else "P", None),))
    if match := _BARRIER.fullmatch(text):
        return Operand(Kind.BARRIER, (Register("B", int(match[1])),))
    if _FLOAT.fullmatch(text):
        return Operand(Kind.IMMEDIATE)
    return Operand(Kind.NAME) if _NAME.fullmatch(text) else _UNKNOWN


def split_operands(text: str) -> list[str]:
    """Operand texts of ``text`` (what follows the opcode). Braces keep their commas."""
    if not text:
        return []
    if match := _REGISTER_JUMP.fullmatch(text):
        return [match[1], match[2]]
    if "{" in text:
        return [part.strip() for part in re.split(r",\s*(?![^{]*\})", text)]
    return [part.strip() for part in text.split(",")]
