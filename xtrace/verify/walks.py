"""Which ways through the traced kernel the dry run takes.

Every block with probe code is visited, once at least on a way without loops. Loops with probes are toured as a whole,
again and again, so that the ring of the warp's slot wraps; some random ways follow, so that code which relies on one
certain way is found out.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from xtrace.isa.model import Flow
from xtrace.verify.program import Program

__all__ = ["BlockGraph", "Walk"]

_RANDOM_WALKS = 8
_RANDOM_STEPS = 300


@dataclass(frozen=True, slots=True)
class Walk:
    """Numbers of basic blocks: those up to a loop, once around the loop (or none), and those to the end."""

    lead: Sequence[int]
    tour: Sequence[int]
    tail: Sequence[int]


class BlockGraph:
    """Basic blocks of a program, their strongly connected components (``components``: callees of edges first)."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.blocks = program.blocks()
        self.successors = [sorted({program.block_of[j] for j in program.succ[b.stop - 1]}) for b in self.blocks]
        self.components = self._components()
        self.component_of = [0] * len(self.blocks)
        for n, members in enumerate(self.components):
            for b in members:
                self.component_of[b] = n

    def cyclic(self, component: int) -> bool:
        """Whether control can come back to the blocks of this component."""
        members = self.components[component]
        return len(members) > 1 or members[0] in self.successors[members[0]]

    def heaviest(self, weight: Sequence[int]) -> int:
        """Largest sum of block weights on any way that passes every block at most once."""
        best = [0] * len(self.components)
        for n, members in enumerate(self.components):
            after = [best[self.component_of[s]] for b in members for s in self.successors[b]]
            best[n] = sum(weight[b] for b in members) + max(after, default=0)
        return max(best, default=0)

    def walks(self, wanted: Collection[int], rng: random.Random) -> list[Walk]:
        """Ways from the kernel's entry that together visit all ``wanted`` blocks."""
        ends = {n for n, b in enumerate(self.blocks) if self._ends(b.stop - 1)}
        found: list[Walk] = []
        seen: set[int] = set()
        for n in reversed(range(len(self.components))):  # entry first
            anchors = [b for b in self.components[n] if b in wanted]
            if not anchors or (not self.cyclic(n) and anchors[0] in seen):
                continue
            tour = self._tour(anchors, self.components[n]) if self.cyclic(n) else []
            way = self._path(0, anchors[:1]) if anchors[0] else []
            lead = [0, *(anchors[:1] if way is None else way)]  # what no branch leads to is jumped to
            tail = self._path(anchors[0], ends) if anchors[0] not in ends else []
            found.append(Walk(lead, tour, tail or []))
            seen |= {*lead, *tour, *(tail or [])}
        # What is emitted early on a tour that wraps the ring is overwritten before anybody reads it back. So every
        # block is also on a way whose rest passes each block at most once: its packets are still there at the end.
        covered = {b for walk in found if not walk.tour for b in (*walk.lead, *walk.tail)}
        for b in sorted(wanted):
            if b in covered or (way := self._path(0, (b,)) if b else []) is None:
                continue
            walk = Walk([0, *way], (), (self._path(b, ends) if b not in ends else None) or ())
            found.append(walk)
            covered |= {*walk.lead, *walk.tail}
        if not any(ins.flow in (Flow.CALL, Flow.RETURN) for ins in self._program.code):
            # A random way would return to where it was not called from.
            found += [self._random(ends, rng) for _ in range(_RANDOM_WALKS)]
        return found

    def _ends(self, i: int) -> bool:
        ins = self._program.code[i]
        return ins.flow is Flow.EXIT and not ins.conditional

    def _random(self, ends: Collection[int], rng: random.Random) -> Walk:
        lead = [0]
        while len(lead) < _RANDOM_STEPS and self.successors[lead[-1]]:
            lead.append(rng.choice(self.successors[lead[-1]]))
        return Walk(lead, (), (self._path(lead[-1], ends) if lead[-1] not in ends else None) or ())

    def _tour(self, anchors: Sequence[int], within: Sequence[int]) -> list[int]:
        """From the first anchor past all others back to it."""
        inside, tour = set(within), []
        at = anchors[0]
        for b in (*anchors[1:], anchors[0]):
            if b in tour and b != anchors[0]:
                continue
            step = self._path(at, (b,), inside) or []
            tour += step
            at = b
        return tour

    def _path(self, start: int, goals: Collection[int], within: Collection[int] | None = None) -> list[int] | None:
        """Fewest blocks from behind ``start`` to one of ``goals``; None if there is no way."""
        came: dict[int, int] = {}
        work = deque([start])
        while work:
            b = work.popleft()
            for s in self.successors[b]:
                if s in came or (within is not None and s not in within):
                    continue
                came[s] = b
                if s in goals:
                    path = [s]
                    while came[path[-1]] != start:
                        path.append(came[path[-1]])
                    return path[::-1]
                work.append(s)
        return None

    def _components(self) -> list[list[int]]:
        """Tarjan's algorithm without recursion; members in reverse postorder."""
        number: dict[int, int] = {}
        low: dict[int, int] = {}
        stack: list[int] = []
        on_stack: set[int] = set()
        finished: dict[int, int] = {}
        components: list[list[int]] = []
        for root in range(len(self.blocks)):
            if root in number:
                continue
            work: list[tuple[int, Iterable[int]]] = []

            def enter(b: int, work: list[tuple[int, Iterable[int]]] = work) -> None:
                number[b] = low[b] = len(number)
                stack.append(b)
                on_stack.add(b)
                work.append((b, iter(self.successors[b])))

            enter(root)
            while work:
                b, rest = work[-1]
                for s in rest:
                    if s not in number:
                        enter(s)
                        break
                    if s in on_stack:
                        low[b] = min(low[b], number[s])
                else:
                    work.pop()
                    finished[b] = len(finished)
                    if work:
                        low[work[-1][0]] = min(low[work[-1][0]], low[b])
                    if low[b] == number[b]:
                        cut = stack.index(b)
                        members, stack[cut:] = stack[cut:], []
                        on_stack.difference_update(members)
                        components.append(sorted(members, key=lambda m: -finished[m]))
        return components
