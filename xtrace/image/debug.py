"""Debug tables and relocations of an image whose code moved."""

from __future__ import annotations

import struct
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

from xtrace.errors import BadInput, Unsupported
from xtrace.image import elf, known
from xtrace.image.cubin import Image
from xtrace.image.elf import Relocation, Section, Symbol, place
from xtrace.image.frames import move_frames
from xtrace.image.lines import AddressMap, MovedLines, move_lines
from xtrace.image.moves import Move

__all__ = ["move_references"]

R_CUDA_64 = 2


def move_references(
    image: Image, moves: Mapping[int, Move], values: Mapping[int, int], contents: MutableMapping[int, bytearray]
) -> None:
    """Rewrite line and frame tables into ``contents``, then every relocation that names moved code or moved tables.

    ``moves`` is by text section number, ``values`` holds the new values of symbols in moved text.
    Raises ``Unsupported`` XT1109 for a relocation that cannot be brought along, and what the table rewriters raise.
    """
    by_target: dict[int, list[Relocation]] = {}
    tables: list[tuple[Section, list[Relocation]]] = []
    for section in image.sections:
        if section.type in (elf.SHT_RELA, elf.SHT_REL) and section.size:
            if section.info >= len(image.sections):
                raise BadInput("XT1009", "relocations of no section", where=place(image.name, section.name))
            records = list(elf.read_relocations(image.data, section, image.symbols, image.name))
            tables.append((section, records))
            by_target.setdefault(section.info, []).extend(records)
    moved: dict[int, MovedLines] = {}
    for section in image.sections:
        if section.file_size and section.name in known.LINES + known.FRAMES:
            starts = _starts(image, section, by_target.get(section.index, []), moves)
            where = place(image.name, section.name)
            try:
                if section.name in known.FRAMES:
                    contents[section.index] = bytearray(move_frames(image.content(section), starts, where))
                else:
                    moved[section.index] = move_lines(image.content(section), starts, where)
                    contents[section.index] = moved[section.index].data
            except (BadInput, Unsupported) as error:
                if not error.where.startswith(image.name):  # from a helper that knows offsets or kernels only
                    error.where = f"{where}: {error.where}"
                raise
    work = _Relocations(image, moves, values, moved, contents)
    for section, records in tables:
        for record in records:
            work.move(section, record)


def _starts(
    image: Image, section: Section, records: list[Relocation], moves: Mapping[int, Move]
) -> dict[int, tuple[int, AddressMap]]:
    """For every relocated address of a section: the old text offset and how offsets of that text move."""
    content = image.content(section)
    starts: dict[int, tuple[int, AddressMap]] = {}
    for record in records:
        symbol = image.symbols[record.symbol]
        old = symbol.value + _addend(content, record, place(image.name, section.name))
        starts[record.offset] = (old, _mapping(moves.get(symbol.section), section.name))
    return starts


def _mapping(move: Move | None, what: str) -> AddressMap:
    if move is None:
        return lambda old: old
    return lambda old: move.row(old, what)


def _addend(content: bytes | bytearray, record: Relocation, where: str) -> int:
    if record.addend is not None:
        return record.addend
    if record.offset + 8 > len(content):
        raise BadInput("XT1009", "relocation beyond its section", where=f"{where} @{record.record:#x}")
    value: int = struct.unpack_from("<q", content, record.offset)[0]
    return value


@dataclass(frozen=True, slots=True)
class _Relocations:
    image: Image
    moves: Mapping[int, Move]
    values: Mapping[int, int]
    lines: Mapping[int, MovedLines]
    contents: MutableMapping[int, bytearray]

    def move(self, section: Section, record: Relocation) -> None:
        symbol = self.image.symbols[record.symbol]
        target = self.image.sections[section.info]
        where = place(self.image.name, section.name, record.record)
        offset, lines = record.offset, self.lines.get(target.index)
        if lines is not None:
            if offset not in lines.operands:
                raise Unsupported("XT1109", "relocation of a line table names no address", where=where)
            offset = lines.operands[offset]
            if offset != record.offset:
                struct.pack_into("<Q", self._copy(section), record.record - section.offset, offset)
        if symbol.section not in self.moves and symbol.section not in self.lines:
            return
        addend = _addend(self.image.content(target), record, where)
        new = self._new_addend(symbol, addend, where, row=target.name in known.LINES + known.FRAMES)
        if new == addend:
            return
        if record.addend is not None:
            struct.pack_into("<q", self._copy(section), record.record - section.offset + 16, new)
        elif record.type == R_CUDA_64:
            struct.pack_into("<q", self._copy(target), offset, new)
        else:
            raise Unsupported("XT1109", f"relocation type {record.type} cannot be moved", where=where)

    def _new_addend(self, symbol: Symbol, addend: int, where: str, *, row: bool) -> int:
        move = self.moves.get(symbol.section)
        if move is not None:
            moved = move.row if row else move.target
            return moved(symbol.value + addend, f"relocation at {where}") - self.values[symbol.index]
        units = self.lines[symbol.section].units
        if addend not in units:
            raise Unsupported("XT1109", "reference into the middle of a line table", where=where)
        return units[addend]

    def _copy(self, section: Section) -> bytearray:
        if section.index not in self.contents:
            self.contents[section.index] = bytearray(self.image.content(section))
        return self.contents[section.index]
