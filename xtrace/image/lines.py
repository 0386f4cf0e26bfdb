"""Line tables (``.debug_line``, ``.nv_debug_line_sass``) of moved code.

Every row moves with its instruction; an island gets the line of the instruction it stands before, so no row is added or
lost. The line-number program is rewritten operation by operation: whatever does not advance the address is copied,
advances are replaced only where the distance changed. An unedited sequence therefore comes back byte for byte.
Format: DWARF 2-5, section 6.2 (ptxas writes version 2).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from xtrace.errors import BadInput, Unsupported
from xtrace.image.leb import skip, uleb, write_uleb

__all__ = ["MovedLines", "move_lines"]

COPY, ADVANCE_PC, CONST_ADD_PC, FIXED_ADVANCE_PC = 1, 2, 8, 9
END_SEQUENCE, SET_ADDRESS = 1, 2

#: New address of an old one, inside one sequence.
AddressMap = Callable[[int], int]


@dataclass(slots=True)
class MovedLines:
    """The rewritten section; ``operands`` maps old to new offsets of address operands, ``units`` of whole units."""

    data: bytearray = field(default_factory=bytearray)
    operands: dict[int, int] = field(default_factory=dict)
    units: dict[int, int] = field(default_factory=dict)


def move_lines(data: bytes, sequences: Mapping[int, tuple[int, AddressMap]], where: str) -> MovedLines:
    """Rewrite a line section.

    Parameters
    ----------
    data
        The section's bytes.
    sequences
        For every address operand (its offset in the section): the old address it stands for and the map to apply to the
        rows that follow. The operand's own bytes are left alone; its relocation is the caller's business.
    where
        For messages.

    Raises
    ------
    BadInput
        XT1018 for a malformed table.
    Unsupported
        XT1106 for an address without relocation, XT1107 for a program that goes backwards.
    """
    out = MovedLines()
    at = 0
    while at < len(data):
        out.units[at] = len(out.data)
        at = _unit(data, at, sequences, where, out)
    return out


def _unit(data: bytes, start: int, sequences: Mapping[int, tuple[int, AddressMap]], where: str, out: MovedLines) -> int:
    try:
        length: int = struct.unpack_from("<I", data, start)[0]
        wide = length == 0xFFFFFFFF
        at = start + 4
        if wide:
            (length,) = struct.unpack_from("<Q", data, at)
            at += 8
        end = at + length
        (version,) = struct.unpack_from("<H", data, at)
        at += 4 if version >= 5 else 2
        (header_length,) = struct.unpack_from("<Q" if wide else "<I", data, at)
        at += 8 if wide else 4
        program = at + header_length
        minimum = data[at] if version < 4 or data[at + 1] == 1 else 0  # several operations per word: not ours
        at += 2 if version >= 4 else 1
        _, _, line_range, opcode_base = struct.unpack_from("<BbBB", data, at)
        lengths = data[at + 4 : at + 3 + opcode_base]
    except (struct.error, IndexError) as error:
        raise BadInput("XT1018", "line table is cut off", where=f"{where} @{start:#x}") from error
    if end > len(data) or program > end or not 2 <= version <= 5 or not minimum or not line_range or opcode_base < 10:
        raise BadInput("XT1018", "line table has an impossible header", where=f"{where} @{start:#x}")
    new_start = len(out.data)
    out.data += data[start:program]
    _Program(data, program, end, minimum, line_range, opcode_base, lengths, sequences, where, out).run()
    size = len(out.data) - new_start - (12 if wide else 4)
    struct.pack_into("<Q" if wide else "<I", out.data, new_start + (4 if wide else 0), size)
    return end


@dataclass(slots=True)
class _Program:
    data: bytes
    start: int
    end: int
    minimum: int
    line_range: int
    opcode_base: int
    lengths: bytes
    sequences: Mapping[int, tuple[int, AddressMap]]
    where: str
    out: MovedLines
    old: int = 0  # original address
    last: int = 0  # original address of the last row
    new: int = 0  # its new address
    mapping: AddressMap | None = None
    # operations since the last row: (bytes, advances the address)
    pending: list[tuple[bytes, bool]] = field(default_factory=list)

    def run(self) -> None:
        data, at = self.data, self.start
        while at < self.end:
            opcode, first = data[at], at
            if opcode >= self.opcode_base:
                adjusted = opcode - self.opcode_base
                self.old += adjusted // self.line_range * self.minimum
                at += 1
                self._row(data[first:at], bytes([self.opcode_base + adjusted % self.line_range]), first)
            elif opcode == 0:
                at = self._extended(first)
            elif opcode == COPY:
                at += 1
                self._row(data[first:at], data[first:at], first)
            elif opcode == ADVANCE_PC:
                step, at = uleb(data, at + 1, self.end)
                self._advance(step * self.minimum, data[first:at], first)
            elif opcode == CONST_ADD_PC:
                at += 1
                step = (255 - self.opcode_base) // self.line_range * self.minimum
                self._advance(step, data[first:at], first)
            elif opcode == FIXED_ADVANCE_PC:
                at += 3
                if at > self.end:
                    raise self._bad(first)
                self._advance(int.from_bytes(data[first + 1 : at], "little"), data[first:at], first)
            else:
                at += 1
                for _ in range(self.lengths[opcode - 1]):
                    at = skip(data, at, self.end)
                self.pending.append((data[first:at], False))
        self._flush()

    def _extended(self, first: int) -> int:
        size, at = uleb(self.data, first + 1, self.end)
        stop = at + size
        if not size or stop > self.end:
            raise self._bad(first)
        kind = self.data[at]
        if kind == SET_ADDRESS:
            known = self.sequences.get(at + 1)
            if known is None or size != 9:
                raise Unsupported(
                    "XT1106",
                    "line table has an address that is tied to no kernel",
                    where=f"{self.where} @{at:#x}",
                    hint="strip the line tables or rebuild the image",
                )
            self._flush()
            self.out.operands[at + 1] = len(self.out.data) + at + 1 - first
            self.out.data += self.data[first:stop]
            self.old, self.mapping = known
            self.last, self.new = self.old, self.mapping(self.old)
        elif kind == END_SEQUENCE:
            self._row(self.data[first:stop], self.data[first:stop], first)
            self.old = self.last = self.new = 0
            self.mapping = None
        else:  # file definitions, discriminators, NVIDIA's inlining records: no address
            self.pending.append((self.data[first:stop], False))
        return stop

    def _advance(self, step: int, raw: bytes, at: int) -> None:
        if step < 0 or self.old + step >= 1 << 63:
            raise self._bad(at)
        self.old += step
        self.pending.append((raw, True))

    def _row(self, raw: bytes, without_advance: bytes, at: int) -> None:
        """An operation that makes a row at the current address."""
        if self.mapping is None:
            raise Unsupported("XT1106", "line table row without an address", where=f"{self.where} @{at:#x}")
        target = self.mapping(self.old)
        delta = target - self.new
        if delta < 0:
            raise Unsupported("XT1107", "line table goes backwards", where=f"{self.where} @{at:#x}")
        if self.old - self.last == delta:
            self._flush()
            self.out.data += raw
        else:
            for operation, advances in self.pending:
                if not advances:
                    self.out.data += operation
            self.pending.clear()
            if delta:
                step, rest = divmod(delta, self.minimum)
                if rest:
                    raise Unsupported("XT1107", "line table unit does not divide an offset", where=self.where)
                self.out.data += bytes([ADVANCE_PC]) + write_uleb(step)
            self.out.data += without_advance
        self.new, self.last = target, self.old

    def _flush(self) -> None:
        for operation, _ in self.pending:
            self.out.data += operation
        self.pending.clear()

    def _bad(self, at: int) -> BadInput:
        return BadInput("XT1018", "line table holds a malformed operation", where=f"{self.where} @{at:#x}")
