"""Reading line and frame tables as lists of (address, everything else), to compare two files.

This reader replays the tables and never writes; it shares nothing with the code that moves them but number decoding.
Formats: DWARF 2-5, sections 6.2 (lines) and 6.4 (frames); ptxas writes version 2 lines and version 3 frames.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from xtrace.errors import BadInput
from xtrace.image.leb import skip, uleb

__all__ = ["Entry", "read_frames", "read_lines"]

_ADVANCE_SIZES = {0x02: 1, 0x03: 2, 0x04: 4}
_SKIP_NUMBERS = {0x05: 2, 0x06: 1, 0x07: 1, 0x08: 1, 0x09: 2, 0x0C: 2, 0x0D: 1, 0x0E: 1, 0x11: 2, 0x12: 2, 0x13: 1}


@dataclass(frozen=True, slots=True)
class Entry:
    """One row. ``text`` is the text section it belongs to, ``address`` an offset in it, ``rest`` all else it says."""

    text: int
    address: int
    rest: tuple[object, ...]


def read_lines(data: bytes, addresses: Mapping[int, tuple[int, int]], where: str) -> list[Entry]:
    """All rows of a line section. ``addresses``: operand offset -> (text section, offset in it), from relocations.

    Raises ``BadInput`` XT4010 for tables that cannot be read.
    """
    rows: list[Entry] = []
    at = 0
    try:
        while at < len(data):
            at = _line_unit(data, at, addresses, rows)
    except (struct.error, IndexError, KeyError) as error:
        raise BadInput("XT4010", "line table cannot be read", where=f"{where} @{at:#x}") from error
    return rows


def _line_unit(data: bytes, start: int, addresses: Mapping[int, tuple[int, int]], rows: list[Entry]) -> int:
    (length,) = struct.unpack_from("<I", data, start)
    wide = length == 0xFFFFFFFF
    at: int = start + 4
    if wide:
        (length,) = struct.unpack_from("<Q", data, at)
        at += 8
    end: int = at + length
    (version,) = struct.unpack_from("<H", data, at)
    at += 4 if version >= 5 else 2
    (header_length,) = struct.unpack_from("<Q" if wide else "<I", data, at)
    at += 8 if wide else 4
    program = at + header_length
    start_of_header, unit = at, data[at]
    at += 2 if version >= 4 else 1
    _, base, span, first_special = struct.unpack_from("<BbBB", data, at)
    lengths = data[at + 4 : at + 3 + first_special]
    rows.append(Entry(-1, 0, ("unit", version, bytes(data[start_of_header:program]))))
    if end > len(data) or not span or not unit:
        raise IndexError
    text, address, line = -1, 0, 1
    extra: list[bytes] = []
    at = program
    while at < end:
        first, op = at, data[at]
        at += 1
        row = False
        if op >= first_special:
            address += (op - first_special) // span * unit
            line += base + (op - first_special) % span
            row = True
        elif op == 0:
            size, at = uleb(data, at, end)
            kind, stop = data[at], at + size
            if kind == 2:
                text, address = addresses[at + 1]
            elif kind == 1:
                rows.append(Entry(text, address, ("end", line)))
                text, address, line, extra = -1, 0, 1, []
            else:
                extra.append(bytes(data[at:stop]))
            at = stop
        elif op == 1:
            row = True
        elif op == 2:
            step, at = uleb(data, at, end)
            address += step * unit
        elif op == 3:
            value, stop = _signed(data, at)
            line, at = line + value, stop
        elif op == 8:
            address += (255 - first_special) // span * unit
        elif op == 9:
            address += int.from_bytes(data[at : at + 2], "little")
            at += 2
        else:
            for _ in range(lengths[op - 1]):
                at = skip(data, at, end)
            extra.append(bytes(data[first:at]))
        if row:
            rows.append(Entry(text, address, (line, tuple(extra))))
            extra = []
    return end


def _signed(data: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value - (1 << shift if byte & 0x40 else 0), at
        if shift > 63:
            raise IndexError


def read_frames(data: bytes, addresses: Mapping[int, tuple[int, int]], where: str) -> list[Entry]:
    """All ranges and rows of a frame section. Raises ``BadInput`` XT4010 for tables that cannot be read."""
    rows: list[Entry] = []
    factors: dict[int, int] = {}
    at = 0
    try:
        while at < len(data):
            at = _frame(data, at, factors, addresses, rows)
    except (struct.error, IndexError, KeyError) as error:
        raise BadInput("XT4010", "frame table cannot be read", where=f"{where} @{at:#x}") from error
    return rows


def _frame(
    data: bytes, start: int, factors: dict[int, int], addresses: Mapping[int, tuple[int, int]], rows: list[Entry]
) -> int:
    (length,) = struct.unpack_from("<I", data, start)
    wide = length == 0xFFFFFFFF
    at: int = start + 4
    if wide:
        (length,) = struct.unpack_from("<Q", data, at)
        at += 8
    end: int = at + length
    if end > len(data):
        raise IndexError
    (owner,) = struct.unpack_from("<Q" if wide else "<I", data, at)
    at += 8 if wide else 4
    if owner == (0xFFFFFFFFFFFFFFFF if wide else 0xFFFFFFFF):
        stop = data.index(b"\0", at + 1, end)
        factors[start], _ = uleb(data, stop + (3 if data[at] == 4 else 1), end)
        rows.append(Entry(-1, 0, ("common", bytes(data[at:end]))))
        return end
    text, address = addresses[at]
    (size,) = struct.unpack_from("<Q", data, at + 8)
    rows.append(Entry(text, address, ("range",)))
    rows.append(Entry(text, address + size, ("end",)))
    at += 16
    while at < end:
        first, op = at, data[at]
        at += 1
        if op >> 6 == 1:
            address += (op & 0x3F) * factors[owner]
        elif op in _ADVANCE_SIZES:
            width = _ADVANCE_SIZES[op]
            address += int.from_bytes(data[at : at + width], "little") * factors[owner]
            at += width
        else:
            numbers = 1 if op >> 6 == 2 else 0 if op >> 6 == 3 or op in (0x00, 0x0A, 0x0B) else _SKIP_NUMBERS[op]
            for _ in range(numbers):
                at = skip(data, at, end)
            rows.append(Entry(text, address, (bytes(data[first:at]),)))
    return end
