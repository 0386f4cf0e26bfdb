"""Write a cubin in which the code of some kernels has grown, and bring along every table that names an offset in it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xtrace.errors import BadInput, Unsupported
from xtrace.image import eiattr, elf, known
from xtrace.image.cubin import Image, Kernel
from xtrace.image.debug import move_references
from xtrace.image.elf import Section, Symbol, place
from xtrace.image.info import read_info
from xtrace.image.layout import relayout
from xtrace.image.moves import Move
from xtrace.image.tables import move_attributes, move_jump_tables

__all__ = ["CodeEdit", "rewrite"]

TEXT_PAD = 128  # text sections of every ptxas are a multiple of this
#: What ptxas itself fills text sections with: NOP, no scoreboard, drain. Stands behind the last branch, never executed.
PADDING_WORD = struct.pack("<QQ", 0x7918, 0x000FC00000000000)
MAX_REGISTERS = 255
_SYM_VALUE, _SYM_SIZE = 8, 16  # of the fields in a symbol record
_SH_INFO = 44


@dataclass(frozen=True, slots=True)
class CodeEdit:
    """New code of one kernel.

    Parameters
    ----------
    kernel
        Mangled name.
    text
        The whole new code: every original word, in order, and more. Branches are already re-aimed; the writer does not
        look inside. It is padded to a multiple of 128 bytes.
    registers
        General registers per thread from now on (allocation count, as in REGCOUNT); not less than before.
    instr_off
        Old text offset of an instruction -> new offset of that instruction.
    target_off
        Old text offset -> new offset of the first word put in front of it; what branches, tables, symbols and line rows
        use.
    copy
        New text offset of a second copy of the old code, in front of the first instruction: lists of instructions name
        it too, rows of debug tables begin behind it.
    """

    kernel: str
    text: bytes
    registers: int
    instr_off: Callable[[int], int]
    target_off: Callable[[int], int]
    copy: int | None = None


def rewrite(image: Image, edits: Sequence[CodeEdit]) -> bytes:
    """The image with the given kernels' code replaced; ``rewrite(image, [])`` is ``image.data``.

    Brought along: attributes with instruction offsets, jump tables, symbols, register counts, program headers, line and
    frame tables, relocations. Section order, numbers and names stay.

    Raises
    ------
    BadInput
        XT1017 when parts of the file overlap, XT1018 for malformed debug tables, XT1020 for an unknown kernel, XT1021
        for an edit that cannot be right (code shrinks, odd size, registers out of range, two edits of one kernel).
    Unsupported
        XT1101 relocations in the code, XT1102 an attribute or XT1103 a section that may hold code offsets in a way
        that is not understood, XT1104 a jump table that cannot be proven, XT1105-XT1109 debug tables tied to no kernel.
    """
    if not edits:
        return image.data
    work = _Work(image, {}, {})
    registers: dict[int, int] = {}
    for edit in edits:
        kernel = image.kernel(edit.kernel)
        if kernel.section in work.moves:
            raise BadInput("XT1021", "two edits of one kernel", where=place(image.name, edit.kernel))
        _check_edit(image, kernel, edit)
        padding = -len(edit.text) % TEXT_PAD // len(PADDING_WORD)
        text = edit.text + PADDING_WORD * padding
        work.contents[kernel.section] = bytearray(text)
        work.moves[kernel.section] = Move(
            place(image.name, kernel.name), len(kernel.text), len(text), edit.instr_off, edit.target_off, edit.copy
        )
        registers[kernel.symbol] = edit.registers
    _check_sections(image)
    for edit in edits:
        kernel = image.kernel(edit.kernel)
        move = work.moves[kernel.section]
        move_attributes(image, kernel, move, work.section(f".nv.info.{kernel.name}"))
        move_jump_tables(image, kernel, move, work.section(f".nv.constant2.{kernel.name}"))
    values = _move_symbols(work)
    _set_registers(work, registers)
    move_references(image, work.moves, values, work.contents)
    out = relayout(image.data, image.header, image.sections, work.contents, image.name)
    _set_text_info(image, out, work, registers)
    return bytes(out)


@dataclass(slots=True)
class _Work:
    image: Image
    contents: dict[int, bytearray]  # section index -> new bytes
    moves: dict[int, Move]  # text section index -> where its code went

    def section(self, name: str) -> tuple[Section, bytearray] | None:
        """A section to be changed in place, copied on first use."""
        section = self.image.section_named(name)
        if section is None or not section.file_size:
            return None
        if section.index not in self.contents:
            self.contents[section.index] = bytearray(self.image.content(section))
        return section, self.contents[section.index]


def _check_edit(image: Image, kernel: Kernel, edit: CodeEdit) -> None:
    here = place(image.name, kernel.name)
    if len(edit.text) % len(PADDING_WORD) or len(edit.text) < len(kernel.text):
        what = f"new code of {len(edit.text)} bytes for {len(kernel.text)} bytes of old code"
        raise BadInput("XT1021", what, where=here, hint="code may only grow, by whole instructions")
    if edit.copy is not None and not 0 < edit.copy <= len(edit.text) - len(kernel.text):
        raise BadInput("XT1021", f"a copy of the code at {edit.copy:#x} reaches beyond the new code", where=here)
    if not max(kernel.registers, 1) <= edit.registers <= MAX_REGISTERS:
        raise BadInput("XT1021", f"{edit.registers} registers instead of {kernel.registers}", where=here)
    if kernel.has_text_relocations:
        hint = "link the image fully (nvlink); code that calls separately compiled functions cannot be moved yet"
        raise Unsupported("XT1101", "the kernel's code has relocations", where=here, hint=hint)


def _check_sections(image: Image) -> None:
    for section in image.sections:
        if not section.file_size:
            continue
        here = place(image.name, section.name, section.offset)
        if section.name.startswith(known.MERCURY):
            hint = "this version moves code of sm_90 and older; rebuild with --binary-kind sass for newer ones"
            raise Unsupported("XT1103", "a second description of the code that would go stale", where=here, hint=hint)
        if section.name in known.DEBUG_BUILD:
            hint = "rebuild without -G; line tables (-lineinfo) are fine"
            raise Unsupported("XT1103", f"full debug information ({section.name})", where=here, hint=hint)
        if not known.is_known(section.name):
            hint = "please report the image"
            raise Unsupported("XT1103", f"section {section.name} may hold code offsets", where=here, hint=hint)
    info = image.section_named(".nv.info")
    for record in read_info(image.data, info, image.name) if info else ():
        if eiattr.CARRIES.get(record.attr) not in (eiattr.Carries.NOTHING, eiattr.Carries.REGISTERS):
            what = f"attribute {eiattr.attribute_name(record.attr)} may hold code offsets"
            raise Unsupported("XT1102", what, where=place(image.name, ".nv.info", record.offset))


def _move_symbols(work: _Work) -> dict[int, int]:
    """Update values and sizes; returns new values by symbol number (those in moved text only)."""
    values: dict[int, int] = {}
    for symbol in work.image.symbols:
        move = work.moves.get(symbol.section)
        if move is None:
            continue
        start, size = _new_extent(symbol, move)
        values[symbol.index] = start
        table = work.section(".symtab")
        if table is None:
            raise BadInput("XT1008", "symbol table is not called .symtab", where=work.image.name)
        at = symbol.offset - table[0].offset
        struct.pack_into("<Q", table[1], at + _SYM_VALUE, start)
        struct.pack_into("<Q", table[1], at + _SYM_SIZE, size)
    return values


def _new_extent(symbol: Symbol, move: Move) -> tuple[int, int]:
    what = f"symbol {symbol.name}"
    # the kernel itself and its section start at 0, in front of everything put there; callees start at their island
    start = move.target(symbol.value, what) if symbol.value else 0
    return start, move.target(symbol.value + symbol.size, what) - start if symbol.size else 0


def _set_registers(work: _Work, registers: dict[int, int]) -> None:
    found = work.section(".nv.info")
    if found is None:
        return
    section, content = found
    for record in read_info(work.image.data, section, work.image.name):
        if record.attr == eiattr.REGCOUNT:
            symbol = int.from_bytes(record.payload[:4], "little")
            if symbol in registers:
                struct.pack_into("<I", content, record.payload_offset - section.offset + 4, registers[symbol])


def _set_text_info(image: Image, out: bytearray, work: _Work, registers: dict[int, int]) -> None:
    """The second place of the register count: bits 24-31 of the text's sh_info, where the image uses them."""
    (shoff,) = struct.unpack_from("<Q", out, 40)
    for kernel in image.kernels:
        section = image.sections[kernel.section]
        if kernel.section in work.moves and section.info >> 24:
            value = section.info & 0xFFFFFF | registers[kernel.symbol] << 24
            struct.pack_into("<I", out, shoff + section.index * elf.SHDR.size + _SH_INFO, value)
