"""What the words of probe code occupy, read from the finished words: issue cycles, scoreboards, the memory pipe.

Release times are medians that were measured on an H200 by others (facts in docs/cost-model.md); nothing but the words
themselves is needed, so they hold for whatever emitted them.
"""

from __future__ import annotations

from dataclasses import dataclass

from . import control

__all__ = ["Occupation", "occupation", "release_cycles"]

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


def release_cycles(word: int) -> int:
    """Cycles from issue until a scoreboard that the instruction claims is released, as modelled."""
    opcode = word & _OPCODE
    if opcode == _STORE:
        return _ONE_LANE[_stored(word)] if _guarded(word) else _ALL_LANES
    return _SPECIAL.get(opcode, _UNKNOWN)


def occupation(word: int) -> Occupation:
    """What ``word`` occupies. Words that are not known to be stores or special registers count as plain ones."""
    fields = control.decode(word)
    claims = tuple(sb for sb in (fields.write_sb, fields.read_sb) if sb is not None)
    slots = 0
    if word & _OPCODE == _STORE:
        slots = 1 if _guarded(word) else _LANES * _stored(word) // _SECTOR
    return Occupation(max(fields.stall, 1), fields.wait_mask, claims, release_cycles(word) if claims else 0, slots)


def _stored(word: int) -> int:
    return _STORE_BYTES.get(word >> 73 & 7, 16)


def _guarded(word: int) -> bool:
    return word >> 12 & 7 != _UNGUARDED
