"""How many general registers exist at each point (setmaxnreg moves them between warp roles)."""

from __future__ import annotations

from xtrace.isa.protocol import Isa

from .cfg import ControlFlow
from .loops import Loop

__all__ = ["register_caps"]


def register_caps(cfg: ControlFlow, loops: tuple[Loop, ...], isa: Isa, registers: int) -> tuple[int, ...]:
    """Forward must-minimum of the register cap before each instruction.

    A lowering takes effect at once. A raise is tried in a loop until it succeeds, so it counts only
    on edges that leave the innermost loop around it; a raise outside any loop is never believed.
    """
    caps = {ins.index: cap for ins in cfg.instructions if (cap := isa.max_registers(ins)) is not None}
    raises: dict[int, int] = {}  # block -> cap on leaving the retry loop
    exits: dict[int, frozenset[int]] = {}
    for i, cap in caps.items():
        around = [x for x in loops if cfg.block_of[i] in x.blocks]
        if around:
            body = min(around, key=lambda x: len(x.blocks)).blocks
            for b in body:
                raises[b], exits[b] = cap, body
    into: dict[int, int] = {0: registers}
    work = [0] if cfg.blocks else []
    before = [registers] * len(cfg.instructions)
    while work:
        n = work.pop()
        cap = into[n]
        for i in cfg.blocks[n].indices:
            before[i] = cap
            cap = min(cap, caps.get(i, cap))
        for s in cfg.blocks[n].successors:
            out = raises[n] if n in raises and s not in exits[n] else cap
            if s not in into or out < into[s]:
                into[s] = out
                work.append(s)
    return tuple(before)
