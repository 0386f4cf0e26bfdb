"""Scheduling fields of an instruction word: bits 105-124, identical on sm_75 to sm_121.

==========  =====================================================================================
bits        meaning
==========  =====================================================================================
105-108     stall count; together with bit 109 the decoder accepts exactly 0-15 and 17-27
109         0: may switch warps after this instruction, 1: stay on this warp
110-112     write scoreboard, 7 = none
113-115     read scoreboard, 7 = none
116-121     wait mask, bit k = wait for scoreboard k
122-124     operand reuse flags (bit 109 set) or batch hint (bit 109 clear)
125-127     not decoded; kept as found
==========  =====================================================================================

Found by toggling every bit and reading what the vendor's disassembler accepts.
"""

from __future__ import annotations

from xtrace.errors import BadInput
from xtrace.isa.model import Control

__all__ = ["CONTROL_MASK", "SCOREBOARDS", "decode", "encode", "replace"]

SCOREBOARDS = 6
_FIRST = 105
CONTROL_MASK = ((1 << 20) - 1) << _FIRST
_NONE = 7
_LONGEST_STAY = 11  # a stall of 12-15 exists only with bit 109 clear


def decode(word: int) -> Control:
    """Scheduling fields of ``word``. Total: fields that the hardware rejects come out as the raw numbers."""
    field = word >> _FIRST
    write = field >> 5 & 7
    read = field >> 8 & 7
    return Control(
        stall=field & 15,
        yields=not field >> 4 & 1,
        write_sb=None if write == _NONE else write,
        read_sb=None if read == _NONE else read,
        wait_mask=field >> 11 & 63,
        reuse=field >> 17 & 7,
    )


def encode(control: Control) -> int:
    """The control bits of a word, in place (or them into a word whose control bits are zero).

    Raises :class:`~xtrace.errors.BadInput` XT2101 for values that the hardware cannot hold.
    """
    for name, index in (("write", control.write_sb), ("read", control.read_sb)):
        if index is not None and not 0 <= index < SCOREBOARDS:
            raise BadInput("XT2101", f"{name} scoreboard {index} does not exist", hint=f"0-{SCOREBOARDS - 1} or None")
    if not 0 <= control.stall <= 15 or (not control.yields and not 1 <= control.stall <= _LONGEST_STAY):
        stay = "" if control.yields else " without a warp switch"
        raise BadInput("XT2101", f"stall count {control.stall}{stay} cannot be encoded")
    if not 0 <= control.wait_mask < 1 << SCOREBOARDS or not 0 <= control.reuse < 8:
        raise BadInput("XT2101", f"wait mask {control.wait_mask:#x} or reuse flags {control.reuse:#x} out of range")
    field = control.stall | (0 if control.yields else 16)
    field |= (_NONE if control.write_sb is None else control.write_sb) << 5
    field |= (_NONE if control.read_sb is None else control.read_sb) << 8
    field |= control.wait_mask << 11 | control.reuse << 17
    return field << _FIRST


def replace(word: int, control: Control) -> int:
    """``word`` with its scheduling fields replaced; bits 125-127 stay."""
    return word & ~CONTROL_MASK | encode(control)
