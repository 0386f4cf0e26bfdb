"""Relocations and debug tables: each must say of the moved code what it said before (part of ``targets``)."""

from __future__ import annotations

from collections.abc import Mapping

from xtrace.errors import BadInput
from xtrace.image import elf
from xtrace.image.cubin import Image
from xtrace.image.elf import Relocation, Section
from xtrace.verify.certificate import Findings, Promise
from xtrace.verify.lines import read_frames, read_lines
from xtrace.verify.pair import Pair

__all__ = ["FRAMES", "LINES", "check", "relocated_ranges"]

LINES = (".debug_line", ".nv_debug_line_sass")
FRAMES = (".debug_frame",)
_TARGETS = Promise.TARGETS


def _relocations(image: Image) -> dict[int, list[Relocation]]:
    """Relocations by number of the section that holds them."""
    return {
        s.index: list(elf.read_relocations(image.data, s, image.symbols, image.name))
        for s in image.sections
        if s.type in (elf.SHT_REL, elf.SHT_RELA) and s.size
    }


def _addend(image: Image, target: Section, record: Relocation) -> int:
    if record.addend is not None:
        return record.addend
    at = target.offset + record.offset
    return int.from_bytes(image.data[at : at + 8], "little", signed=True)


def _field(image: Image, section: int, record: Relocation) -> bytes:
    """The eight bytes that a relocation will fill in."""
    at = image.sections[section].offset + record.offset
    return image.data[at : at + 8]


def relocated_ranges(image: Image, section: int) -> list[int]:
    """Offsets in a section of the 8-byte fields that relocations fill in."""
    tables = _relocations(image)
    return sorted(r.offset for i, records in tables.items() if image.sections[i].info == section for r in records)


def _addresses(image: Image, section: Section) -> dict[int, tuple[int, int]]:
    found = {}
    for i, records in _relocations(image).items():
        if image.sections[i].info == section.index:
            for record in records:
                symbol = image.symbols[record.symbol]
                found[record.offset] = (symbol.section, symbol.value + _addend(image, section, record))
    return found


def check(pairs: Mapping[int, Pair], before: Image, after: Image, findings: Findings) -> None:
    """Compare relocations, line tables and frame tables through the alignment. ``pairs``: by text section number."""
    if not pairs:
        return
    try:
        _check_relocations(pairs, before, after, findings)
        for old in before.sections:
            if old.file_size and old.name in LINES + FRAMES:
                _check_table(pairs, before, after, old, after.sections[old.index], findings)
    except BadInput as error:
        findings.fail(_TARGETS, "", f"debug table or relocation: {error.what} {error.where}")


def _check_relocations(pairs: Mapping[int, Pair], before: Image, after: Image, findings: Findings) -> None:
    old_tables, new_tables = _relocations(before), _relocations(after)
    line_sections = {s.index for s in before.sections if s.name in LINES}
    row_sections = {s.index for s in before.sections if s.name in LINES + FRAMES}
    for i, old_records in old_tables.items():
        name = before.sections[i].name[:60]
        new_records = new_tables.get(i, [])
        target = before.sections[i].info
        if len(old_records) != len(new_records):
            findings.fail(_TARGETS, "", f"{name}: number of relocations changed")
            continue
        for old, new in zip(old_records, new_records, strict=True):
            if (old.symbol, old.type) != (new.symbol, new.type):
                findings.fail(_TARGETS, "", f"{name}: relocation at {old.offset:#x} changed its symbol or type")
                continue
            if old.offset != new.offset and target not in line_sections:
                findings.fail(_TARGETS, "", f"{name}: relocation moved from {old.offset:#x} to {new.offset:#x}")
            if old.addend is not None and _field(before, target, old) != _field(after, target, new):
                findings.fail(_TARGETS, "", f"{name}: bytes under the relocation at {old.offset:#x} changed")
            symbol = before.symbols[old.symbol]
            was = symbol.value + _addend(before, before.sections[target], old)
            now = after.symbols[new.symbol].value + _addend(after, after.sections[target], new)
            pair = pairs.get(symbol.section)
            wanted = was
            if pair is not None:
                where = pair.row_off if target in row_sections else pair.target_off
                wanted = where(was) if 0 <= was <= len(pair.before.text) else -1
            elif symbol.section in line_sections:
                continue  # the unit it names is compared with the line table itself
            if now != wanted:
                findings.fail(
                    _TARGETS, "", f"{name}: relocation at {old.offset:#x} names {now:#x}, expected {wanted:#x}"
                )


def _check_table(
    pairs: Mapping[int, Pair], before: Image, after: Image, old: Section, new: Section, findings: Findings
) -> None:
    read = read_frames if old.name in FRAMES else read_lines
    rows = read(before.content(old), _addresses(before, old), old.name)
    moved = read(after.content(new), _addresses(after, new), new.name)
    if len(rows) != len(moved):
        findings.fail(_TARGETS, "", f"{old.name}: {len(moved)} rows instead of {len(rows)}")
        return
    for a, b in zip(rows, moved, strict=True):
        pair = pairs.get(a.text)
        wanted = a.address if pair is None else pair.row_off(a.address)
        if (a.text, a.rest) != (b.text, b.rest):
            findings.fail(_TARGETS, "", f"{old.name}: row for original pc {a.address:#x} says something else")
            return
        if b.address != wanted:
            kernel = "" if pair is None else pair.name
            findings.fail(_TARGETS, kernel, f"{old.name}: row at {b.address:#x}, expected {wanted:#x}")
            return
