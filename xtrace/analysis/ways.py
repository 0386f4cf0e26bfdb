"""The longest way through code: of blocks in the order of execution, without going back."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from .cfg import ControlFlow

__all__ = ["longest_way", "reverse_postorder"]


def longest_way(
    cfg: ControlFlow, first: int, inside: Collection[int], weight: Mapping[int, int], ends: Collection[int]
) -> list[int]:
    """Blocks from ``first`` to one of ``ends`` along the heaviest way that stays ``inside`` and passes no block twice.

    Edges that go back (to a block that comes earlier in reverse postorder) are not taken, so that inner loops are
    passed once. Blocks without a ``weight`` weigh nothing. [] where no end can be reached.
    """
    order = reverse_postorder(cfg, first, inside)
    rank = {block: n for n, block in enumerate(order)}
    best: dict[int, tuple[int, int | None]] = {first: (weight.get(first, 0), None)}  # block: weight so far, from where
    for block in order:
        so_far = best[block][0]
        for after in cfg.blocks[block].successors:
            if rank.get(after, -1) > rank[block]:
                total = so_far + weight.get(after, 0)
                if after not in best or total > best[after][0]:
                    best[after] = total, block
    reached = [end for end in ends if end in best]
    way: list[int] = []
    at = max(reached, key=lambda end: best[end][0], default=None)
    while at is not None:
        way.append(at)
        at = best[at][1]
    return way[::-1]


def reverse_postorder(cfg: ControlFlow, first: int, inside: Collection[int]) -> list[int]:
    """Blocks that ``first`` reaches without leaving ``inside``, each before those behind it but for ways back."""
    order: list[int] = []
    seen = {first}
    stack = [(first, 0)]
    while stack:
        block, k = stack.pop()
        successors = cfg.blocks[block].successors
        if k < len(successors):
            stack.append((block, k + 1))
            after = successors[k]
            if after in inside and after not in seen:
                seen.add(after)
                stack.append((after, 0))
        else:
            order.append(block)
    return order[::-1]
