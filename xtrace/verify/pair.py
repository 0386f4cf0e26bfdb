"""One kernel in both files, decoded and aligned: what all checks look at."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xtrace.isa.model import Flow, Instruction
from xtrace.verify.align import Alignment
from xtrace.verify.certificate import Findings, KernelCounts, Promise
from xtrace.verify.program import Program

if TYPE_CHECKING:
    from xtrace.image import Kernel
    from xtrace.isa import Isa

__all__ = ["Pair", "code_words", "is_return_literal", "masked_word", "plain_text"]

_IMM_MASK = 0xFFFFFFFF << 32
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
    return_points: frozenset[int]  # byte offsets behind the kernel's calls

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


def is_return_literal(word: int, return_points: frozenset[int]) -> bool:
    """``MOV R, imm32`` whose immediate is the address behind a call of this kernel (facts: 4.4)."""
    return word & 0xFFF in _MOV_IMM and (word & _IMM_MASK) >> 32 in return_points


def masked_word(word: int, isa: Isa, literals: frozenset[int]) -> int:
    """The word with its code address blanked. ``literals`` are the immediates that count as return addresses."""
    word &= ~isa.code_field_mask(word)
    return word & ~_IMM_MASK if is_return_literal(word, literals) else word


def plain_text(ins: Instruction) -> str:
    """Disassembly with the code address at its end removed, so that moved code compares equal."""
    return _ADDRESS.sub("@", ins.text) if ins.flow is not Flow.FALL or ins.target is not None else ins.text


def call_returns(code: Sequence[Instruction]) -> frozenset[int]:
    """Byte offsets of the instructions behind calls: where a callee's return address may point."""
    return frozenset(ins.pc + ins.size for ins in code if ins.flow is Flow.CALL)
