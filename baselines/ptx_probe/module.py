"""Tokens -> the one kernel to be probed: its parameter list and the statements of its body.

Everything outside the kernel is skipped over, not understood: module-level declarations, debug sections and device
functions stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from baselines.ptx_probe.tokens import Token, tokenise
from xtrace.errors import BadInput, Unsupported

__all__ = ["Entry", "Statement", "entry_names", "parse_entry"]

_CLOSER = {"{": "}", "(": ")", "[": "]"}
# Directives of a body that end with their line instead of a semicolon.
_LINE_DIRECTIVES = (".loc", ".file")
_DECLARATIONS = (".reg", ".local", ".shared", ".param", ".const", ".global", ".pragma", ".align")

Kind = Literal["instruction", "label", "declaration", "directive", "open", "close"]


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a kernel body. ``guard`` is the predicate text after ``@``, e.g. ``"!%p1"``."""

    kind: Kind
    start: int
    end: int
    line: int
    opcode: str = ""
    guard: str = ""

    def matches(self, pattern: str) -> bool:
        """Do the leading dot-separated parts of the opcode equal ``pattern``'s?"""
        parts, wanted = self.opcode.split("."), pattern.split(".")
        return self.kind == "instruction" and parts[: len(wanted)] == wanted


@dataclass(frozen=True)
class Entry:
    """A kernel in PTX text: offsets of its parameter list and body, and the body's statements."""

    name: str
    source: str
    line: int
    params_tail: int | None  # offset behind the last token of the parameter list; None: the kernel has no list
    name_end: int
    parameters: int
    body_open: int  # offset just behind "{"
    statements: tuple[Statement, ...]
    identifiers: frozenset[str]  # every word of the module: new names must not be among them


class _Cursor:
    def __init__(self, tokens: Sequence[Token], where: str) -> None:
        self.tokens = tokens
        self.where = where
        self.index = 0

    def peek(self, ahead: int = 0) -> Token | None:
        at = self.index + ahead
        return self.tokens[at] if at < len(self.tokens) else None

    def next(self) -> Token:
        token = self.peek()
        if token is None:
            line = self.tokens[-1].line if self.tokens else 1
            raise BadInput("XT7313", "PTX ends in the middle of a statement", where=f"{self.where}:{line}")
        self.index += 1
        return token

    def fail(self, what: str, token: Token) -> BadInput:
        return BadInput("XT7313", what, where=f"{self.where}:{token.line}")

    def skip_group(self) -> Token:
        """From an opening bracket to behind its partner; returns the closing token."""
        first = self.next()
        stack = [_CLOSER[first.text]]
        while stack:
            token = self.next()
            if token.kind != "punct":
                continue
            if token.text in _CLOSER:
                stack.append(_CLOSER[token.text])
            elif token.text in ")}]" and token.text != stack.pop():
                raise self.fail(f"unbalanced {token.text!r}", token)
        return self.tokens[self.index - 1]


def _entry_positions(tokens: Sequence[Token], where: str) -> list[int]:
    """Indices of the ``.entry`` words that stand outside all brackets."""
    cursor, found = _Cursor(tokens, where), []
    while (token := cursor.peek()) is not None:
        if token.kind == "punct" and token.text in _CLOSER:
            cursor.skip_group()
            continue
        if token.kind == "punct" and token.text in ")}]":
            raise cursor.fail(f"unbalanced {token.text!r}", token)
        if token.kind == "word" and token.text == ".entry":
            found.append(cursor.index)
        cursor.index += 1
    return found


def entry_names(source: str, where: str = "PTX") -> list[str]:
    """Names of the kernels in PTX text, in order."""
    tokens = tokenise(source, where)
    return [tokens[i + 1].text for i in _entry_positions(tokens, where) if i + 1 < len(tokens)]


def parse_entry(source: str, name: str | None = None, where: str = "PTX") -> Entry:
    """Parse kernel ``name``, or the only kernel when ``name`` is None.

    Raises
    ------
    BadInput
        XT7311 to XT7314: not PTX, unbalanced, or no such kernel.
    Unsupported
        XT7315 the kernel is only declared.
    """
    tokens = tokenise(source, where)
    positions = [i for i in _entry_positions(tokens, where) if i + 1 < len(tokens) and tokens[i + 1].kind == "word"]
    names = [tokens[i + 1].text for i in positions]
    chosen = [i for i, n in zip(positions, names, strict=True) if name is None or n == name]
    if len(chosen) != 1:
        wanted = "exactly one kernel" if name is None else f"kernel {name!r}"
        raise BadInput("XT7314", f"{wanted} expected, found {names or 'none'}", where=where)
    cursor = _Cursor(tokens, where)
    cursor.index = chosen[0] + 1
    name_token = cursor.next()
    tail = None
    parameters = 0
    if (token := cursor.peek()) is not None and token.text == "(":
        first = cursor.index
        cursor.skip_group()
        tail = tokens[cursor.index - 2].end
        inner = tokens[first + 1 : cursor.index - 1]
        parameters = sum(1 for t in inner if t.kind == "word" and t.text == ".param")
    behind = cursor.next()
    while behind.text != "{" or behind.kind != "punct":  # .reqntid and the like
        if behind.text == ";":
            raise Unsupported("XT7315", f"kernel {name_token.text!r} is declared but has no body", where=where)
        behind = cursor.next()
    body_open = behind.end
    statements = _statements(cursor)
    return Entry(
        name=name_token.text,
        source=source,
        line=name_token.line,
        params_tail=tail,
        name_end=name_token.end,
        parameters=parameters,
        body_open=body_open,
        statements=tuple(statements),
        identifiers=frozenset(t.text for t in tokens if t.kind == "word"),
    )


def _statements(cursor: _Cursor) -> list[Statement]:
    found: list[Statement] = []
    depth = 0
    while True:
        token = cursor.next()
        if token.kind == "punct" and token.text == "{":
            depth += 1
            found.append(Statement("open", token.start, token.end, token.line))
        elif token.kind == "punct" and token.text == "}":
            if depth == 0:
                return found
            depth -= 1
            found.append(Statement("close", token.start, token.end, token.line))
        elif token.kind == "punct" and token.text == ";":
            found.append(Statement("directive", token.start, token.end, token.line))
        else:
            found.append(_statement(cursor, token))


def _statement(cursor: _Cursor, first: Token) -> Statement:
    following = cursor.peek()
    if first.kind == "word" and following is not None and following.text == ":":
        cursor.next()
        return Statement("label", first.start, following.end, first.line)
    if first.kind == "word" and first.text in _LINE_DIRECTIVES:
        end = first.end
        while (token := cursor.peek()) is not None and token.line == first.line:
            end = cursor.next().end
        return Statement("directive", first.start, end, first.line)
    guard = ""
    opcode = first
    if first.kind == "punct" and first.text == "@":
        sign = ""
        opcode = cursor.next()
        if opcode.text == "!":
            sign, opcode = "!", cursor.next()
        guard, opcode = sign + opcode.text, cursor.next()
    if opcode.kind != "word":
        raise cursor.fail(f"a statement can not begin with {opcode.text!r}", opcode)
    while True:
        token = cursor.peek()
        if token is None:
            cursor.next()  # raises
        elif token.kind == "punct" and token.text in _CLOSER:
            cursor.skip_group()
        elif token.kind == "punct" and token.text in ")}]":
            raise cursor.fail(f"{opcode.text!r} is not closed by ';'", token)
        elif cursor.next().text == ";":
            break
    end = cursor.tokens[cursor.index - 1].end
    if opcode.text.startswith("."):
        kind: Kind = "declaration" if opcode.text in _DECLARATIONS else "directive"
        return Statement(kind, first.start, end, first.line, opcode.text)
    return Statement("instruction", first.start, end, first.line, opcode.text, guard)
