"""Basic blocks by the textbook rule: enough to count which of them changed.

Kept apart from ``analysis/`` on purpose: preservation is a statement about two files, and must
not change when the analyses that the splicer relies on do.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from xtrace.isa.model import Flow, Instruction

__all__ = ["split"]


def split(instructions: Sequence[Instruction]) -> list[range]:
    """Index ranges of the basic blocks of one kernel, in order.

    A block starts at the first instruction, at every code address that another instruction names
    (branch, call, convergence point), and behind every instruction that may leave the straight line.
    """
    if not instructions:
        return []
    index_of = {ins.pc: k for k, ins in enumerate(instructions)}
    leaders = {0}
    for k, ins in enumerate(instructions):
        if ins.target is not None and ins.target in index_of:
            leaders.add(index_of[ins.target])
        if ins.flow not in (Flow.FALL, Flow.PUSH) and k + 1 < len(instructions):
            leaders.add(k + 1)
    bounds = [*sorted(leaders), len(instructions)]
    return [range(start, stop) for start, stop in pairwise(bounds)]
