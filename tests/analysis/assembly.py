"""Small programs as text, with what instructions read and write: enough for analyses of address arithmetic."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.analysis.programs import ins
from xtrace.isa.model import Flow, Instruction
from xtrace.isa.nvidia.layout import make_layout

__all__ = ["LAYOUT", "assembled"]

LAYOUT = make_layout(63)
_NAME = re.compile(r"(?<![\w.])(UR|UP|R|P)(\d+)(\.64)?")


def assembled(lines: Sequence[str]) -> tuple[Instruction, ...]:
    """One instruction a line; branches name their target by its line."""
    return tuple(_one(index, line.strip()) for index, line in enumerate(lines))


def _one(index: int, text: str) -> Instruction:
    guard, rest = text.split(" ", 1) if text.startswith("@") else ("", text)
    opcode, _, operands = rest.strip().partition(" ")
    base = opcode.split(".")[0]
    if base in ("BRA", "EXIT"):
        target = int(operands) if base == "BRA" else None
        return ins(
            index, guard=guard, reads=_bits(guard), target=target, opcode=opcode, text=text,
            flow=Flow.BRANCH if base == "BRA" else Flow.EXIT, falls=bool(guard),
        )  # fmt: skip
    parts = operands.split(", ")
    tags = ("copy_async", "global_load", "memory") if base == "LDGSTS" else ()
    if base == "LDGSTS":
        return ins(index, guard=guard, reads=_bits(text), writes=_bits(parts[-1]), tags=tags, opcode=opcode, text=text)
    outputs = 2 if base in ("IADD3", "LEA") and re.fullmatch(r"P\d", parts[1]) else 1
    writes = _bits(", ".join(parts[:outputs]))
    wide = ".WIDE" in opcode or opcode.endswith(".64")
    reads = _bits(guard) | _bits(", ".join(parts[outputs:])) | (_bits(parts[-1]) << 1 if wide else 0)
    return ins(index, guard=guard, reads=reads, writes=writes | (writes << 1 if wide else 0), opcode=opcode, text=text)


def _bits(text: str) -> int:
    bits = 0
    for kind, number, wide in _NAME.findall(text):
        bits |= LAYOUT[kind].bit(int(number), 2 if wide else 1)
    return bits
