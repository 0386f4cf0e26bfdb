"""The order of an island's instructions that lets the kernel go on soonest.

The shortest order where a bounded search (branch and bound) comes to an end, which it does on small islands and on most
others; else the best that it or a list scheduler has found. Equals keep the given order.

Two clocks run: *counted* cycles are what stall counts must guarantee, *expected* ones add the time that waits for
scoreboards are modelled to take. Stall counts are fixed in the words, so expected time never catches up on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from .dependence import SEEN, Problem, carried_id

__all__ = ["Found", "best_order", "expected_cycles"]

_NODES = 600  # of the search: bounds the time for an island
_KEPT = 4096  # islands whose order is remembered: most are alike

Order = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Found:
    order: Order
    cycles: int  # expected until the kernel's next instruction
    proven: bool  # no legal order is shorter


@dataclass
class _Issued:
    """What has issued so far, in one order. Times count from the island's start."""

    counted: dict[int, int] = field(default_factory=dict)  # by task
    expected: dict[int, int] = field(default_factory=dict)
    pending: dict[int, tuple[int, int, frozenset[int]]] = field(default_factory=dict)
    """By scoreboard: when a wait may issue, when it is released, tasks that claimed it."""
    last: tuple[int, int] = (-1, -1)  # counted and expected issue time


def _start(p: Problem) -> _Issued:
    out = _Issued()
    for c in p.carried:
        seen, released, _ = out.pending.get(c.scoreboard, (c.seen, c.released, None))
        claims = frozenset({carried_id(c.scoreboard)})
        out.pending[c.scoreboard] = max(seen, c.seen), max(released, c.released), claims
    return out


def _issue(p: Problem, s: _Issued, j: int) -> _Issued:
    """The state behind task ``j``, which issues as soon as it may."""
    task = p.tasks[j]
    counted = max([s.last[0] + 1, task.earliest, *(s.counted[i] + cycles for i, cycles in task.after)])
    waits = task.waits | (0 if s.counted else p.first_waits)
    pending = dict(s.pending)
    over = 0
    for sb, (seen, released, claims) in s.pending.items():
        if waits >> sb & 1 or not claims.isdisjoint(task.released_by):
            counted, over = max(counted, seen), max(over, released)
            del pending[sb]
    expected = max(s.last[1] + counted - s.last[0], over)
    for sb in task.claims:
        _, released, claims = pending.get(sb, (0, 0, frozenset[int]()))
        pending[sb] = counted + SEEN, max(released, expected + task.release), claims | {j}
    return _Issued({**s.counted, j: counted}, {**s.expected, j: expected}, pending, (counted, expected))


def _run(p: Problem, order: Sequence[int]) -> _Issued:
    state = _start(p)
    for j in order:
        state = _issue(p, state, j)
    return state


def expected_cycles(p: Problem, order: Sequence[int]) -> int:
    """Expected cycles from the island's start to the kernel's next instruction."""
    return _run(p, order).last[1] + p.tasks[order[-1]].tail


class _Search:
    """Depth first, in the given order, where a lower bound leaves hope."""

    def __init__(self, p: Problem) -> None:
        self.p = p
        self.all = range(len(p.tasks))
        self.given = _run(p, self.all)
        self.latest = {j: self.given.expected[j] for j in self.all if p.tasks[j].clock}
        self.best: Order = tuple(self.all)
        self.cycles = expected_cycles(p, self.best)
        self.nodes = _NODES
        self.after = [self._after(j) for j in self.all]
        self.rest = self._rests()

    def run(self) -> Found:
        start = _start(self.p)
        if self._bound(start) >= self.cycles:
            return Found(self.best, self.cycles, True)
        self._offer(self._listed())
        proven = self._descend(start, ())
        return Found(self.best, self.cycles, proven)

    def _after(self, j: int) -> list[tuple[int, int]]:
        """Tasks that come before ``j``, and the least cycles from each, releases included."""
        tasks = self.p.tasks
        waited = {i for i, _ in tasks[j].after if any(tasks[j].waits >> sb & 1 for sb in tasks[i].claims)}
        return [*tasks[j].after, *((i, tasks[i].release) for i in waited | {i for i in tasks[j].released_by if i >= 0})]

    def _rests(self) -> list[int]:
        """Least cycles from each task to the end."""
        rest = [task.tail for task in self.p.tasks]
        for j in reversed(self.all):
            for i, cycles in self.after[j]:
                rest[i] = max(rest[i], max(cycles, 1) + rest[j])
        return rest

    def _listed(self) -> Order:
        """List scheduling: of what may issue soonest, what most depends on; clocks without delay."""
        state = _start(self.p)
        order: Order = ()
        while len(order) < len(self.p.tasks):
            ready = [(j not in self.latest, _issue(self.p, state, j), j) for j in self._ready(state)]
            _, state, j = min(ready, key=lambda r: (r[0], r[1].last[1], -self.rest[r[2]], r[2]))
            order = (*order, j)
        return order

    def _ready(self, state: _Issued) -> list[int]:
        done, tasks = state.counted, self.p.tasks
        return [j for j in self.all if j not in done and all(i in done for i, _ in tasks[j].after)]

    def _bound(self, state: _Issued) -> int:
        left = [j for j in self.all if j not in state.counted]
        free = state.last[1] + 1
        bound = free + len(left)
        for j in left:
            soonest = [free, self.p.tasks[j].earliest]
            soonest += [state.expected[i] + cycles for i, cycles in self.after[j] if i in state.expected]
            bound = max(bound, max(soonest) + self.rest[j])
        return bound

    def _descend(self, state: _Issued, order: Order) -> bool:
        """Try all continuations of ``order``; False if the search was cut short."""
        if len(order) == len(self.p.tasks):
            self._offer(order)
            return True
        if self._bound(state) >= self.cycles:
            return True
        complete = True
        for j in self._ready(state):
            self.nodes -= 1
            if self.nodes < 0:
                return False
            after = _issue(self.p, state, j)
            if all(after.expected.get(k, after.last[1] + 1) <= latest for k, latest in self.latest.items()):
                complete &= self._descend(after, (*order, j))
        return complete

    def _offer(self, order: Order) -> None:
        cycles = expected_cycles(self.p, order)
        if cycles < self.cycles and self._acceptable(order):
            self.best, self.cycles = order, cycles

    def _acceptable(self, order: Order) -> bool:
        """Whether an order is no worse than the given one in what the number of cycles does not say.

        No clock is read later, the stall counts take no longer, and no result arrives later behind the island, where
        code that was planned with the given order uses it.
        """
        before, after = self.given, _run(self.p, order)
        ends = [s.last[0] + self.p.tasks[last].tail for s, last in ((before, self.all[-1]), (after, order[-1]))]

        def late(s: _Issued, j: int, end: int) -> int:
            return max(s.counted[j] + self.p.tasks[j].arrives - end, 0)

        return (
            all(after.expected[j] <= latest for j, latest in self.latest.items())
            and ends[1] <= ends[0]
            and all(late(after, j, ends[1]) <= late(before, j, ends[0]) for j in self.all)
        )


@lru_cache(maxsize=_KEPT)
def best_order(p: Problem) -> Found:
    """The best order that is found, the given one if none is strictly better."""
    return _Search(p).run()
