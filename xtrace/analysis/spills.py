"""Stack slots that a kernel spills registers to, as far as they can be told apart by the instructions alone."""

from __future__ import annotations

import re

from xtrace.isa.model import Instruction, RegisterLayout

from .cfg import ControlFlow

__all__ = ["spill_slots"]

_SIZE = r"(?:\.LU|\.EL|\.LRU)?(?:\.(64|128))?"
_PLACE = r"\[R1(?:\+(0x[0-9a-f]+))?\]"
_FILL = re.compile(rf"LDL{_SIZE} R(?P<data>\d+|Z), {_PLACE}[\s;]*$")
_SPILL = re.compile(rf"STL{_SIZE} {_PLACE}, R(?P<data>\d+|Z)(?:\.reuse)?[\s;]*$")
_STACK_POINTER = 1
_WORD = 4
_MOST_BYTES = 1 << 14


def spill_slots(cfg: ControlFlow, layout: RegisterLayout) -> dict[int, int]:
    """The slots that each spill or fill touches, as a bit set above the registers' own bits.

    Empty unless every access to local memory is at a known place of a stack frame that the kernel sets up once, before
    the first of them, and unless nothing else uses the stack pointer: then no other instruction can change a slot.
    """
    local = [ins for ins in cfg.instructions if ins.base in ("LDL", "STL") or ins.tags & {"local_load", "local_store"}]
    if not local:
        return {}
    pointer = layout["R"].bit(_STACK_POINTER)
    found: dict[int, int] = {}
    for ins in local:
        bits = _slots(ins, layout.everything.bit_length())
        if not bits:
            return {}
        found[ins.index] = bits
    first = min(found)
    for ins in cfg.instructions:
        used = (ins.reads | ins.writes) & pointer and ins.index not in found
        if ins.opaque or (used and (not ins.writes & pointer or cfg.block_of[ins.index] != 0 or ins.index > first)):
            return {}
    return found


def _slots(ins: Instruction, base: int) -> int:
    match = (_FILL if ins.base == "LDL" else _SPILL).search(ins.text)
    if match is None:
        return 0
    size, place = (match[1], match[3]) if ins.base == "LDL" else (match[1], match[2])
    words, offset = int(size or "32") // 32, int(place or "0", 16)
    data = range(0) if match["data"] == "Z" else range(int(match["data"]), int(match["data"]) + words)
    if offset % (words * _WORD) or offset >= _MOST_BYTES or _STACK_POINTER in data:
        return 0
    return ((1 << words) - 1) << base + offset // _WORD
