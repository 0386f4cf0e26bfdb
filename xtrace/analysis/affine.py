"""Addresses as sums: 64-bit values as linear forms (modulo 2**64) over values that nothing more is known of.

Recognised is 64-bit integer arithmetic on register pairs, adjacent or not: additions with carry (IADD3 and IADD3.X or
IMAD.X), LEA and LEA.HI.X, wide multiplications by a constant, shifts to the left, moves, signs, immediates and kernel
parameters. Everything else is an *atom*: a pair of 32-bit values, or one that is extended.

A pair that a loop advances by the same invariant amount in every iteration is what it was in front of the loop, plus
that amount times the number of iterations since: a *counted* term. Terms cancel like any others, so the difference of
two addresses that one loop advances alike has none of them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from xtrace.isa.protocol import Isa

from .cfg import ControlFlow
from .loops import Loop
from .values import Values, Written
from .words import IMMEDIATE, REGISTER, Constant, Operation, Parameter, Shifted, Word, Words

__all__ = ["Affine", "Atom", "Form", "minus"]

_M64 = (1 << 64) - 1
_DEPTH = 64  # of the recursion over definitions


class Atom(NamedTuple):
    """A 64-bit value: ``high << 32 | low``, or ``low`` alone with zeros ("u") or its sign ("s") above it."""

    kind: str  # "pair", "u" or "s"
    low: Word
    high: Word | None = None

    @property
    def words(self) -> tuple[Word, ...]:
        return (self.low,) if self.high is None else (self.low, self.high)


Term = tuple[Atom | None, int | None]  # None: the constant 1; then the head of the loop whose iterations are counted
Form = Mapping[Term, int]


def _sum(*parts: tuple[int, Form]) -> Form:
    out: dict[Term, int] = {}
    for times, form in parts:
        for term, factor in form.items():
            out[term] = (out.get(term, 0) + times * factor) & _M64
    return {term: factor for term, factor in out.items() if factor}


def minus(one: Form, other: Form) -> Form:
    """The difference of two forms."""
    return _sum((1, one), (-1, other))


def _number(value: int) -> Form:
    return {(None, None): value & _M64} if value & _M64 else {}


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 & 1 else value


class Affine:
    """Forms of one kernel."""

    def __init__(self, cfg: ControlFlow, loops: Iterable[Loop], isa: Isa) -> None:
        self._cfg, self._isa = cfg, isa
        self._words = Words(cfg, isa)
        self._loops = {loop.head: loop for loop in loops}
        self._forms: dict[tuple[Word, Word], Form] = {}
        self._expanded: dict[Atom, Form] = {}
        self._busy: set[object] = set()

    @property
    def values(self) -> Values:
        return self._words.values

    @property
    def holders(self) -> Mapping[Word, set[Written]]:
        """Registers, as written somewhere, that are known to hold a word."""
        return self._words.holders

    def at(self, index: int, low: str, high: str) -> Form:
        """The 64-bit value in two registers when control stands before instruction ``index``."""
        words = self._words.word(index, low), self._words.word(index, high)
        assert words[0] is not None
        assert words[1] is not None
        return self.expand(self._pair(words[0], words[1]))

    def _pair(self, low: Word, high: Word) -> Form:
        """Of two words. Pairs that loops advance are still atoms in it."""
        key = low, high
        if key not in self._forms:
            if key in self._busy or len(self._busy) > _DEPTH:
                return {(Atom("pair", low, high), None): 1}
            self._busy.add(key)
            self._forms[key] = self._sum_of(low, high) or {(Atom("pair", low, high), None): 1}
            self._busy.discard(key)
        return self._forms[key]

    def _extended(self, low: Word, *, signed: bool) -> Form:
        if isinstance(low, Constant):
            return _number(_signed(low.value) if signed else low.value)
        return {(Atom("s" if signed else "u", low), None): 1}

    def _sum_of(self, low: Word, high: Word) -> Form | None:
        if isinstance(low, Constant) and isinstance(high, Constant):
            return _number(low.value | high.value << 32)
        if high == Constant(0):
            return self._extended(low, signed=False)
        if not isinstance(high, Written) or high.kind != "def":
            return None
        op = self._words.operation(high.at)
        if op.guarded:
            return None
        match op.base, op.modifiers:
            case "SHF", ["R", "S32", "HI"] if op.operands[1:3] == ["RZ", "0x1f"]:
                return self._extended(low, signed=True) if self._words.word(high.at, op.operands[3]) == low else None
            case "SHF", ["L", "U64", "HI"]:
                return self._shifted(high.at, op, low)
            case "IMAD", ["WIDE"] | ["WIDE", "U32"]:
                return self._product(high, op, low)
            case ("IADD3" | "IMAD" | "LEA", [*_, "X"] | [*_, "X", "SX32"]):
                return self._carried(high.at, op, low)
        return None

    def _shifted(self, index: int, op: Operation, low: Word) -> Form | None:
        if len(op.operands) != 4 or not IMMEDIATE.fullmatch(op.operands[2]):
            return None
        by = int(op.operands[2], 16)
        a, b = self._words.word(index, op.operands[1]), self._words.word(index, op.operands[3])
        if a is None or b is None or low != Shifted(a, by):
            return None
        return _sum((1 << by, self._pair(a, b)))

    def _product(self, high: Written, op: Operation, low: Word) -> Form | None:
        """The same instruction must have written both halves, the low one into the register before."""
        o = op.operands
        if low != Written("def", high.at, high.bit >> 1) or len(o) != 4 or not IMMEDIATE.fullmatch(o[2]):
            return None
        signed = op.modifiers == ["WIDE"]
        a, addend = self._words.word(high.at, o[1]), self.pair_of(high.at, o[3])
        times = int(o[2], 16) & 0xFFFFFFFF
        if a is None or addend is None:
            return None
        return _sum((_signed(times) if signed else times, self._extended(a, signed=signed)), (1, addend))

    def pair_of(self, index: int, operand: str) -> Form | None:
        """An operand of 64 bits: an aligned pair, named by its low register."""
        if operand in ("RZ", "URZ"):
            return {}
        match = REGISTER.fullmatch(operand)
        if match is None:
            return None
        low, high = self._words.word(index, operand), self._words.word(index, f"{match[1]}R{int(match[2]) + 1}")
        return None if low is None or high is None else self._pair(low, high)

    def _carried(self, index: int, op: Operation, low: Word) -> Form | None:
        """A high half with the carry of the instruction that wrote the low one."""
        if not isinstance(low, Written) or low.kind != "def":
            return None
        first = self._words.operation(low.at)
        carries = [p for p in op.predicates() if p not in ("PT", "!PT", "UPT", "!UPT")]
        if first.guarded or len(carries) != 1 or not re.fullmatch(r"P\d", carries[0]):
            return None
        carry = self._isa.layout["P"].bit(int(carries[0][1:]))
        if self.values.before(index, carry) != Written("def", low.at, carry):
            return None
        if len(first.predicates()) != 1 or first.operands[1] != carries[0]:
            return None  # a second carry, or none of this one
        lows = self._low_addends(low.at, first)
        if op.base == "LEA":
            return self._scaled(index, op, low.at, first)
        highs = self._high_addends(index, op)
        return None if lows is None or highs is None else self._paired(lows, highs)

    def _low_addends(self, index: int, op: Operation) -> list[Word] | None:
        """Words that an instruction adds up, at most two of which are not 0: else the carry may be 2."""
        o = op.plain()
        words: list[Word | None]
        if (op.base, op.modifiers) == ("IADD3", []):
            words = [self._words.word(index, x) for x in o[1:]]
        elif (op.base, op.modifiers) == ("LEA", []) and len(o) == 4 and IMMEDIATE.fullmatch(o[3]):
            a = self._words.word(index, o[1])
            words = [None if a is None else Shifted(a, int(o[3], 16)), self._words.word(index, o[2])]
        else:
            return None
        known = [w for w in words if w is not None and w != Constant(0)]
        return known if None not in words and len(known) <= 2 else None

    def _high_addends(self, index: int, op: Operation) -> list[Word] | None:
        o = op.plain()
        words: list[Word | None]
        if op.base == "IADD3" and len(o) == 4:
            words = [self._words.word(index, x) for x in o[1:]]
        elif op.base == "IMAD" and op.modifiers == ["X"] and len(o) == 4 and o[2] in ("0x1", "RZ"):
            words = [self._words.word(index, o[1]) if o[2] == "0x1" else Constant(0), self._words.word(index, o[3])]
        else:
            return None
        known = [w for w in words if w is not None and w != Constant(0)]
        return known if None not in words else None

    def _paired(self, lows: Sequence[Word], highs: Sequence[Word]) -> Form:
        """Which halves belong together does not matter to the sum: those that most is known of."""
        count = max(len(lows), len(highs), 1)
        padded = [*lows, *[Constant(0)] * (count - len(lows))]
        best: Form | None = None
        for order in itertools.permutations([*highs, *[Constant(0)] * (count - len(highs))]):
            total = _sum(*((1, self._pair(a, b)) for a, b in zip(padded, order, strict=True)))
            if best is None or _opaque(total) < _opaque(best):
                best = total
        return best or {}

    def _scaled(self, index: int, op: Operation, at: int, first: Operation) -> Form | None:
        """LEA and LEA.HI.X: a shifted pair, or a 32-bit value with its sign, and another pair."""
        o, f = op.plain(), first.plain()
        if (first.base, first.modifiers) != ("LEA", []) or len(f) != 4 or not IMMEDIATE.fullmatch(f[3]):
            return None
        a, b = self._words.word(at, f[1]), self._words.word(at, f[2])
        wide = op.modifiers == ["HI", "X"]
        if op.modifiers not in (["HI", "X"], ["HI", "X", "SX32"]) or len(o) != 4 + wide or o[3 + wide] != f[3]:
            return None
        top, high = self._words.word(index, o[3]) if wide else a, self._words.word(index, o[2])
        if a is None or b is None or top is None or high is None or self._words.word(index, o[1]) != a:
            return None
        scaled = self._pair(a, top) if wide else self._extended(a, signed=True)
        return _sum((1 << int(f[3], 16), scaled), (1, self._pair(b, high)))

    def expand(self, form: Form) -> Form:
        """The form with every pair that a loop advances as what it was before, and a counted term."""
        parts: list[tuple[int, Form]] = []
        for (atom, loop), factor in form.items():
            parts.append((factor, {(atom, loop): 1} if atom is None or loop is not None else self._advanced(atom)))
        return _sum(*parts)

    def _advanced(self, atom: Atom) -> Form:
        plain: Form = {(atom, None): 1}
        low, high = atom.low, atom.high
        if atom.kind != "pair" or not isinstance(low, Written) or not isinstance(high, Written):
            return plain
        if (low.kind, high.kind) != ("meet", "meet") or low.at != high.at or low.at not in self._loops:
            return plain
        if atom not in self._expanded:
            self._expanded[atom] = plain
            self._expanded[atom] = self._through(atom, self._loops[low.at], low.bit, high.bit) or plain
        return self._expanded[atom]

    def _through(self, atom: Atom, loop: Loop, low: int, high: int) -> Form | None:
        ways = {
            p: self._pair(
                self._words.resolve(self.values.leaving(p, low)), self._words.resolve(self.values.leaving(p, high))
            )
            for p in self._cfg.blocks[loop.head].predecessors
        }
        steps = [minus(self.expand(form), {(atom, None): 1}) for p, form in ways.items() if p in loop.blocks]
        starts = [self.expand(form) for p, form in ways.items() if p not in loop.blocks]
        if not steps or not starts or any(s != steps[0] for s in steps) or any(s != starts[0] for s in starts):
            return None
        if not all(self._invariant(a, c, loop) for a, c in steps[0]):
            return None
        return _sum((1, starts[0]), (1, {(a, loop.head): factor for (a, _), factor in steps[0].items()}))

    def _invariant(self, atom: Atom | None, counted: int | None, loop: Loop) -> bool:
        return counted is None and all(self._outside(w, loop) for w in (atom.words if atom else ()))

    def _outside(self, word: Word, loop: Loop) -> bool:
        if isinstance(word, Shifted):
            return self._outside(word.of, loop)
        if not isinstance(word, Written):
            return True
        block = self._cfg.block_of[word.at] if word.kind == "def" else word.at
        return word.kind == "start" or block not in loop.blocks


def _opaque(form: Form) -> tuple[int, int]:
    """How little is known of a sum: how strange the halves of its pairs are to each other, and its length."""
    return sum(_strange(atom) for atom, _ in form if atom is not None and atom.kind == "pair"), len(form)


def _strange(atom: Atom) -> int:
    low, high = atom.low, atom.high
    if isinstance(low, Parameter) and isinstance(high, Parameter):
        return 2 * (high.offset != low.offset + 4)
    if isinstance(low, Written) and isinstance(high, Written):
        return int(low[:2] != high[:2])
    return 2
