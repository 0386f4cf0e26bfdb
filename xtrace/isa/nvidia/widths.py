"""How many registers each operand names, from the opcode's modifiers.

A rule maps the modifiers of an opcode (``["WIDE", "U32"]``) to :class:`Widths`, or to None when it meets a
modifier whose widths are not known: the instruction is then opaque. Units are 32-bit registers.

Sources: operand tables of the PTX instructions these opcodes implement, checked against the disassembler's life ranges
on compiled code (tests/isa).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["RULES", "Widths"]


@dataclass(frozen=True, slots=True)
class Widths:
    """Registers per operand: of the result, of plain register sources, and of single sources by position."""

    dest: int = 1
    source: int = 1
    at: tuple[tuple[int, int], ...] = ()  # (index behind the results, width)
    wide_address: bool = False  # undescribed addresses are 64 bits: a UR names a pair, so does an unmarked R

    def of(self, index: int) -> int:
        for position, width in self.at:
            if position == index:
                return width
        return self.source


_ONE = Widths()


def _size(mods: Sequence[str]) -> int:
    return 4 if "128" in mods else 2 if "64" in mods else 1


def _load(mods: Sequence[str]) -> Widths:
    return Widths(dest=_size(mods), wide_address="E" in mods)


def _store(mods: Sequence[str]) -> Widths:
    return Widths(source=_size(mods), wide_address="E" in mods)


def _atomic(mods: Sequence[str]) -> Widths:
    width = _size(mods)
    for mod in mods:
        if match := re.fullmatch(r"(?:B?F|S|U)(16|32|64)(?:x([248]))?", mod):  # F64, F16x8: bits, elements
            width = max(width, int(match[1]) * int(match[2] or 1) // 32)
    return Widths(dest=width, source=width, wide_address="E" in mods)


def _imad(mods: Sequence[str]) -> Widths:
    if "WIDE" in mods:
        return Widths(dest=2, at=((2, 2),))
    return Widths(at=((2, 2),)) if "HI" in mods else _ONE  # the high half adds a 64-bit addend


def _types(mods: Sequence[str]) -> list[int]:
    return [2 if m == "F64" else 1 for m in mods if re.fullmatch(r"B?F(16|32|64)", m)]


def _f2f(mods: Sequence[str]) -> Widths | None:
    types = _types(mods)
    return Widths(dest=types[0], source=types[1]) if len(types) == 2 else None  # result type, source type


def _f2i(mods: Sequence[str]) -> Widths:
    return Widths(dest=2 if {"S64", "U64"} & set(mods) else 1, source=2 if "F64" in mods else 1)


def _i2f(mods: Sequence[str]) -> Widths:
    return Widths(dest=2 if "F64" in mods else 1, source=2 if {"S64", "U64"} & set(mods) else 1)


def _count(mods: Sequence[str]) -> int:
    return 4 if "4" in mods else 2 if "2" in mods else 1


_Table = dict[str, tuple[int, int, int]]


def _fragments(mods: Sequence[str], dense: _Table, sparse: _Table | None = None) -> Widths | None:
    """Widths of ``D, A, B, C`` from a table of shape -> registers of (A, B, C and D)."""
    table = dense if "SP" not in mods else sparse or {}
    for mod in mods:
        if mod in table:
            a, b, c = table[mod]
            return Widths(dest=c, at=((0, a), (1, b), (2, c)))
    return None


_HMMA: _Table = {"16816": (4, 2, 4), "1688": (2, 1, 4)}
_HMMA_SPARSE: _Table = {"16832": (4, 4, 4), "16816": (2, 2, 4)}
_TF32: _Table = {"1688": (4, 2, 4), "1684": (2, 1, 4)}
_TF32_SPARSE: _Table = {"16816": (4, 4, 4), "1688": (2, 2, 4)}
_IMMA: _Table = {"16816": (2, 1, 4), "16832": (4, 2, 4), "8816": (1, 1, 2)}
_IMMA_SPARSE: _Table = {"16832": (2, 2, 4), "16864": (4, 4, 4)}
_IMMA4: _Table = {"16832": (2, 1, 4), "16864": (4, 2, 4), "8832": (1, 1, 2)}
_BMMA: _Table = {"88128": (1, 1, 2), "168128": (2, 1, 4), "168256": (4, 2, 4)}
_DMMA: _Table = {"8x8x4": (2, 2, 4), "16x8x4": (4, 2, 8), "16x8x8": (8, 4, 8), "16x8x16": (16, 8, 8)}


def _hmma(mods: Sequence[str]) -> Widths | None:
    if not {"F32", "F16"} & set(mods):
        return None
    if "TF32" in mods:
        return _fragments(mods, _TF32, _TF32_SPARSE)
    found = _fragments(mods, _HMMA, _HMMA_SPARSE)
    if found is None or "F32" in mods:  # the accumulator's type: F32 appears for nothing else
        return found
    return Widths(dest=2, at=(*found.at[:2], (2, 2)))


def _imma(mods: Sequence[str]) -> Widths | None:
    return _fragments(mods, _IMMA4) if {"S4", "U4"} & set(mods) else _fragments(mods, _IMMA, _IMMA_SPARSE)


def _gmma(mods: Sequence[str]) -> Widths | None:
    shape = next((m for m in mods if re.fullmatch(r"64x\d{1,3}x\d{1,3}", m)), None)
    if shape is None:
        return None
    columns = int(shape.split("x")[1])
    accumulator = columns // 4 if mods[mods.index(shape) + 1 : mods.index(shape) + 2] == ["F16"] else columns // 2
    # A from registers: a 64 x K tile over 128 threads is four registers for every element type.
    # C follows the descriptor; the metadata of sparse forms, further back, is one register.
    return Widths(dest=accumulator, at=((0, 4), (1, accumulator), (2, accumulator)))


def _syncs(mods: Sequence[str]) -> Widths | None:
    if mods[:1] == ["EXCH"]:
        return Widths(dest=_size(mods), source=_size(mods))
    if mods[:1] == ["ARRIVE"]:
        return Widths(dest=2)  # the barrier's state before the arrival
    return _ONE if mods[:1] in (["PHASECHK"], ["CCTL"]) else None


RULES: dict[str, Callable[[Sequence[str]], Widths | None]] = {
    "": lambda mods: _ONE,
    "address": lambda mods: Widths(source=2),  # a code address in registers is a pair
    "atomic": _atomic,
    "bmma": lambda mods: _fragments(mods, _BMMA),
    "bmov": lambda mods: _ONE if "32" in mods else None,
    "break": lambda mods: _ONE,
    "bulk": lambda mods: _ONE,
    "cs2r": lambda mods: Widths(dest=1 if "32" in mods else 2),
    "dmma": lambda mods: _fragments(mods, _DMMA),
    "double": lambda mods: Widths(dest=2, source=2),
    "f2f": _f2f,
    "f2i": _f2i,
    "frnd": lambda mods: Widths(dest=2, source=2) if "F64" in mods else _ONE,
    "global": lambda mods: Widths(wide_address=True),
    "gmma": _gmma,
    "hmma": _hmma,
    "i2f": _i2f,
    "imad": _imad,
    "imma": _imma,
    "ldgsts": lambda mods: Widths(wide_address="E" in mods),
    "ldsm": lambda mods: Widths(dest=_count(mods)),
    "load": _load,
    "match": lambda mods: Widths(source=2 if "U64" in mods else 1),
    "p2r": lambda mods: _ONE,
    "pair": lambda mods: Widths(dest=2),
    "r2p": lambda mods: _ONE,
    "store": _store,
    "stsm": lambda mods: Widths(source=_count(mods)),
    "syncs": _syncs,
    "tma": lambda mods: _ONE,
    "uniform": lambda mods: Widths(dest=2, source=2) if "64" in mods else _ONE,
}
