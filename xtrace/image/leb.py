"""LEB128 numbers of DWARF, bounded."""

from __future__ import annotations

from xtrace.errors import BadInput

__all__ = ["skip", "uleb", "write_uleb"]

MAX_BYTES = 10  # 64 bits


def skip(data: bytes, at: int, end: int) -> int:
    """Offset behind the LEB128 number at ``at``. Raises ``BadInput`` XT1018 when it does not end in time."""
    for i in range(at, min(end, at + MAX_BYTES)):
        if not data[i] & 0x80:
            return i + 1
    raise BadInput("XT1018", "debug table holds a malformed number", where=f"table offset {at:#x}")


def uleb(data: bytes, at: int, end: int) -> tuple[int, int]:
    """(value, offset behind it)."""
    stop = skip(data, at, end)
    value = 0
    for shift, byte in enumerate(data[at:stop]):
        value |= (byte & 0x7F) << 7 * shift
    return value, stop


def write_uleb(value: int) -> bytes:
    out = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)
