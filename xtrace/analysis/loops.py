"""Natural loops by dominators."""

from __future__ import annotations

from dataclasses import dataclass

from .cfg import ControlFlow
from .ways import reverse_postorder

__all__ = ["Loop", "find_loops"]


@dataclass(frozen=True, slots=True)
class Loop:
    id: int  # 1, 2, ... in order of the head's address
    head: int  # block number
    blocks: frozenset[int]
    parent: int | None  # id of the smallest enclosing loop
    depth: int


def _dominators(cfg: ControlFlow) -> dict[int, int]:
    """Immediate dominators of reachable blocks (Cooper, Harvey, Kennedy 2001)."""
    order = reverse_postorder(cfg, 0, range(len(cfg.blocks)))
    rank = {b: n for n, b in enumerate(order)}
    idom: dict[int, int] = {0: 0}
    changed = True
    while changed:
        changed = False
        for b in order[1:]:
            new: int | None = None
            for p in cfg.blocks[b].predecessors:
                if p not in idom:
                    continue
                if new is None:
                    new = p
                    continue
                x = p
                while x != new:
                    while rank[x] > rank[new]:
                        x = idom[x]
                    while rank[new] > rank[x]:
                        new = idom[new]
            if new is not None and idom.get(b) != new:
                idom[b] = new
                changed = True
    return idom


def _dominates(idom: dict[int, int], a: int, b: int) -> bool:
    while b != a:
        if b == idom[b]:
            return False
        b = idom[b]
    return True


def find_loops(cfg: ControlFlow) -> tuple[Loop, ...]:
    """Natural loops, one per head, outermost first at equal heads. Irreducible cycles have no natural loop."""
    if not cfg.blocks:
        return ()
    idom = _dominators(cfg)
    bodies: dict[int, set[int]] = {}
    for block in cfg.blocks:
        if block.number not in idom:
            continue
        for head in block.successors:
            if _dominates(idom, head, block.number):
                body = bodies.setdefault(head, {head})
                stack = [block.number]
                while stack:
                    b = stack.pop()
                    if b not in body:
                        body.add(b)
                        stack += cfg.blocks[b].predecessors
    heads = sorted(bodies)
    ids = {head: n + 1 for n, head in enumerate(heads)}
    parents: dict[int, int | None] = {}
    for head in heads:
        around = [h for h in heads if h != head and head in bodies[h] and bodies[head] <= bodies[h]]
        parents[head] = min(around, key=lambda h: len(bodies[h])) if around else None

    def depth(head: int) -> int:
        parent = parents[head]
        return 1 if parent is None else 1 + depth(parent)

    return tuple(
        Loop(
            ids[h],
            h,
            frozenset(bodies[h]),
            ids[parent] if (parent := parents[h]) is not None else None,
            depth(h),
        )
        for h in heads
    )
