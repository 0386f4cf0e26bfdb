"""Tags of an instruction (docs/decisions/0001): the table's, and those that depend on modifiers."""

from __future__ import annotations

from collections.abc import Sequence

from xtrace.isa.nvidia.opcodes import OPCODES
from xtrace.isa.nvidia.operands import Operand

__all__ = ["tags_of"]

_BY_FIRST_MODIFIER: dict[tuple[str, str], tuple[str, ...]] = {
    ("BAR", "SYNC"): ("barrier",),
    ("BAR", "SYNCALL"): ("barrier",),
    ("BAR", "RED"): ("barrier",),
    ("BAR", "SCAN"): ("barrier",),
    ("BAR", "ARV"): ("barrier_arrive",),
    ("SYNCS", "PHASECHK"): ("mbarrier_wait",),
    ("SYNCS", "ARRIVE"): ("mbarrier_arrive",),
    ("WARPGROUP", "ARRIVE"): ("matrix_fence",),
    ("WARPGROUP", "DEPBAR"): ("matrix_wait",),
}
_COMMIT = "gsb0"


def tags_of(opcode: str, operands: Sequence[Operand], text: str) -> frozenset[str]:
    """All tags of an instruction; ``text`` is its operand text. Known mnemonics keep theirs even if opaque."""
    base, *mods = opcode.split(".")
    row = OPCODES.get(base)
    tags = {*(row.tags if row else ()), *_BY_FIRST_MODIFIER.get((base, mods[0] if mods else ""), ())}
    if "matrix_async" in tags and text.rstrip().endswith(_COMMIT):
        tags.add("matrix_commit")
    if "matrix_wait" in tags and operands and operands[-1].value is not None:
        tags.add(f"pending={operands[-1].value}")
    if "COLLECTIVE" in mods:
        tags.add("converge")
    return frozenset(tags)
