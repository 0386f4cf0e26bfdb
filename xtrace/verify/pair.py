"""One kernel in both files, decoded and aligned: what all checks look at."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xtrace.isa.model import Flow, Instruction
from xtrace.verify.align import Alignment
from xtrace.verify.certificate import Findings, KernelCounts, Promise
from xtrace.verify.program import Program

if TYPE_CHECKING:
    from xtrace.image import Kernel
    from xtrace.isa import Isa

__all__ = ["IMMEDIATE", "Pair", "code_words", "literal_keys", "masked_word", "plain_text", "return_literals"]

IMMEDIATE = 0xFFFFFFFF << 32
_LITERAL_REACH = 40  # instructions; the longest seen is about 32
_MOV_IMM = {0x802, 0x882}  # MOV R, imm32 and UMOV UR, imm32
_ADDRESS = re.compile(r"(0x[0-9a-f]+|`\([^)]*\))\s*$")


@dataclass
class Pair:
    """Everything known about one kernel. ``claim`` is the kernel's entry of the trace map, ``None`` without a map."""

    before: Kernel
    after: Kernel
    isa: Isa
    original: Program
    output: Program
    align: Alignment
    claim: dict[str, Any] | None
    findings: Findings
    counts: KernelCounts
    literals: dict[int, int]  # original index of a return-address literal -> the address

    @property
    def name(self) -> str:
        return self.before.name

    @property
    def word_bytes(self) -> int:
        return self.isa.word_bytes

    def instr_off(self, old: int) -> int:
        """New byte offset of the instruction that stood at ``old``; the text size maps to the new text size."""
        return self.align.instr_index(old // self.word_bytes) * self.word_bytes

    def target_off(self, old: int) -> int:
        """New byte offset of the first word of the island before the instruction that stood at ``old``."""
        return self.align.target_index(old // self.word_bytes) * self.word_bytes

    def row_off(self, old: int) -> int:
        """The same for a row of a debug table: the first begins with the first instruction where there is a copy."""
        return self.align.row_index(old // self.word_bytes) * self.word_bytes

    def fail(self, promise: Promise, why: str, ins: Instruction | None = None, *, side: str = "traced") -> None:
        if ins is None:
            self.findings.fail(promise, self.name, why)
        else:
            self.findings.fail(promise, self.name, why, ins.pc, ins.text, side)

    def skip(self, promise: Promise, why: str) -> None:
        self.findings.skip(promise, self.name, why)


def code_words(text: bytes, word_bytes: int) -> list[int]:
    """The text section as integers; an incomplete last word is dropped (its own check reports it)."""
    return [
        int.from_bytes(text[i : i + word_bytes], "little") for i in range(0, len(text) - word_bytes + 1, word_bytes)
    ]


def return_literals(code: Sequence[Instruction]) -> dict[int, int]:
    """Instructions that load the address behind a call of this kernel: index -> that address (facts: 4.4).

    Found by value and by flow: a move of exactly that number, in the straight line before the call, whose register
    nothing else writes until then. The same number anywhere else is an ordinary constant.
    """
    found: dict[int, int] = {}
    for call in code:
        if call.flow is not Flow.CALL:
            continue
        point, written = call.pc + call.size, 0
        for ins in reversed(code[max(call.index - _LITERAL_REACH, 0) : call.index]):
            if ins.flow is not Flow.FALL and not ins.conditional:
                break
            if ins.word & 0xFFF in _MOV_IMM and ins.word >> 32 & 0xFFFFFFFF == point and not ins.writes & written:
                found[ins.index] = point
                break
            written |= ins.writes
    return found


def literal_keys(code: Sequence[Instruction], literals: Iterable[int]) -> frozenset[int]:
    """Words of the return-address literals with the number blanked."""
    return frozenset(code[i].word & ~IMMEDIATE for i in literals)


def masked_word(word: int, isa: Isa, keys: frozenset[int]) -> int:
    """The word with its code address blanked; ``keys`` are the words that may hold a return address."""
    word &= ~isa.code_field_mask(word)
    return word & ~IMMEDIATE if word & ~IMMEDIATE in keys else word


def plain_text(ins: Instruction) -> str:
    """Disassembly with the code address at its end removed, so that moved code compares equal."""
    return _ADDRESS.sub("@", ins.text) if ins.flow is not Flow.FALL or ins.target is not None else ins.text
