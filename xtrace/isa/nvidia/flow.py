"""Code addresses inside instruction words: reading them, moving them.

Two kinds of words hold a code address:

* *direct*: the distance from the next instruction to the target (branches, calls, BSSY, collective WARPSYNC, LEPC);
* *anchored*: a distance that is added to a register which itself holds a text offset. The sum
  ``next pc + field`` is the anchor, and it must stay where it was when the instruction moves.

Words that hold an absolute address, or take part in address arithmetic that cannot be followed, are *pinned*: code
that contains them cannot be moved. Field positions were established bit by bit against the disassembler.
"""

from __future__ import annotations

from dataclasses import dataclass

from xtrace.errors import BadInput, Refused
from xtrace.isa.model import Flow
from xtrace.isa.nvidia.families import Family

__all__ = [
    "WORD_BYTES",
    "CodeField",
    "code_field",
    "code_field_mask",
    "flow_of",
    "retarget",
    "shown_address",
    "target_of",
]

WORD_BYTES = 16


@dataclass(frozen=True, slots=True)
class CodeField:
    """Where a word holds a signed code distance: pieces from low to high, and the unit in bytes."""

    pieces: tuple[tuple[int, int], ...]  # (first bit, width)
    scale: int
    anchored: bool = False

    @property
    def width(self) -> int:
        return sum(width for _, width in self.pieces)

    @property
    def mask(self) -> int:
        return sum(((1 << width) - 1) << first for first, width in self.pieces)

    def read(self, word: int) -> int:
        """The distance in bytes."""
        value, at = 0, 0
        for first, width in self.pieces:
            value |= (word >> first & ((1 << width) - 1)) << at
            at += width
        if value >> (at - 1):
            value -= 1 << at
        return value * self.scale

    def write(self, word: int, distance: int) -> int:
        """``word`` with the distance replaced. Raises :class:`~xtrace.errors.Refused` XT2202 if it does not fit."""
        units, rest = divmod(distance, self.scale)
        if rest or not -(1 << (self.width - 1)) <= units < 1 << (self.width - 1):
            raise Refused("XT2202", f"code distance {distance:#x} does not fit a {self.width}-bit field")
        word &= ~self.mask
        for first, width in self.pieces:
            word |= (units & ((1 << width) - 1)) << first
            units >>= width
        return word


_BRANCH = {
    low: CodeField(pieces=((16, 8), (34, 48)) if low else ((34, 48),), scale=4) for low in (0, 8)
}  # keyed by Family.branch_low
_ANCHOR = {low: CodeField(field.pieces, field.scale, anchored=True) for low, field in _BRANCH.items()}
_WIDEST = _BRANCH[8]
_BSSY = CodeField(pieces=((34, 30),), scale=4)  # not the branch layout, on any family
_LEPC = CodeField(pieces=((24, 58),), scale=1)

_DIRECT = {0x947: Flow.BRANCH, 0x547: Flow.BRANCH, 0x944: Flow.CALL}  # BRA, BRA.U UP, CALL.REL
_ANCHORED = {0x949: Flow.INDIRECT, 0x958: Flow.INDIRECT, 0x344: Flow.INDIRECT}  # BRX, BRXU, CALL.REL R
_CALL_ABSOLUTE = (0x343, 0xA43)  # through a register, through a constant
_SHOWN_AS_DISTANCE = (0x949, 0x958)  # BRX, BRXU
_RET = 0x950
_WARPSYNC = (0x948, 0x348)
_COLLECTIVE = 2  # value of bits 85-86
_PINNED = {
    0x94A: Flow.INDIRECT,  # JMP
    0x94C: Flow.INDIRECT,  # JMX
    0x959: Flow.INDIRECT,  # JMXU
    0x943: Flow.INDIRECT,  # CALL.ABS, immediate
    0x34E: Flow.FALL,  # LEPC without a distance: the difference is added later by arithmetic
    0x352: Flow.FALL,  # RPCMOV and friends
    0x353: Flow.FALL,
    0x354: Flow.FALL,
    0x952: Flow.FALL,
    0x953: Flow.FALL,
    0x954: Flow.FALL,
}
_EXIT = (0x94D, 0x95B)  # EXIT, KILL
_ABSOLUTE_BIT = 85  # of RET: absolute form


def _pinned(word: int) -> bool:
    return word & 0xFFF in _PINNED or (_absolute(word) and _WIDEST.read(word) != 0)


def _absolute(word: int) -> bool:
    """Goes to a virtual address in a register or constant: movable, as no part of the word depends on its place."""
    opcode = word & 0xFFF
    return opcode in _CALL_ABSOLUTE or (opcode == _RET and bool(word >> _ABSOLUTE_BIT & 1))


def code_field(word: int, family: Family) -> CodeField | None:
    """The code-address field of ``word``; None if it holds none (or is pinned)."""
    opcode = word & 0xFFF
    if opcode in _DIRECT:
        return _BRANCH[family.branch_low]
    if opcode == 0x945:
        return _BSSY
    if opcode in _WARPSYNC:
        return _BRANCH[family.branch_low] if word >> 85 & 3 == _COLLECTIVE else None
    if opcode in _ANCHORED or (opcode == _RET and not _absolute(word)):
        return _ANCHOR[family.branch_low]
    if opcode == 0x94E:
        return _LEPC
    return None


def code_field_mask(word: int, family: Family) -> int:
    """Bits of ``word`` that hold a code address; 0 if none."""
    field = code_field(word, family)
    return field.mask if field else 0


def flow_of(word: int, family: Family) -> tuple[Flow, bool]:
    """What ``word`` does to the program counter, and whether it is pinned. Guards are not considered."""
    opcode = word & 0xFFF
    if _pinned(word):
        return _PINNED.get(opcode, Flow.RETURN), True
    if opcode in _EXIT:
        return Flow.EXIT, False
    if opcode in _DIRECT:
        return _DIRECT[opcode], False
    if opcode in _ANCHORED:
        return _ANCHORED[opcode], False
    if opcode == _RET:
        return Flow.RETURN, False
    if opcode in _CALL_ABSOLUTE:
        return Flow.INDIRECT, False
    if code_field(word, family):
        return Flow.PUSH, False
    return Flow.FALL, False


def target_of(word: int, pc: int, family: Family) -> int | None:
    """Byte offset that a direct code field points to; None for every other word."""
    field = code_field(word, family)
    if field is None or field.anchored:
        return None
    return pc + WORD_BYTES + field.read(word)


def shown_address(word: int, pc: int, family: Family) -> int | None:
    """The address that a disassembly prints for ``word`` at ``pc``, modulo 2**64; None if it prints none."""
    field = code_field(word, family)
    if field is None or word & 0xFFF in _SHOWN_AS_DISTANCE:
        return None
    return pc + WORD_BYTES + field.read(word)


def retarget(word: int, old_pc: int, new_pc: int, new_target: int | None, family: Family) -> int:
    """``word`` moved from ``old_pc`` to ``new_pc``, pointing at ``new_target`` (byte offsets).

    ``new_target`` is None for words without an address and for anchored ones, whose anchor is kept. Raises
    :class:`~xtrace.errors.Refused` XT2201 for pinned words, XT2202 if the distance does not fit, and
    :class:`~xtrace.errors.BadInput` XT2203 if ``new_target`` is given (or missing) against the word's kind.
    """
    if _pinned(word):
        raise Refused(
            "XT2201",
            f"instruction {word & 0xFFF:#05x} holds a code address that cannot be moved",
            where=f"pc {old_pc:#x}",
            hint="the kernel uses absolute jumps; it cannot be traced",
        )
    field = code_field(word, family)
    if field is None or field.anchored:
        if new_target is not None:
            raise BadInput("XT2203", "a target was given for a word that holds none", where=f"pc {old_pc:#x}")
        return word if field is None else field.write(word, field.read(word) + old_pc - new_pc)
    if new_target is None:
        raise BadInput("XT2203", "a direct branch was moved without naming its target", where=f"pc {old_pc:#x}")
    return field.write(word, new_target - new_pc - WORD_BYTES)
