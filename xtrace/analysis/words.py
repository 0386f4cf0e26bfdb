"""32-bit values as the text of instructions names them: copies, parameters and shifts are seen through."""

from __future__ import annotations

import re
from typing import NamedTuple

from xtrace.isa.model import Instruction
from xtrace.isa.protocol import Isa

from .cfg import ControlFlow
from .values import Values, Written

__all__ = ["IMMEDIATE", "REGISTER", "Constant", "Operation", "Parameter", "Shifted", "Word", "Words"]

_LIST = re.compile(r",\s*")
_PREDICATE = re.compile(r"!?U?P(\d|T)")
IMMEDIATE = re.compile(r"-?0x[0-9a-f]+")
_PARAMETER = re.compile(r"c\[0x0\]\[(0x[0-9a-f]+)\]")
REGISTER = re.compile(r"(U?)R(\d+)")
_COPIES = frozenset({"copy_async", "global_load"})


class Constant(NamedTuple):
    value: int


class Parameter(NamedTuple):
    """32 bits of constant bank 0."""

    offset: int


class Shifted(NamedTuple):
    """The low half of a value shifted to the left."""

    of: Word
    by: int


Word = Constant | Parameter | Shifted | Written


class Operation:
    """Mnemonic, modifiers and operands of an instruction's text."""

    def __init__(self, ins: Instruction) -> None:
        text = ins.text.strip().rstrip(";").strip()
        self.guarded = text.startswith("@")
        opcode, _, rest = text.split(" ", 1)[-1].strip().partition(" ") if self.guarded else text.partition(" ")
        self.base, *self.modifiers = opcode.split(".")
        self.operands = [x.strip().removesuffix(".reuse") for x in _LIST.split(rest)] if rest else []

    def plain(self) -> list[str]:
        """Operands that are no predicates."""
        return [x for x in self.operands if not _PREDICATE.fullmatch(x)]

    def predicates(self) -> list[str]:
        return [x for x in self.operands if _PREDICATE.fullmatch(x)]


class Words:
    """What registers of one kernel hold, found when asked."""

    def __init__(self, cfg: ControlFlow, isa: Isa) -> None:
        self._cfg, self._isa = cfg, isa
        predicates = isa.layout["P"].mask  # those of copies are listed as written, but only read
        self.values = Values(cfg, {ins.index: predicates for ins in cfg.instructions if ins.tags >= _COPIES})
        self._operations: dict[int, Operation] = {}
        self._words: dict[Written, Word] = {}
        self.holders: dict[Word, set[Written]] = {}  # registers, as written somewhere, that hold a word

    def bit(self, name: str) -> int:
        match = REGISTER.fullmatch(name)
        assert match is not None
        return self._isa.layout["UR" if match[1] else "R"].bit(int(match[2]))

    def word(self, index: int, operand: str) -> Word | None:
        """An operand as instruction ``index`` reads it; None where it is no plain 32-bit value."""
        if operand in ("RZ", "URZ"):
            return Constant(0)
        if IMMEDIATE.fullmatch(operand):
            return Constant(int(operand, 16) & 0xFFFFFFFF)
        if match := _PARAMETER.fullmatch(operand):
            return Parameter(int(match[1], 16))
        if REGISTER.fullmatch(operand):
            return self.resolve(self.values.before(index, self.bit(operand)))
        return None

    def resolve(self, written: Written) -> Word:
        """Copies, parameters and shifts are seen through."""
        if written not in self._words:
            self._words[written] = written  # whatever leads back here
            self._words[written] = self._source(written) or written
        word = self._words[written]
        self.holders.setdefault(word, set()).add(written)
        return word

    def _source(self, written: Written) -> Word | None:
        if written.kind != "def":
            return None
        op = self.operation(written.at)
        if op.guarded or not op.operands:
            return None
        o = op.operands
        match op.base, op.modifiers:
            case ("MOV" | "UMOV", []):
                return self.word(written.at, o[1])
            case ("IMAD", ["MOV", "U32"]) if o[1:3] == ["RZ", "RZ"]:
                return self.word(written.at, o[3])
            case ("LDC" | "ULDC", [] | ["64"]):
                match = _PARAMETER.fullmatch(o[1])
                second = written.bit != self.bit(o[0])
                return None if match is None else Parameter(int(match[1], 16) + 4 * second)
            case ("IMAD", ["SHL", "U32"]) if o[3] == "RZ":
                by = int(o[2], 16) if IMMEDIATE.fullmatch(o[2]) else 0
                low = self.word(written.at, o[1])
                if low is not None and by > 1 and not by & (by - 1):
                    return Shifted(low, by.bit_length() - 1)
            case ("SHF" | "USHF", ["L", "U32"]) if o[3] in ("RZ", "URZ") and IMMEDIATE.fullmatch(o[2]):
                low = self.word(written.at, o[1])
                return None if low is None else Shifted(low, int(o[2], 16))
            case ("CS2R", []) if o[1] == "SRZ":
                return Constant(0)
        return None

    def operation(self, index: int) -> Operation:
        if index not in self._operations:
            self._operations[index] = Operation(self._cfg.instructions[index])
        return self._operations[index]
