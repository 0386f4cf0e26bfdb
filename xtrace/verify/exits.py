"""What an EXIT depends on. An island before it may ask, so that lanes which go on write no header."""

from __future__ import annotations

import re

from xtrace.isa.model import Flow, Instruction
from xtrace.verify.pair import Pair

__all__ = ["condition", "read_registers"]

_GUARD = re.compile(r"@(!?)(P\d)")


def condition(ins: Instruction) -> tuple[str, int] | None:
    """Predicate and the value of it with which lanes leave at this instruction; None: there is none to ask."""
    match = _GUARD.fullmatch(ins.guard) if ins.flow is Flow.EXIT else None
    return None if match is None else (match[2], int(not match[1]))


def read_registers(pair: Pair) -> dict[int, int]:
    """Kernel registers that each probe word before a guarded EXIT may read."""
    allowed: dict[int, int] = {}
    for i, island in pair.align.islands():
        if (found := condition(pair.original.code[i])) is not None:
            allowed |= dict.fromkeys(island, pair.isa.layout["P"].bit(int(found[0][1:])))
    return allowed
