"""Forward analyses over all paths from the entry, as fixed points on basic blocks."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Protocol, Self, TypeVar

from .cfg import Block, ControlFlow

__all__ = ["Mergeable", "forward"]


class Mergeable(Protocol):
    """A state with an equality and a join. Joins must only ever lose knowledge, in finitely many steps."""

    def merge(self, other: Self) -> Self: ...


State = TypeVar("State", bound=Mergeable)


def forward(cfg: ControlFlow, entry: State, through: Callable[[State, Block], State]) -> dict[int, State]:
    """State before each block that the entry reaches. ``through`` gives the state behind a block and must be monotone.

    Blocks are taken in address order, which compilers choose close to the order of execution: the fixed point does not
    depend on it, the number of passes does.
    """
    start: dict[int, State] = {0: entry} if cfg.blocks else {}
    work = list(start)
    queued = set(work)
    while work:
        n = heapq.heappop(work)
        queued.discard(n)
        state = through(start[n], cfg.blocks[n])
        for s in cfg.blocks[n].successors:
            old = start.get(s)
            new = state if old is None else old.merge(state)
            if new != old:
                start[s] = new
                if s not in queued:
                    queued.add(s)
                    heapq.heappush(work, s)
    return start
