"""Which islands are the prologue: the one at the kernel's entry, and perhaps a second one where it goes on.

The values that loading fills in, and all that is computed from them, must be set once, by every warp, before anything
else that a probe does. So the second part must stand in the entry block, from which nothing jumps away and into which
nothing jumps, and in front of every other island. That no probe reads what is not set yet is part of the promise
``liveness``.
"""

from __future__ import annotations

from collections.abc import Collection

from xtrace.isa.model import Flow
from xtrace.verify.certificate import Promise
from xtrace.verify.pair import Pair
from xtrace.verify.program import Program

__all__ = ["check", "parts", "passed_once"]

_EFFECTS = Promise.EFFECTS


def passed_once(program: Program) -> range:
    """Instructions that every warp reaches exactly once, with all its lanes together."""
    if not program.code or program.unknown or program.pred[0]:
        return range(0)
    for i in program.blocks()[0]:
        if program.code[i].flow is not Flow.FALL:
            return range(i + 1)
    return program.blocks()[0]


def parts(pair: Pair) -> list[int]:
    """Original instructions before which the prologue stands: one or two."""
    sites = [i for i, _ in pair.align.islands()]
    return sites[:1] + [i for i in sites[1:2] if i in passed_once(pair.original)]


def check(pair: Pair, patches: Collection[int]) -> None:
    """Words that loading fills in (traced indices) stand in the prologue only."""
    allowed = parts(pair)
    for i, island in pair.align.islands():
        for j in island:
            if j in patches and i not in allowed:
                why = "is filled in at load, but no part of a prologue that every warp passes once, before all else"
                pair.fail(_EFFECTS, why, pair.output.code[j])
