"""ELF64 little-endian reading with every offset checked against the file.

Only what a linked GPU image needs: header, sections, symbols, relocations, program headers. Hand written on ``struct``
because the input is untrusted and the same tables are rewritten later; tests compare it with pyelftools. Field layout:
System V ABI, ELF-64 object file format.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xtrace.errors import BadInput

__all__ = ["Header", "Relocation", "Section", "Segment", "Symbol", "find_overlaps", "place", "read_header"]
__all__ += ["read_relocations", "read_sections", "read_segments", "read_symbols"]

EHDR = struct.Struct("<16sHHIQQQIHHHHHH")
SHDR = struct.Struct("<IIQQQQIIQQ")
PHDR = struct.Struct("<IIQQQQQQ")
SYM = struct.Struct("<IBBHQQ")
RELA = struct.Struct("<QQq")
REL = struct.Struct("<QQ")

SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_NOBITS, SHT_REL = 2, 3, 4, 8, 9
SHF_EXECINSTR = 0x4
STT_FUNC, STT_SECTION = 2, 3
ET_REL, ET_EXEC = 1, 2
EM_X86_64, EM_CUDA, EM_AMDGPU = 62, 190, 224
SHN_LORESERVE = 0xFF00

MAX_NAME = 1 << 15  # one mangled C++ name; the longest seen is about 3 KB
MAX_NAMES = 1 << 26  # all names of one file together


@dataclass(frozen=True, slots=True)
class Header:
    osabi: int
    abiversion: int
    type: int
    machine: int
    flags: int
    phoff: int
    phnum: int
    shoff: int
    shnum: int
    shstrndx: int


@dataclass(frozen=True, slots=True)
class Section:
    """One section header. ``offset`` and ``size`` are bytes in the file (NOBITS sections occupy none)."""

    index: int
    name: str
    type: int
    flags: int
    addr: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entsize: int

    @property
    def file_size(self) -> int:
        return 0 if self.type in (0, SHT_NOBITS) else self.size

    @property
    def end(self) -> int:
        return self.offset + self.file_size


@dataclass(frozen=True, slots=True)
class Symbol:
    """One symbol. ``value`` is an offset in its section, ``offset`` the file offset of the record itself."""

    index: int
    name: str
    type: int
    binding: int
    other: int
    section: int
    value: int
    size: int
    offset: int


@dataclass(frozen=True, slots=True)
class Relocation:
    """One relocation. ``addend`` is None for REL sections, ``record`` the file offset of the record."""

    offset: int
    symbol: int
    type: int
    addend: int | None
    record: int


@dataclass(frozen=True, slots=True)
class Segment:
    type: int
    flags: int
    offset: int
    filesz: int
    memsz: int
    record: int


def place(name: str, what: str, offset: int | None = None) -> str:
    """``where`` text of an error: file, table and file offset."""
    return f"{name}: {what}" + ("" if offset is None else f" @{offset:#x}")


def read_header(data: bytes, name: str) -> Header:
    """The ELF header; only its own consistency is checked here.

    Raises ``BadInput``: XT1001 empty, XT1002 not ELF, XT1003 shorter than its header, XT1004 not 64-bit, XT1005 not
    little endian, XT1006 an unknown ELF version or inconsistent header fields.
    """
    if not data:
        raise BadInput("XT1001", "file is empty", where=name, hint="give a cubin")
    if data[:4] != b"\x7fELF":
        raise BadInput("XT1002", "not an ELF file", where=place(name, "ELF header", 0), hint=_guess(data))
    if len(data) >= 6 and data[4] != 2:
        raise BadInput("XT1004", "not a 64-bit ELF", where=place(name, "EI_CLASS", 4), hint="give a 64-bit cubin")
    if len(data) >= 6 and data[5] != 1:
        raise BadInput("XT1005", "not a little-endian ELF", where=place(name, "EI_DATA", 5), hint="give a cubin")
    if len(data) >= 7 and data[6] != 1:
        what = f"ELF version {data[6]} instead of 1"
        raise BadInput("XT1006", what, where=place(name, "EI_VERSION", 6), hint="the file is damaged: build it again")
    if len(data) < EHDR.size:
        raise BadInput("XT1003", "truncated inside the ELF header", where=place(name, "ELF header", len(data)))
    ident, kind, machine, _, _, phoff, shoff, flags, _, phentsize, phnum, shentsize, shnum, shstrndx = EHDR.unpack_from(
        data
    )
    header = Header(ident[7], ident[8], kind, machine, flags, phoff, phnum, shoff, shnum, shstrndx)
    if machine == EM_CUDA and kind == ET_EXEC:  # other files get their own error first
        if shentsize != SHDR.size or (phnum and phentsize != PHDR.size):
            raise BadInput("XT1006", "unexpected table entry size", where=place(name, "ELF header", 54))
        if shnum == 0 or shstrndx >= shnum:
            raise BadInput("XT1006", "no section table or no section names", where=place(name, "ELF header", 60))
        _check(data, shoff, shnum * SHDR.size, name, "section table")
        _check(data, phoff, phnum * PHDR.size, name, "program headers")
    return header


def _guess(data: bytes) -> str:
    head = data[:256].lstrip()
    if data[:4] == b"\x50\xed\x55\xba":
        return "this is a fatbin: take the image out with `xtrace extract`"
    if head.startswith((b"//", b".version")):
        return "this looks like PTX text: compile it with ptxas first"
    if data[:2] == b"PK" or data[:2] == b"\x1f\x8b":
        return "this is an archive: unpack it and use `xtrace extract` on the library inside"
    return "give a cubin; for a shared library use `xtrace extract`"


def _check(data: bytes, offset: int, size: int, name: str, what: str) -> None:
    if offset + size > len(data):
        raise BadInput(
            "XT1003",
            f"{what} needs bytes up to {offset + size:#x} but the file ends at {len(data):#x}",
            where=place(name, what, offset),
            hint="the file is truncated or damaged: fetch or build it again",
        )


def read_sections(data: bytes, header: Header, name: str) -> tuple[Section, ...]:
    """All sections with their names. Raises ``BadInput`` XT1003 (beyond the end) or XT1007 (bad names)."""
    raw = [SHDR.unpack_from(data, header.shoff + i * SHDR.size) for i in range(header.shnum)]
    for i, (_, kind, _, _, offset, size, *_) in enumerate(raw):
        if kind not in (0, SHT_NOBITS):
            _check(data, offset, size, name, f"section {i}")
    names = _Names(data, raw[header.shstrndx], name)
    return tuple(
        Section(i, names.at(nm), kind, flags, addr, offset, size, link, info, align, entsize)
        for i, (nm, kind, flags, addr, offset, size, link, info, align, entsize) in enumerate(raw)
    )


def read_symbols(data: bytes, sections: Sequence[Section], name: str) -> tuple[Symbol, ...]:
    """All symbols of the one symbol table. Raises ``BadInput`` XT1008 for a missing or malformed table."""
    tables = [s for s in sections if s.type == SHT_SYMTAB]
    if len(tables) != 1:
        raise BadInput("XT1008", f"{len(tables)} symbol tables instead of one", where=place(name, "section table"))
    table = tables[0]
    here = place(name, table.name, table.offset)
    if table.entsize != SYM.size or table.size % SYM.size:
        raise BadInput("XT1008", "symbol table has a wrong entry size", where=here)
    if table.link >= len(sections) or sections[table.link].type != SHT_STRTAB:
        raise BadInput("XT1008", "symbol table names no string table", where=here)
    names = _Names(data, sections[table.link], name)
    symbols = []
    view = memoryview(data)[table.offset : table.end]
    for i, (nm, info, other, section, value, size) in enumerate(SYM.iter_unpack(view)):
        if section >= len(sections) and section < SHN_LORESERVE:
            raise BadInput("XT1008", f"symbol {i} lies in section {section}, which does not exist", where=here)
        record = table.offset + i * SYM.size
        symbols.append(Symbol(i, names.at(nm), info & 15, info >> 4, other, section, value, size, record))
    return tuple(symbols)


def read_relocations(data: bytes, section: Section, symbols: Sequence[Symbol], name: str) -> Iterator[Relocation]:
    """The relocations of one REL or RELA section. Raises ``BadInput`` XT1009 for malformed records."""
    record = RELA if section.type == SHT_RELA else REL
    if section.size % record.size:
        raise BadInput("XT1009", "relocation section has a wrong size", where=place(name, section.name, section.offset))
    for at in range(section.offset, section.end, record.size):
        offset, info, *addend = record.unpack_from(data, at)
        if info >> 32 >= len(symbols):
            raise BadInput("XT1009", "relocation names no symbol", where=place(name, section.name, at))
        yield Relocation(offset, info >> 32, info & 0xFFFFFFFF, addend[0] if addend else None, at)


def read_segments(data: bytes, header: Header) -> tuple[Segment, ...]:
    segments = []
    for i in range(header.phnum):
        at = header.phoff + i * PHDR.size
        kind, flags, offset, _, _, filesz, memsz, _ = PHDR.unpack_from(data, at)
        segments.append(Segment(kind, flags, offset, filesz, memsz, at))
    return tuple(segments)


def find_overlaps(header: Header, sections: Sequence[Section]) -> list[str]:
    """Pairs of file ranges that share bytes, as readable text; a well-formed image has none."""
    ranges = [(0, EHDR.size, "ELF header"), (header.shoff, header.shoff + header.shnum * SHDR.size, "section table")]
    if header.phnum:
        ranges.append((header.phoff, header.phoff + header.phnum * PHDR.size, "program headers"))
    ranges += [(s.offset, s.end, s.name) for s in sections if s.file_size]
    ranges.sort()
    found, last = [], ranges[0]
    for current in ranges[1:]:
        if current[0] < last[1]:
            found.append(f"{last[2]} and {current[2]} overlap at {current[0]:#x}")
        if current[1] > last[1]:
            last = current
    return found


class _Names:
    """A string table: bounded names, and a bound on all of them together (hostile tables overlap their names)."""

    def __init__(self, data: bytes, table: Section | tuple[int, ...], name: str) -> None:
        offset, size = (table.offset, table.file_size) if isinstance(table, Section) else (table[4], table[5])
        self._data, self._start, self._end, self._file = data, offset, offset + size, name
        self._seen: dict[int, str] = {}
        self._total = 0
        _check(data, offset, size, name, "string table")

    def at(self, index: int) -> str:
        if index in self._seen:
            return self._seen[index]
        start = self._start + index
        stop = self._data.find(b"\0", start, min(start + MAX_NAME, self._end)) if start < self._end else -1
        if index == 0 and stop < 0:
            return ""
        if stop < 0:
            raise BadInput("XT1007", "name has no end inside its table", where=place(self._file, "names", start))
        self._total += stop - start
        if self._total > MAX_NAMES:
            raise BadInput("XT1007", "names of this file are too long", where=place(self._file, "names", start))
        text = self._data[start:stop].decode("utf-8", errors="backslashreplace")
        self._seen[index] = text
        return text
