"""What must be equal for an instruction to count as preserved, level by level.

Each level's key is a function of the finer level's key, so the shares can only grow from
``strict`` to ``opcode``. The definitions follow DESIGN.md section 3; `.reuse` is a scheduling flag
of the control field that the disassembler happens to print among the operands, so it counts for
``strict`` and ``relocated`` only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from xtrace.isa.model import Flow, Instruction

__all__ = ["LEVELS", "CodeFields", "form_key", "masked_key", "opcode_key", "operands_key", "without_padding"]

LEVELS = ("strict", "relocated", "operands", "form", "opcode")

_SYMBOLIC = re.compile(r"`\([^)]*\)|\.L_x?_?\d+")
_HEX = re.compile(r"-?0x[0-9a-f]+")
_NUMBERED = re.compile(r"\b(UR|UP|SB|R|P|B|v|s|a)\d+\b")
_RANGE = re.compile(r"\b([vsa])\[\d+:\d+\]")


class CodeFields(Protocol):
    """The part of an instruction set that preservation needs."""

    def code_field_mask(self, word: int) -> int:
        """Bits of ``word`` that hold a code address."""
        ...

    def retarget(self, word: int, old_pc: int, new_pc: int, new_target: int | None) -> int:
        """``word`` moved to ``new_pc``; target None keeps a register jump's anchor."""
        ...


def masked_key(ins: Instruction, isa: CodeFields) -> tuple[int, int]:
    """The word without its code-address bits, and which bits those are."""
    mask = isa.code_field_mask(ins.word)
    return ins.word & ~mask, mask


def operands_key(ins: Instruction, isa: CodeFields) -> str:
    """Guard, opcode and operands with code addresses blanked and without ``.reuse``."""
    text = _SYMBOLIC.sub("LABEL", ins.text.replace(".reuse", ""))
    if isa.code_field_mask(ins.word):
        label = re.escape(f"0x{ins.target:x}") + r"\b" if ins.target is not None else _HEX.pattern
        text = re.sub(label, "LABEL", text)
    if ins.guard and not text.startswith(ins.guard):
        text = f"{ins.guard} {text}"
    return " ".join(text.split())


def form_key(operands: str) -> str:
    """An :func:`operands_key` with the numbers of registers, predicates and barriers blanked."""
    return _NUMBERED.sub(r"\1#", _RANGE.sub(r"\1[#]", operands))


def opcode_key(ins: Instruction) -> str:
    """Opcode with its modifiers."""
    return ins.opcode


def without_padding(instructions: Sequence[Instruction]) -> Sequence[Instruction]:
    """``instructions`` without the trailing NOPs and jumps to themselves that only fill the section."""
    stop = len(instructions)
    while stop and _is_padding(instructions[stop - 1]):
        stop -= 1
    return instructions[:stop]


def _is_padding(ins: Instruction) -> bool:
    if ins.base in ("NOP", "s_nop", "s_code_end"):
        return True
    return ins.flow is Flow.BRANCH and not ins.guard and ins.target == ins.pc
