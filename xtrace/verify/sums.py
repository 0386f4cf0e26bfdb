"""What a sum of registers was before an instruction: integer arithmetic of sm_90, read backwards from the text.

A sum has factors modulo 2**64. Its variables are 32-bit words, unsigned: registers ("R5", "UR4"), parameters
("c[0x0][0x210]"), predicates as carries (0 or 1), the top n bits of a register (``("R5", n)``), names that no
instruction knows, and "1" for constants. Factors that are multiples of 2**32 only see a word modulo 2**32, so high
halves may wrap. A carry that an addition loses must cancel at once, or nothing is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from xtrace.isa.model import Instruction

__all__ = ["ONE", "Lost", "Sum", "Variable", "add", "before"]

Variable = str | tuple[str, int]
Sum = Mapping[Variable, int]
ONE = "1"
_M64 = (1 << 64) - 1
_HIGH = 1 << 32
_CARRY = "carry"
_NUMBER = re.compile(r"-?0x[0-9a-f]+")
_WORD = re.compile(r"U?R\d+|c\[0x0\]\[0x[0-9a-f]+\]")
_PREDICATE = re.compile(r"!?U?P(\d|T)")


class Lost(Exception):  # noqa: N818 - a verdict, not a fault
    """A variable of the sum is written by something whose result is no sum."""


def add(*parts: tuple[int, Sum]) -> dict[Variable, int]:
    """The sum of ``factor * sum``; variables with factor 0 are left out."""
    out: dict[Variable, int] = {}
    for times, part in parts:
        for variable, factor in part.items():
            out[variable] = (out.get(variable, 0) + times * factor) & _M64
    return {variable: factor for variable, factor in out.items() if factor}


def before(total: Sum, ins: Instruction, written: set[str]) -> list[dict[Variable, int]]:
    """What must be 0 before ``ins`` so that ``total`` is 0 behind it. Raises :class:`Lost`.

    ``written`` are the registers that the instruction may write. A guard makes two sums: with its effect and without.
    """
    hit = {v for v in total if (v if isinstance(v, str) else v[0]) in written}
    if not hit:
        return [dict(total)]
    if ins.opaque:
        raise Lost(ins.text)
    text = ins.text.strip().rstrip(";").strip()
    guarded = text.startswith("@")
    if guarded:
        text = text.split(" ", 1)[1].strip()
    opcode, _, rest = text.partition(" ")
    base, *modifiers = opcode.split(".")
    operands = [x.strip().removesuffix(".reuse") for x in rest.split(",")]
    rule = _RULES.get(base)
    if rule is None:
        raise Lost(ins.text)
    try:
        step = rule(dict(total), modifiers, operands)
    except (IndexError, ValueError):
        raise Lost(ins.text) from None
    if step is None or _CARRY in step:
        raise Lost(ins.text)
    # Whatever a rule has not taken out of the sum, though the instruction writes it, is lost.
    kept = {v for v in hit if v in step and v not in _reread(operands[1:], v)}
    if kept:
        raise Lost(ins.text)
    return [step, dict(total)] if guarded else [step]


def _reread(sources: list[str], variable: Variable) -> set[Variable]:
    """The variable, if the instruction also reads its register: then it may stand for the old value."""
    name = variable if isinstance(variable, str) else variable[0]
    reads = {x.lstrip("-!") for x in sources}
    pairs = {f"R{int(x[1:]) + 1}" for x in reads if re.fullmatch(r"R\d+", x)}
    return {variable} if name in reads | pairs else set()


def _value(text: str) -> Sum:
    """A 32-bit operand."""
    if text in ("RZ", "URZ"):
        return {}
    if _NUMBER.fullmatch(text):
        return add((int(text, 16) & 0xFFFFFFFF, {ONE: 1}))
    if _WORD.fullmatch(text):
        return {text: 1}
    raise ValueError(text)


def _modular(text: str) -> Sum:
    """The same where only its remainder by 2**32 matters: it may be negated."""
    return add((-1, _value(text[1:]))) if re.fullmatch(r"-U?R\d+", text) else _value(text)


def _top(text: str, count: int) -> Sum:
    """Its top bits."""
    if text in ("RZ", "URZ"):
        return {}
    if _NUMBER.fullmatch(text):
        return add(((int(text, 16) & 0xFFFFFFFF) >> 32 - count, {ONE: 1}))
    if _WORD.fullmatch(text) and count:
        return {(text, count): 1}
    raise ValueError(text)


def _shifted(text: str, by: int) -> Sum:
    """``text << by``, 32 bits of it."""
    return add((1 << by, _value(text)), (-_HIGH, _top(text, by) if by else {}))


def _next(text: str) -> str:
    """The high half of an aligned pair."""
    if text in ("RZ", "URZ"):
        return text
    match = re.fullmatch(r"(U?R)(\d+)", text)
    if match is None:
        raise ValueError(text)
    return f"{match[1]}{int(match[2]) + 1}"


def _take(total: dict[Variable, int], name: str, exact: Sum | None, modular: Sum | None = None) -> bool:
    """Put a word's value in its place. ``exact`` holds for any factor, ``modular`` for multiples of 2**32."""
    factor = total.pop(name, 0)
    if not factor:
        return True
    value = modular if modular is not None and factor % _HIGH == 0 else exact
    if value is None:
        return False
    new = add((1, total), (factor, value))
    total.clear()
    total.update(new)
    return True


def _split(operands: list[str]) -> tuple[list[str], list[str]]:
    """Operands behind the first, and the predicates among them."""
    predicates = [x for x in operands if _PREDICATE.fullmatch(x)]
    return [x for x in operands if not _PREDICATE.fullmatch(x)][1:], predicates


def _finish(total: dict[Variable, int], done: bool) -> dict[Variable, int] | None:
    return {v: f for v, f in total.items() if f} if done else None


def _alone(total: dict[Variable, int], name: str) -> bool:
    """Whether no top bits of a register are in the sum."""
    return not any(isinstance(v, tuple) and v[0] == name for v in total)


Result = dict[Variable, int] | None


def _copy(total: dict[Variable, int], to: str, source: str) -> Result:
    tops = [v for v in total if isinstance(v, tuple) and v[0] == to]
    changed = [(total.pop(v), _top(source, v[1])) for v in tops if isinstance(v, tuple)]
    done = _take(total, to, _value(source))
    return _finish(add((1, total), *changed), done)


def _move(total: dict[Variable, int], mods: list[str], o: list[str]) -> Result:
    return _copy(total, o[0], o[1]) if not mods and len(o) == 2 else None


def _load(total: dict[Variable, int], mods: list[str], o: list[str]) -> Result:
    match = re.fullmatch(r"c\[0x0\]\[(0x[0-9a-f]+)\]", o[1])
    if match is None or mods not in ([], ["64"]):
        return None
    out: Result = total
    for k in range(1 + bool(mods)):
        name = o[0] if k == 0 else _next(o[0])
        out = None if out is None else _copy(out, name, f"c[0x0][{int(match[1], 16) + 4 * k:#x}]")
    return out


def _add3(total: dict[Variable, int], mods: list[str], o: list[str]) -> Result:
    sources, predicates = _split(o)
    if not _alone(total, o[0]):
        return None
    if mods == ["X"]:
        carries = [p for p in predicates[-2:] if p not in ("PT", "!PT")]
        if len(predicates) != 2 or len(carries) > 1 or any(p.startswith("!") for p in carries):
            return None
        more: list[tuple[int, Sum]] = [(1, {p: 1}) for p in carries]
        parts = add(*((1, _modular(x)) for x in sources), *more)
        return _finish(total, _take(total, o[0], None, parts))
    if mods:
        return None
    modular = add(*((1, _modular(x)) for x in sources))
    return _carrying(total, o[0], predicates, sources, modular)


def _carrying(
    total: dict[Variable, int], to: str, predicates: list[str], sources: list[str], modular: Sum,
    exact: Callable[[], Sum] | None = None,
) -> Result:  # fmt: skip
    """A sum of words that sets a carry, which the rest of ``total`` may have taken up."""
    carries = [p for p in predicates if p not in ("PT", "!PT")]
    if len(carries) > 1 or len(predicates) > 1:
        return None
    some = [x for x in sources if x not in ("RZ", "URZ")]
    if any(x.startswith("-") and not _NUMBER.fullmatch(x) for x in some) or len(some) > 2:
        if any(p in total for p in carries):
            return None
        return _finish(total, _take(total, to, None, modular))
    carry = total.pop(carries[0], 0) if carries else 0
    if carry:
        total = add((1, total), (carry, {_CARRY: 1}))
    plain = exact() if exact else add(*((1, _value(x)) for x in some))
    # Modulo 2**32 or not, the carry that is lost has the factor -2**32: 0 for multiples of 2**32.
    return _finish(total, _take(total, to, add((1, plain), (-_HIGH, {_CARRY: 1}))))


def _multiply(total: dict[Variable, int], mods: list[str], o: list[str]) -> Result:
    sources, predicates = _split(o)
    if mods == ["MOV", "U32"] and sources[:2] == ["RZ", "RZ"]:
        return _copy(total, o[0], sources[2])
    if mods[:1] == ["WIDE"]:
        return _wide(total, mods, o)
    if mods == ["SHL", "U32"] and sources[2] == "RZ":
        return _shift_low(total, o[0], sources[0], _power(sources[1]))
    if not _alone(total, o[0]):
        return None
    if mods == ["X"] and len(predicates) == 1 and not predicates[0].startswith("!"):
        carry: Sum = {} if predicates[0] == "PT" else {predicates[0]: 1}
        if predicates[0] == "PT":
            return None
    elif mods in ([], ["IADD"], ["MOV"]) and not predicates:
        carry = {}
    else:
        return None
    a, b, c = sources
    product = {} if "RZ" in (a, b) else add((int(b, 16), _modular(a)))
    return _finish(total, _take(total, o[0], None, add((1, product), (1, _modular(c)), (1, carry))))


def _power(text: str) -> int:
    value = int(text, 16)
    if value < 2 or value & value - 1:
        raise ValueError(text)
    return value.bit_length() - 1


def _wide(total: dict[Variable, int], mods: list[str], o: list[str]) -> Result:
    low, high = o[0], _next(o[0])
    factor = total.pop(low, 0)
    rest = total.pop(high, 0)
    if not _alone(total, low) or not _alone(total, high) or (rest - factor * _HIGH) & _M64:
        return None
    times = int(o[2], 16) & 0xFFFFFFFF
    a: Sum = _value(o[1])
    if mods == ["WIDE"]:
        times -= _HIGH if times >> 31 else 0
        a = add((1, a), (-_HIGH, _top(o[1], 1)))
    elif mods != ["WIDE", "U32"]:
        return None
    value = add((times, a), (1, _value(o[3])), (_HIGH, _value(_next(o[3]))))
    return add((1, total), (factor, value))


def _shift_low(total: dict[Variable, int], to: str, source: str, by: int) -> Result:
    changed: list[tuple[int, Sum]] = []
    for v in [v for v in total if isinstance(v, tuple) and v[0] == to]:
        assert isinstance(v, tuple)
        value = add((1, _top(source, by + v[1])), (-(1 << v[1]), _top(source, by)))
        changed.append((total.pop(v), value))
    done = _take(total, to, _shifted(source, by))
    return _finish(add((1, total), *changed), done)


def _shift(total: dict[Variable, int], mods: list[str], o: list[str]) -> Result:
    by = int(o[2], 16)
    if mods == ["L", "U32"] and o[3] in ("RZ", "URZ"):
        return _shift_low(total, o[0], o[1], by)
    if mods == ["R", "S32", "HI"] and o[1] in ("RZ", "URZ") and by == 31:
        sign = add((_HIGH - 1, _top(o[3], 1)))
        changed = [(total.pop(v), _top(o[3], 1)) for v in [v for v in total if v == (o[0], 1)]]
        if not _alone(total, o[0]):
            return None
        done = _take(total, o[0], sign)
        return _finish(add((1, total), *changed), done)
    if mods == ["L", "U64", "HI"] and 0 < by < 32 and _alone(total, o[0]):
        value = add((1 << by, _value(o[3])), (1, _top(o[1], by)))
        return _finish(total, _take(total, o[0], None, value))
    return None


def _lea(total: dict[Variable, int], mods: list[str], o: list[str]) -> Result:
    if not _alone(total, o[0]):
        return None
    sources, predicates = _split(o)
    if not mods:
        a, b, n = sources[0], sources[1], int(sources[2], 16)

        def exact() -> Sum:
            return add((1, _shifted(a, n)), (1, _value(b)))

        return _carrying(total, o[0], predicates, [a, b], exact(), exact)
    if len(predicates) != 1 or predicates[0].startswith("!") or predicates[0] == "PT":
        return None
    carry: Sum = {predicates[0]: 1}
    if mods == ["HI", "X"]:
        a, b, c, n = sources[0], sources[1], sources[2], int(sources[3], 16)
        high: Sum = add((1 << n, _value(c)))
    elif mods == ["HI", "X", "SX32"]:
        a, b, n = sources[0], sources[1], int(sources[2], 16)
        high = add((-(1 << n), _top(a, 1)))
    else:
        return None
    value = add((1, high), (1, _top(a, n)), (1, _value(b)), (1, carry))
    return _finish(total, _take(total, o[0], None, value))


def _add_number(total: dict[Variable, int], mods: list[str], o: list[str]) -> Result:
    if mods or not _alone(total, o[0]):
        return None
    return _finish(total, _take(total, o[0], None, add((1, _modular(o[1])), (1, _modular(o[2])))))


def _zero(total: dict[Variable, int], mods: list[str], o: list[str]) -> Result:
    if o[1] != "SRZ" or mods not in ([], ["32"]):
        return None
    for name in (o[0], *([] if mods else [_next(o[0])])):
        for v in [v for v in total if v == name or (isinstance(v, tuple) and v[0] == name)]:
            del total[v]
    return total


_RULES: dict[str, Callable[[dict[Variable, int], list[str], list[str]], Result]] = {
    "MOV": _move, "UMOV": _move, "LDC": _load, "ULDC": _load, "IADD3": _add3, "IMAD": _multiply,
    "SHF": _shift, "USHF": _shift, "LEA": _lea, "VIADD": _add_number, "CS2R": _zero,
}  # fmt: skip
