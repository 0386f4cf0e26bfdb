"""Backward liveness of every register class at once, on bit sets."""

from __future__ import annotations

from dataclasses import dataclass

from .cfg import ControlFlow

__all__ = ["Liveness", "liveness"]


@dataclass(frozen=True)
class Liveness:
    """``before[i]``: registers whose value may still be read when control stands before instruction ``i``."""

    before: tuple[int, ...]


def liveness(cfg: ControlFlow) -> Liveness:
    """Classic backward may-analysis; a guarded write does not end a live range.

    Source: any compiler text on live-variable analysis. An opaque instruction reads everything.
    """
    ins = cfg.instructions
    gen: list[int] = []
    kill: list[int] = []
    for block in cfg.blocks:
        use = dead = 0
        for i in block.indices:
            use |= ins[i].reads & ~dead
            dead |= ins[i].kills
        gen.append(use)
        kill.append(dead)
    live_in = list(gen)
    live_out = [0] * len(cfg.blocks)
    work = [b.number for b in cfg.blocks]
    queued = set(work)
    while work:
        n = work.pop()
        queued.discard(n)
        out = 0
        for s in cfg.blocks[n].successors:
            out |= live_in[s]
        live_out[n] = out
        new = gen[n] | (out & ~kill[n])
        if new != live_in[n]:
            live_in[n] = new
            for p in cfg.blocks[n].predecessors:
                if p not in queued:
                    queued.add(p)
                    work.append(p)
    before = [0] * len(ins)
    for block in cfg.blocks:
        live = live_out[block.number]
        for i in reversed(block.indices):
            live = ins[i].reads | (live & ~ins[i].kills)
            before[i] = live
    return Liveness(tuple(before))
