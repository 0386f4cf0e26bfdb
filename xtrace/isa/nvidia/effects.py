"""Which registers an instruction reads and writes, from its opcode and operand texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from xtrace.isa.model import RegisterLayout
from xtrace.isa.nvidia.opcodes import OPCODES, Row
from xtrace.isa.nvidia.operands import Kind, Operand, Register
from xtrace.isa.nvidia.widths import RULES, Widths

__all__ = ["Effects", "Shape", "effects", "shape_of"]

# A tensor copy's first operand names a block of uniform registers: shared address and barrier (loads), shared address
# (stores), nothing (prefetch), then one coordinate per dimension. Im2col offsets are an operand of their own.
_BEFORE_COORDINATES = {"UTMALDG": 2, "UTMASTG": 1, "UTMAREDG": 1, "UTMAPF": 0}
_TMA_BLOCK = 8  # any other


@dataclass(frozen=True, slots=True)
class Effects:
    """Register bit sets, guard not included."""

    reads: int
    writes: int


@dataclass(frozen=True, slots=True)
class Shape:
    """An opcode with its modifiers resolved against the tables."""

    base: str
    mods: tuple[str, ...]
    row: Row
    widths: Widths
    outs: tuple[str, ...]


def shape_of(opcode: str) -> Shape | None:
    """Tables of ``opcode`` (with modifiers), or None if the model does not know it."""
    base, *mods = opcode.split(".")
    row = OPCODES.get(base)
    if row is None or any(m.startswith(("INVALID", "???")) for m in mods):
        return None
    widths = RULES[row.width](mods)
    return None if widths is None else Shape(base, tuple(mods), row, widths, tuple(row.outs.split()))


def _bits(layout: RegisterLayout, register: Register, width: int = 1) -> int:
    if register.number is None:
        return 0
    return layout[register.file].bit(register.number, 2 if register.wide and width < 2 else width)


def _address_bits(layout: RegisterLayout, operand: Operand, wide: bool) -> int:
    bits = 0
    for position, register in enumerate(operand.registers):
        described = operand.described and position == 0
        # An undescribed uniform base of a 64-bit address is a pair; so is an unmarked R of a generic access.
        pair = described or (wide and (register.file == "UR" or not operand.described))
        bits |= _bits(layout, register, 2 if pair else 1)
    return bits


def _results(shape: Shape, operands: Sequence[Operand]) -> int | None:
    """How many leading operands are results; None if they do not fit the pattern."""
    at = 0
    for out in shape.outs:
        optional = out.startswith("[")
        kind = out.strip("[]")
        if kind == "d":
            fits = at < len(operands) and operands[at].kind in (Kind.REGISTER, Kind.BARRIER)
            if fits and not operands[at].negated:
                at += 1
            elif not optional:
                return None
            continue
        wanted = 2 if kind == "p2" else 1
        found = 0
        while (
            found < wanted and at < len(operands) and operands[at].kind is Kind.PREDICATE and not operands[at].negated
        ):
            found += 1
            at += 1
        if found < wanted and not optional:
            return None
    return at


def effects(shape: Shape, operands: Sequence[Operand], layout: RegisterLayout) -> Effects | None:
    """Registers read and written by ``shape`` with ``operands``; None if an operand is not understood."""
    if any(operand.kind is Kind.UNKNOWN for operand in operands):
        return None
    count = _results(shape, operands)
    if count is None:
        return None
    reads = writes = 0
    for operand in operands[:count]:
        plain = operand.kind is Kind.REGISTER
        writes |= _bits(layout, operand.registers[0], shape.widths.dest if plain else 1)
    sources = operands[count:]
    for index, operand in enumerate(sources):
        if operand.kind is Kind.REGISTER:
            reads |= _bits(layout, operand.registers[0], shape.widths.of(index))
        elif operand.kind is Kind.MEMORY:
            shared = shape.row.width == "ldgsts" and index == 0  # its destination; the source is a global address
            reads |= _address_bits(layout, operand, shape.widths.wide_address and not shared)
        elif operand.kind is Kind.CONSTANT:
            for register in operand.registers:
                reads |= _bits(layout, register)
        elif operand.kind in (Kind.PREDICATE, Kind.BARRIER):
            reads |= _bits(layout, operand.registers[0])
        elif operand.kind is Kind.MATRIX:
            # Four consecutive uniform registers, also when A comes from registers (the oracle says so there too).
            reads |= _bits(layout, operand.registers[0], 4)
        elif operand.kind is Kind.ALL_PREDICATES and shape.row.width not in ("p2r", "r2p"):
            return None
    special = _SPECIAL.get(shape.row.width)
    if special:
        more = special(shape, operands, layout)
        if more is None:
            return None
        reads |= more.reads
        writes |= more.writes
    return Effects(reads, writes)


def _selected(operands: Sequence[Operand], layout: RegisterLayout) -> int:
    """Predicates that a P2R/R2P moves: those of the mask if it is an immediate, else all."""
    file = next((o.registers[0].file for o in operands if o.kind is Kind.ALL_PREDICATES), "P")
    predicates = layout[file]
    mask = operands[-1].value if operands else None
    if mask is None:
        return predicates.mask
    return (mask & 0x7F) << predicates.first_bit


def _p2r(shape: Shape, operands: Sequence[Operand], layout: RegisterLayout) -> Effects | None:
    return Effects(_selected(operands, layout), 0)


def _r2p(shape: Shape, operands: Sequence[Operand], layout: RegisterLayout) -> Effects | None:
    bits = _selected(operands, layout)
    # The oracle does not model these two, so the old value is kept alive even where the mask is exact.
    return Effects(bits, bits)


def _tma(shape: Shape, operands: Sequence[Operand], layout: RegisterLayout) -> Effects | None:
    blocks = [o for o in operands if o.kind is Kind.MEMORY and not o.described]
    dimensions = next((int(m[0]) for m in shape.mods if re.fullmatch(r"[1-5]D", m)), None)
    reads = 0
    for position, block in enumerate(blocks):
        width = 2  # address of the tensor map
        if position == 0 and len(blocks) > 1:
            before = _BEFORE_COORDINATES.get(shape.base)
            width = _TMA_BLOCK if dimensions is None or before is None else before + dimensions
        for register in block.registers:
            reads |= _bits(layout, register, width)
    return Effects(reads, 0)


def _bulk(shape: Shape, operands: Sequence[Operand], layout: RegisterLayout) -> Effects | None:
    reads = 0
    for operand in operands:
        if operand.kind is Kind.MEMORY and not operand.described:
            for register in operand.registers:
                reads |= _bits(layout, register, 2)  # global address, or shared address and barrier
    return Effects(reads, 0)


def _ldgsts(shape: Shape, operands: Sequence[Operand], layout: RegisterLayout) -> Effects | None:
    bits = 0
    for operand in operands:
        if operand.kind is Kind.PREDICATE:
            bits |= _bits(layout, operand.registers[0])
    # The oracle has this predicate written as well. Compilers use it again as if it were not; listing it harms nobody.
    return Effects(bits, bits)


def _break(shape: Shape, operands: Sequence[Operand], layout: RegisterLayout) -> Effects | None:
    bits = 0
    for operand in operands:
        if operand.kind is Kind.BARRIER:
            bits |= _bits(layout, operand.registers[0])
    return Effects(bits, bits)


def _bmov(shape: Shape, operands: Sequence[Operand], layout: RegisterLayout) -> Effects | None:
    if len(operands) != 2 or any(o.kind not in (Kind.REGISTER, Kind.BARRIER, Kind.IMMEDIATE) for o in operands):
        return None
    cleared = operands[1].kind is Kind.BARRIER and "CLEAR" in shape.mods
    return Effects(0, _bits(layout, operands[1].registers[0]) if cleared else 0)


_SPECIAL = {"p2r": _p2r, "r2p": _r2p, "tma": _tma, "bulk": _bulk, "break": _break, "bmov": _bmov, "ldgsts": _ldgsts}
