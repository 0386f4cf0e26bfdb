"""PTX text -> tokens with positions.

Instructions are found by grammar, never by searching for substrings, so that a comment, a string or a longer opcode
can not be mistaken for a site. Lexical rules: PTX ISA reference, chapter "Syntax".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from xtrace.errors import BadInput

__all__ = ["MAX_PTX_BYTES", "Token", "tokenise"]

MAX_PTX_BYTES = 64 << 20

_TOKEN = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<comment>//[^\n]*|/\*.*?\*/)
    | (?P<string>"(?:[^"\\\n]|\\.)*")
    | (?P<word>[A-Za-z0-9_.$%]+(?:::[A-Za-z0-9_.$%]+)*)
    | (?P<punct>[{}()\[\];:,@!=+\-<>|*/&~^?\#])
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    """``text`` at byte ``start`` to ``end`` of the source; ``line`` counts from 1."""

    kind: str  # "word", "string" or "punct"
    text: str
    start: int
    end: int
    line: int


def tokenise(source: str, where: str = "PTX") -> list[Token]:
    """All tokens but white space and comments.

    Raises
    ------
    BadInput
        XT7311 text that is not PTX (with its line), XT7312 text too large.
    """
    if len(source) > MAX_PTX_BYTES:
        raise BadInput("XT7312", f"PTX text of {len(source)} characters is too large", where=where)
    tokens: list[Token] = []
    position, line = 0, 1
    while position < len(source):
        match = _TOKEN.match(source, position)
        if match is None:
            raise BadInput("XT7311", f"unexpected text {source[position : position + 12]!r}", where=f"{where}:{line}")
        kind = str(match.lastgroup)
        text = match.group()
        if kind in ("word", "string", "punct"):
            tokens.append(Token(kind, text, match.start(), match.end(), line))
        line += text.count("\n")
        position = match.end()
    return tokens
