"""Call frame tables (``.debug_frame``) of moved code.

An entry covers a range of code and holds rows, each starting a given distance after the last. Ranges and distances are
rewritten in place; ptxas writes every distance as a 32-bit advance, so nothing grows. Format: DWARF section 6.4.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from xtrace.errors import BadInput, Unsupported
from xtrace.image.leb import skip, uleb

__all__ = ["move_frames"]

_ADVANCE = {0x02: "<B", 0x03: "<H", 0x04: "<I"}
#: Operand kinds of the other call frame instructions: u = LEB128 number, b = block, a = address.
_OPERANDS = {
    0x00: "", 0x05: "uu", 0x06: "u", 0x07: "u", 0x08: "u", 0x09: "uu", 0x0A: "", 0x0B: "", 0x0C: "uu", 0x0D: "u",
    0x0E: "u", 0x0F: "b", 0x10: "ub", 0x11: "uu", 0x12: "uu", 0x13: "u", 0x14: "uu", 0x15: "uu", 0x16: "ub",
}  # fmt: skip
AddressMap = Callable[[int], int]


def move_frames(data: bytes, starts: Mapping[int, tuple[int, AddressMap]], where: str) -> bytes:
    """Rewrite a frame section; its size does not change.

    ``starts`` gives, for the offset of every relocated address, the old address and the map to apply. The address
    itself is left to the relocation. Raises ``BadInput`` XT1018 for a malformed table, ``Unsupported`` XT1108 for an
    entry that cannot be rewritten in place.
    """
    out = bytearray(data)
    factors: dict[int, int] = {}
    at = 0
    try:
        while at < len(data):
            at = _entry(data, out, at, factors, starts, where)
    except (struct.error, IndexError) as error:
        raise BadInput("XT1018", "frame table is cut off", where=f"{where} @{at:#x}") from error
    return bytes(out)


def _entry(
    data: bytes,
    out: bytearray,
    start: int,
    factors: dict[int, int],
    starts: Mapping[int, tuple[int, AddressMap]],
    where: str,
) -> int:
    length: int = struct.unpack_from("<I", data, start)[0]
    wide = length == 0xFFFFFFFF
    at = start + 4
    if wide:
        (length,) = struct.unpack_from("<Q", data, at)
        at += 8
    end = at + length
    word = "<Q" if wide else "<I"
    (owner,) = struct.unpack_from(word, data, at)
    at += 8 if wide else 4
    if end > len(data) or at > end:
        raise BadInput("XT1018", "frame entry reaches beyond its section", where=f"{where} @{start:#x}")
    if owner == (0xFFFFFFFFFFFFFFFF if wide else 0xFFFFFFFF):
        factors[start] = _common(data, at, end, where)
        return end
    known, factor = starts.get(at), factors.get(owner)
    if known is None or factor is None:
        raise Unsupported("XT1108", "frame entry is tied to no kernel", where=f"{where} @{start:#x}")
    begin, mapping = known
    (size,) = struct.unpack_from("<Q", data, at + 8)
    struct.pack_into("<Q", out, at + 8, mapping(begin + size) - mapping(begin))
    _rows(data, out, at + 16, end, begin, factor, mapping, where)
    return end


def _common(data: bytes, at: int, end: int, where: str) -> int:
    """Code alignment factor of a common entry."""
    version = data[at]
    stop = data.find(b"\0", at + 1, end)
    if stop < 0 or version not in (1, 3, 4):
        raise Unsupported("XT1108", "frame table has an unknown version", where=f"{where} @{at:#x}")
    factor, _ = uleb(data, stop + (3 if version == 4 else 1), end)
    if not factor:
        raise BadInput("XT1018", "frame table has a zero code unit", where=f"{where} @{at:#x}")
    return factor


def _rows(
    data: bytes, out: bytearray, at: int, end: int, begin: int, factor: int, mapping: AddressMap, where: str
) -> None:
    old, new = begin, mapping(begin)
    while at < end:
        opcode = data[at]
        here, at = at, at + 1
        high = opcode & 0xC0
        if high == 0x40 or opcode in _ADVANCE:
            form = _ADVANCE.get(opcode)
            delta = struct.unpack_from(form, data, at)[0] if form else opcode & 0x3F
            old += delta * factor
            moved, rest = divmod(mapping(old) - new, factor)
            new = mapping(old)
            limit = 256 ** struct.calcsize(form) if form else 64
            if rest or not 0 <= moved < limit:
                raise Unsupported("XT1108", "frame row moved too far for its encoding", where=f"{where} @{here:#x}")
            if form:
                struct.pack_into(form, out, at, moved)
                at += struct.calcsize(form)
            else:
                out[here] = 0x40 | moved
        elif high == 0x80:
            at = skip(data, at, end)
        elif high == 0xC0:
            continue
        else:
            at = _operands(data, at, end, _OPERANDS.get(opcode), where)


def _operands(data: bytes, at: int, end: int, kinds: str | None, where: str) -> int:
    if kinds is None:
        raise Unsupported("XT1108", "frame table has an unknown instruction", where=f"{where} @{at - 1:#x}")
    for kind in kinds:
        if kind == "u":
            at = skip(data, at, end)
        else:
            size, at = uleb(data, at, end)
            at += size
    if at > end:
        raise BadInput("XT1018", "frame instruction reaches beyond its entry", where=f"{where} @{at:#x}")
    return at
