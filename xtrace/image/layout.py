"""File layout: put longer sections in place of shorter ones and move what stands behind them.

Everything behind a grown section moves by a multiple of the largest alignment in the file, so each section keeps its
offset modulo its alignment, order and gaps are kept, and nothing can come to overlap. Section and program headers move
with the rest.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Mapping

from xtrace.errors import BadInput
from xtrace.image import elf
from xtrace.image.elf import Header, Section, place

__all__ = ["Layout", "relayout"]

MIN_ALIGN, MAX_ALIGN = 128, 4096
_SH_OFFSET, _SH_SIZE = 24, 32  # of the fields in a section header
_PH_OFFSET, _PH_FILESZ, _PH_MEMSZ = 8, 32, 40
_E_PHOFF, _E_SHOFF = 32, 40


class Layout:
    """Old file offset -> new file offset."""

    def __init__(self, sections: tuple[Section, ...], sizes: Mapping[int, int]) -> None:
        powers = {s.align for s in sections if s.file_size and s.align.bit_count() == 1 and s.align <= MAX_ALIGN}
        self.step = max(MIN_ALIGN, *powers, 1)
        self._ends: list[int] = []
        self._shifts = [0]
        for section in sorted((s for s in sections if s.index in sizes), key=lambda s: s.offset):
            growth = max(sizes[section.index] - section.file_size, 0)
            self._ends.append(section.end)
            self._shifts.append(self._shifts[-1] + -(-growth // self.step) * self.step)

    def new(self, old: int) -> int:
        """Where the byte at ``old`` stands now; the end of a section counts as behind it."""
        return old + self._shifts[bisect_right(self._ends, old)]


def relayout(
    data: bytes, header: Header, sections: tuple[Section, ...], contents: Mapping[int, bytes | bytearray], name: str
) -> bytearray:
    """The file with ``contents`` (section index -> new bytes) in place of the old ones, all headers adjusted.

    Raises ``BadInput`` XT1017 when parts of the file overlap: nothing can be moved there safely.
    """
    overlaps = elf.find_overlaps(header, sections)
    if overlaps:
        raise BadInput("XT1017", overlaps[0], where=name, hint="the image is damaged: fetch or build it again")
    layout = Layout(sections, {i: len(c) for i, c in contents.items()})
    out = bytearray(layout.new(len(data)))
    position = 0
    for section in sorted((s for s in sections if s.index in contents), key=lambda s: s.offset):
        content = contents[section.index]
        start = layout.new(position)
        out[start : start + section.offset - position] = data[position : section.offset]
        start = layout.new(section.offset)
        out[start : start + len(content)] = content
        position = section.end
    out[layout.new(position) :] = data[position:]
    struct.pack_into("<Q", out, _E_SHOFF, layout.new(header.shoff))
    if header.phnum:
        struct.pack_into("<Q", out, _E_PHOFF, layout.new(header.phoff))
    for section in sections[1:]:
        if section.offset > len(data):  # of a section without bytes: means nothing, and may be any number
            continue
        at = layout.new(header.shoff) + section.index * elf.SHDR.size
        struct.pack_into("<Q", out, at + _SH_OFFSET, layout.new(section.offset))
        if section.index in contents:
            struct.pack_into("<Q", out, at + _SH_SIZE, len(contents[section.index]))
    for segment in elf.read_segments(data, header):
        if segment.offset + segment.filesz > len(data):
            raise BadInput(
                "XT1003", "segment beyond the end of the file", where=place(name, "program header", segment.record)
            )
        at = layout.new(segment.record)
        start, stop = layout.new(segment.offset), layout.new(segment.offset + segment.filesz)
        size = stop - start if segment.filesz else 0
        struct.pack_into("<Q", out, at + _PH_OFFSET, start)
        struct.pack_into("<Q", out, at + _PH_FILESZ, size)
        memory = segment.memsz + size - segment.filesz
        if not size <= memory < 1 << 48:
            what = "segment smaller in memory than in the file, or absurdly large"
            raise BadInput("XT1003", what, where=place(name, "program header", segment.record))
        struct.pack_into("<Q", out, at + _PH_MEMSZ, memory)
    return out
