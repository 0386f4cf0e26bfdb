"""Line and frame tables follow their instructions."""

from __future__ import annotations

import contextlib
import io
import random
import struct

import pytest
from elftools.dwarf.callframe import FDE, CallFrameInfo
from elftools.dwarf.lineprogram import LineProgram
from elftools.dwarf.structs import DWARFStructs
from elftools.elf.elffile import ELFFile
from hypothesis import given
from hypothesis import strategies as st

from tests.image.growth import NAMES, WORD, golden, grow
from xtrace import image
from xtrace.errors import XtraceError
from xtrace.image import CodeEdit, Image, rewrite
from xtrace.image.elf import read_relocations
from xtrace.image.frames import move_frames
from xtrace.image.leb import write_uleb
from xtrace.image.lines import move_lines

LINES = (".debug_line", ".nv_debug_line_sass")
SINGLE = [n for n in NAMES if len(image.parse(golden(n), n).kernels) == 1]
Row = tuple[int, int, int, int, bool, bool]


def rows_of(content: bytes) -> list[Row]:
    """(address, file, line, column, is_stmt, ends the sequence) of every row, read by pyelftools."""
    structs = DWARFStructs(little_endian=True, dwarf_format=32, address_size=8)
    found: list[Row] = []
    offset = 0
    while offset < len(content):
        stream = io.BytesIO(content)
        header = dict(structs.Dwarf_lineprog_header.parse(content[offset:]))
        start = offset + header["header_length"] + 10
        end = offset + header["unit_length"] + 4
        program = LineProgram(header, stream, structs, start, end)
        for entry in program.get_entries():
            if (s := entry.state) is not None:
                found.append((s.address, s.file, s.line, s.column, s.is_stmt, s.end_sequence))
        offset = end
    return found


def moved(name: str, seed: int) -> tuple[Image, Image, CodeEdit]:
    before = image.parse(golden(name), name)
    kernel, draw = before.kernels[0], random.Random(seed)
    edit = grow(kernel, {pc: draw.randint(1, 40) for pc in range(0, len(kernel.text), WORD) if draw.random() < 0.2})
    return before, image.parse(rewrite(before, [edit]), "moved"), edit


@pytest.mark.parametrize("section", LINES)
@pytest.mark.parametrize("name", SINGLE)
def test_every_row_moves_with_its_instruction_and_none_is_added(name: str, section: str) -> None:
    before, after, edit = moved(name, 3)
    was, now = (rows_of(i.content(s)) for i in (before, after) if (s := i.section_named(section)) is not None)
    assert len(was) > 1
    size, end = len(before.kernels[0].text), len(after.kernels[0].text)
    assert now == [(end if row[0] == size else edit.target_off(row[0]), *row[1:]) for row in was]


def test_lines_of_two_kernels_move_each_by_its_own_map() -> None:
    before = image.parse(golden("two_kernels"), "x")
    first, second = before.kernels
    after = image.parse(rewrite(before, [grow(second, dict.fromkeys(range(0, len(second.text), 64), 2))]), "y")
    for name in LINES:
        sections = [i.section_named(name) for i in (before, after)]
        was, now = (rows_of(i.content(s)) for i, s in zip((before, after), sections, strict=True) if s is not None)
        assert [row[1:] for row in was] == [row[1:] for row in now]
        pairs = list(zip(was, now, strict=True))
        assert any(a[0] != b[0] for a, b in pairs)
        ends = [i for i, (a, _) in enumerate(pairs) if a[5]]
        sequences = [pairs[a + 1 : b + 1] for a, b in zip([-1, *ends], ends, strict=False)]
        untouched = [s for s in sequences if all(a == b for a, b in s)]
        assert len(untouched) == len(sequences) // 2
        assert any(s[-1][0][0] == len(first.text) for s in untouched)


@pytest.mark.parametrize("name", NAMES)
def test_relocated_addresses_of_line_tables_are_found_where_they_went(name: str) -> None:
    before = image.parse(golden(name), name)
    edits = [grow(k, dict.fromkeys(range(0, len(k.text), 160), 300)) for k in before.kernels]
    after = image.parse(rewrite(before, edits), "moved")
    for section in after.sections:
        if section.name in (".rela.debug_line", ".rela.nv_debug_line_sass"):
            content = after.content(after.sections[section.info])
            for relocation in read_relocations(after.data, section, after.symbols, ""):
                assert content[relocation.offset - 3 : relocation.offset] == b"\x00\x09\x02"  # extended, set address


@pytest.mark.parametrize("name", SINGLE)
def test_frames_cover_the_functions_they_covered(name: str) -> None:
    before, after, edit = moved(name, 4)
    size, end = len(before.kernels[0].text), len(after.kernels[0].text)

    def at(offset: int) -> int:
        return end if offset == size else edit.target_off(offset)

    was, now = frames_of(before), frames_of(after)
    assert was
    for (start, length, rows), (new_start, new_length, new_rows) in zip(was, now, strict=True):
        assert (new_start, new_start + new_length) == (at(start), at(start + length))
        assert new_rows == [(at(pc), rest) for pc, rest in rows]


def frames_of(of: Image) -> list[tuple[int, int, list[tuple[int, str]]]]:
    """(start, length, rows as (pc, rule text)) of every frame entry, read by pyelftools with relocations applied."""
    section, table = of.section_named(".debug_frame"), of.section_named(".rela.debug_frame")
    assert section is not None
    assert table is not None
    content = bytearray(of.content(section))
    for relocation in read_relocations(of.data, table, of.symbols, ""):
        address = of.symbols[relocation.symbol].value + (relocation.addend or 0)
        content[relocation.offset : relocation.offset + 8] = address.to_bytes(8, "little")
    structs = DWARFStructs(little_endian=True, dwarf_format=32, address_size=8)
    narrow = as_32_bit_dwarf(bytes(content))
    frames = CallFrameInfo(io.BytesIO(narrow), len(narrow), 0, structs)
    found = []
    for entry in frames.get_entries():
        if isinstance(entry, FDE):
            rows = [(row.pop("pc"), str(sorted(map(str, row.items())))) for row in entry.get_decoded().table]
            found.append((entry.header["initial_location"], entry.header["address_range"], rows))
    return found


def as_32_bit_dwarf(content: bytes) -> bytes:
    """The same entries with 4-byte lengths: pyelftools looks for the entry's kind at the wrong place in 64-bit ones."""
    out, places, at = bytearray(), {}, 0
    while at < len(content):
        assert content[at : at + 4] == b"\xff\xff\xff\xff"
        length, owner = struct.unpack_from("<QQ", content, at + 4)
        places[at] = len(out)
        body = content[at + 20 : at + 12 + length]
        out += struct.pack("<II", len(body) + 4, 0xFFFFFFFF if owner == 0xFFFFFFFFFFFFFFFF else places[owner]) + body
        at += 12 + length
    return bytes(out)


# One program unit with every operation, made by hand: header as ptxas writes it.
HEADER = bytes.fromhex("02001000000001 01 fb 0e 0a 00 01 01 01 01 00 00 00 01 00 00".replace(" ", ""))


def unit(program: bytes) -> bytes:
    header = bytearray(HEADER)
    header[2:6] = (len(header) - 6).to_bytes(4, "little")
    return (len(header) + len(program)).to_bytes(4, "little") + bytes(header) + program


OPERATIONS = st.one_of(
    st.integers(10, 255).filter(lambda op: (op - 10) // 14 % 16 == 0).map(lambda op: bytes([op])),  # special
    st.just(b"\x01"),  # copy
    st.integers(0, 40).map(lambda n: b"\x02" + write_uleb(16 * n)),  # advance pc
    st.integers(0, 40).map(lambda n: b"\x09" + (16 * n).to_bytes(2, "little")),  # fixed advance pc
    st.integers(0, 63).map(lambda n: b"\x03" + bytes([n])),  # advance line
    st.integers(0, 1 << 20).map(lambda n: b"\x05" + write_uleb(n)),  # column
    st.sampled_from([b"\x06", b"\x07"]),  # statement, basic block
    st.just(b"\x00\x03\x90\x01\x02"),  # NVIDIA's inlining record: unknown to the standard
)
START = b"\x00\x09\x02" + bytes(8)
END = b"\x00\x01\x01"


@given(st.lists(OPERATIONS, max_size=60), st.integers(0, 7))
def test_any_program_moves_exactly(operations: list[bytes], spread: int) -> None:
    content = unit(START + b"".join(operations) + END)
    operand = content.index(START) + 3
    was = rows_of(content)
    out = move_lines(content, {operand: (0, lambda old: old + 16 * (old * spread // 64))}, "x")
    assert rows_of(bytes(out.data)) == [(a + 16 * (a * spread // 64), *rest) for a, *rest in was]
    if spread == 0:
        assert out.data == content


@given(st.binary(max_size=200))
def test_garbage_tables_raise_only_our_errors(content: bytes) -> None:
    for garbage in (content, unit(content), unit(START + content)):
        with contextlib.suppress(XtraceError):
            move_lines(garbage, {garbage.find(START) + 3: (0, lambda old: old)}, "x")
        with contextlib.suppress(XtraceError):
            move_frames(garbage, {}, "x")


def test_the_whole_file_still_reads_as_elf() -> None:
    _, after, _ = moved("triton_fa_fwd", 5)
    theirs = ELFFile(io.BytesIO(after.data))
    assert {s.name for s in theirs.iter_sections()} == {s.name for s in after.sections}
