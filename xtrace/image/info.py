"""The ``.nv.info`` records: a list of (format, attribute, value)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from xtrace.errors import BadInput
from xtrace.image.eiattr import attribute_name
from xtrace.image.elf import Section, place

__all__ = ["InfoRecord", "find", "read_info", "u32s"]

MAX_RECORDS = 1 << 18
NO_VALUE, BYTE, HALF, SIZED = 1, 2, 3, 4


@dataclass(frozen=True, slots=True)
class InfoRecord:
    """One attribute. ``payload`` holds the value bytes (format 1: empty, 2: one, 3: two, 4: as many as said).

    ``offset`` is the file offset of the record.
    """

    fmt: int
    attr: int
    payload: bytes
    offset: int

    @property
    def payload_offset(self) -> int:
        return self.offset + (4 if self.fmt == SIZED else 2)

    @property
    def value(self) -> int:
        """The payload as one little-endian number (for the scalar formats)."""
        return int.from_bytes(self.payload[:8], "little")


def read_info(data: bytes, section: Section, name: str) -> tuple[InfoRecord, ...]:
    """All records of one section. Raises ``BadInput`` XT1010 for anything that does not add up."""
    records: list[InfoRecord] = []
    at, end = section.offset, section.end
    while at < end:
        if at + 4 > end or len(records) >= MAX_RECORDS:
            raise BadInput("XT1010", "attribute list is cut off or endless", where=place(name, section.name, at))
        fmt, attr, value = struct.unpack_from("<BBH", data, at)
        if fmt not in (NO_VALUE, BYTE, HALF, SIZED):
            raise BadInput("XT1010", f"attribute has unknown format {fmt}", where=place(name, section.name, at))
        if fmt == SIZED:
            if at + 4 + value > end:
                what = f"{attribute_name(attr)} reaches beyond its section"
                raise BadInput("XT1010", what, where=place(name, section.name, at))
            payload, step = data[at + 4 : at + 4 + value], 4 + value
        else:
            payload, step = data[at + 2 : at + 1 + fmt], 4
        records.append(InfoRecord(fmt, attr, payload, at))
        at += step
    return tuple(records)


def find(records: Iterable[InfoRecord], attr: int) -> InfoRecord | None:
    """The first record of that attribute, or None."""
    return next((r for r in records if r.attr == attr), None)


def u32s(record: InfoRecord, where: str, group: int = 1) -> tuple[int, ...]:
    """The payload as u32 words in complete groups. Raises ``BadInput`` XT1010 when its size does not fit."""
    if len(record.payload) % (4 * group):
        raise BadInput(
            "XT1010", f"{attribute_name(record.attr)} has a wrong size", where=f"{where} @{record.offset:#x}"
        )
    return struct.unpack(f"<{len(record.payload) // 4}I", record.payload)
