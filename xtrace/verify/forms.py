"""Shapes of probe words that the disassembler accepts and the hardware does not: misaligned registers.

A misaligned pair or quad is an illegal instruction at run time; the vendor's disassembler prints it without complaint.
"""

from __future__ import annotations

import re

from xtrace.isa.model import Instruction

__all__ = ["misaligned", "stored"]

_REGISTER = re.compile(r"(U?R)(\d+)")
_PAIR = re.compile(r"\[(?:RZ\.U32\+)?(U?R\d+)")


def stored(ins: Instruction) -> int | None:
    """Number of the first general register that a store stores; None for zeros."""
    match = _REGISTER.fullmatch(ins.text.rsplit(",", 1)[-1].strip(" ;"))
    return None if match is None else int(match[2])


def misaligned(ins: Instruction) -> str:
    """The first register of ``ins`` that must start a pair or quad and does not; empty when all is well."""
    text = ins.text.split(" ", 1)[1] if ins.text.startswith("@") else ins.text
    opcode, _, rest = text.strip().partition(" ")
    base, *mods = opcode.split(".")
    operands = [part.strip() for part in rest.split(",")]
    width = 4 if "128" in mods else 2 if "64" in mods else 1
    wanted: list[tuple[str, int]] = []
    if base == "STG":
        wanted.append((operands[-1], width))
        wanted += [(pair, 2) for pair in _PAIR.findall(operands[0])]
    elif base == "CS2R":
        wanted.append((operands[0], 1 if "32" in mods else 2))
    elif base in ("LDC", "ULDC"):
        wanted.append((operands[0], width))
    elif "WIDE" in mods and len(operands) >= 4:
        wanted += [(operands[0], 2), (operands[3], 2)]
    elif base in ("UIADD3", "UMOV") and width == 2:
        wanted += [(operand, 2) for operand in operands]
    for operand, size in wanted:
        if (match := _REGISTER.fullmatch(operand)) and int(match[2]) % size:
            return operand
    return ""
