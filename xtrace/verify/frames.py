"""Stack slots that a kernel spills registers to, told apart by the text of the accesses: the verifier's own reading."""

from __future__ import annotations

import re

from xtrace.isa.model import Instruction
from xtrace.verify.program import Program

__all__ = ["stack_slots"]

_FRAME = re.compile(
    r"\b(?:LDL((?:\.\w+)*) (R\d+|RZ), \[R1(?:\+(0x[0-9a-f]+))?\]"
    r"|STL((?:\.\w+)*) \[R1(?:\+(0x[0-9a-f]+))?\], (R\d+|RZ)(?:\.reuse)?)[\s;]*$"
)


def stack_slots(program: Program) -> dict[int, int]:
    """Stack slots of each LDL and STL as bits above the registers; none at all unless every one of them is known."""
    code, layout = program.code, program.layout
    pointer, top = layout["R"].bit(1), layout.everything.bit_length()
    slots: dict[int, int] = {}
    for ins in code:
        if ins.opaque:
            return {}
        if ins.base in ("LDL", "STL") or ins.tags & {"local_load", "local_store"}:
            found = _slot(ins)
            if found is None:
                return {}
            slots[ins.index] = found << top
    if not slots:
        return {}
    first, head = min(slots), program.blocks()[0]
    for ins in code:
        if (
            ins.index not in slots
            and (ins.reads | ins.writes) & pointer
            and not (ins.writes & pointer and ins.index in head and ins.index < first)
        ):
            return {}
    return slots


def _slot(ins: Instruction) -> int | None:
    """Words of the frame, as bits, that a spill or fill touches; None where it might be another use of the frame."""
    match = _FRAME.search(ins.text)
    if match is None:
        return None
    modifiers = (match[1] or match[4] or "").split(".")
    offset = int(match[3] or match[5] or "0", 16)
    words = 4 if "128" in modifiers else 2 if "64" in modifiers else 1
    register = match[2] or match[6]
    holds_pointer = register != "RZ" and int(register[1:]) <= 1 < int(register[1:]) + words
    if holds_pointer or set(modifiers) & {"U8", "S8", "U16", "S16"} or offset % (4 * words) or offset > 1 << 14:
        return None
    return ((1 << words) - 1) << offset // 4
