"""What the words of probe code occupy, read from the finished words: issue cycles, scoreboards, the memory pipe.

Release times are medians that were measured on an H200 by others (facts in docs/cost-model.md); nothing but the words
themselves is needed, so they hold for whatever emitted them.
"""

from __future__ import annotations

from dataclasses import dataclass

from . import control

__all__ = ["Occupation", "issue_cycles", "occupation"]

_OPCODE = 0xFFF
_STORE = 0x986  # STG [UR + immediate]
_S2R, _S2UR = 0x919, 0x9C3
_UNGUARDED = 7

# Cycles from issue until the scoreboard is released.
_STORE_BYTES = {4: 4, 5: 8, 6: 16}  # size field, bits 73-75
_ONE_LANE = {4: 14, 8: 16, 16: 34}
_ALL_LANES = 341  # the smaller of two medians; they were measured with all lanes storing to one address
_SPECIAL = {_S2R: 27, _S2UR: 37}
_UNKNOWN = 34  # memory instructions that are not listed: as the widest store of one lane
_LANES = 32
_SECTOR = 32  # bytes that the memory pipe takes in one step from lanes that stand next to each other


@dataclass(frozen=True, slots=True)
class Occupation:
    """One probe word."""

    issue: int  # cycles until the next word may issue
    waits: int  # scoreboards that it waits for (bit set)
    claims: tuple[int, ...]  # scoreboards that it claims
    release: int  # cycles from issue until they are released
    slots: int  # memory-pipe slots of a store: one for one lane, one a sector for all of them; 0: no store
    stored: int  # bytes that one lane stores


def issue_cycles(word: int) -> int:
    """Issue distance from this instruction to the next, at least 1."""
    return max(word >> 105 & 15, 1)


def occupation(word: int) -> Occupation:
    """What ``word`` occupies. Words that are not known to be stores or special registers count as plain ones."""
    fields = control.decode(word)
    claims = tuple(sb for sb in (fields.write_sb, fields.read_sb) if sb is not None)
    opcode = word & _OPCODE
    slots = stored = 0
    release = _SPECIAL.get(opcode, _UNKNOWN) if claims else 0
    if opcode == _STORE:
        stored = _STORE_BYTES.get(word >> 73 & 7, 16)
        guarded = word >> 12 & 7 != _UNGUARDED
        slots = 1 if guarded else _LANES * stored // _SECTOR
        release = _ONE_LANE[stored] if guarded else _ALL_LANES
    return Occupation(max(fields.stall, 1), fields.wait_mask, claims, release, slots, stored)
