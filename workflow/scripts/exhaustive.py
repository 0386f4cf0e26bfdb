"""All orders of a small island, to compare the scheduler with: what is legal and how long it takes is found anew here,
from registers and finished words alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import reduce
from operator import or_

from xtrace.isa.nvidia.control import CONTROL_MASK
from xtrace.isa.nvidia.encode import Op, Unit
from xtrace.isa.nvidia.occupation import occupation
from xtrace.isa.nvidia.schedule import Island, Scheduler

__all__ = ["LARGEST", "Comparison", "compare"]

LARGEST = 8  # ops: up to 40,320 orders
_CLOCK_READ = 0x805
UNIFORM = ((1 << 87) - 1) << 272
_ARRIVES = {"ALU": 8, "UNIFORM": 12, "UNIFORM_MOVE": 5, "TO_UNIFORM": 15, "ELECT": 13}
_ARRIVES |= {"UNIFORM_PREDICATE": 6, "PREDICATE": 13}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Expected cycles of an island: stall counts, and waits for modelled releases."""

    given: int  # in the order that it was written in
    scheduled: int
    optimum: int  # over all legal orders
    orders: int


@dataclass(frozen=True, slots=True)
class _Run:
    """One order, executed. Times count from the island's start, by op."""

    counted: dict[int, int]
    expected: dict[int, int]
    ends: tuple[int, int]  # counted, expected


def compare(scheduler: Scheduler, ops: Sequence[Op]) -> Comparison:
    """Schedule ``ops`` in the state that ``scheduler`` is in, which stays as it is, and in all legal orders."""
    start: dict[int, int] = {}
    for c in scheduler.ordering(list(ops)).carried:
        start[c.scoreboard] = max(start.get(c.scoreboard, 0), c.released)
    order = tuple(range(len(ops)))
    given = _run(scheduler, ops, order, [0] * len(ops), start)
    known = [scheduler.written | reduce(or_, (op.writes for op in ops[:j]), 0) for j in order]
    own = [UNIFORM if op.unit is Unit.MEMORY else 0 for op in ops]  # where a store goes is known to be ours
    kernels = [bool(op.reads & ~known[j] & ~own[j]) for j, op in enumerate(ops)]
    earliest = [given.counted[j] if kernels[j] else 0 for j in order]
    best, count = given.ends[1], 0
    for order in _orders(ops):
        run = _run(scheduler, ops, order, earliest, start)
        if _no_worse(run, given, ops):
            count += 1
            best = min(best, run.ends[1])
    *_, (_, _, _, scheduled) = _times(deepcopy(scheduler).island(list(ops)), start)
    return Comparison(given.ends[1], scheduled[1], best, count)


def _orders(ops: Sequence[Op], done: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    if len(done) == len(ops):
        yield done
    for j in range(len(ops)):
        before = (i for i in range(j) if i not in done)
        if j not in done and not any(_ordered(ops[i], ops[j], first=i == 0) for i in before):
            yield from _orders(ops, (*done, j))


def _ordered(a: Op, b: Op, *, first: bool) -> bool:
    """Whether ``a`` must stay in front of ``b``. The first op's wait does not count: whichever is first has it."""
    registers = a.writes & (b.reads | b.writes) or a.reads & b.writes
    scoreboards = [{sb for sb in (op.write_sb, op.read_sb) if sb is not None} for op in (a, b)]
    claimed_then_waited = any(b.wait >> sb & 1 for sb in scoreboards[0])
    waits = bool(a.wait) and not first
    memory = a.unit is b.unit is Unit.MEMORY
    return bool(registers or claimed_then_waited or waits or memory or (_clock(a) and _clock(b)))


def _clock(op: Op) -> bool:
    return op.word & 0xFFF == _CLOCK_READ


def _no_worse(run: _Run, given: _Run, ops: Sequence[Op]) -> bool:
    """No clock read later, no more stall cycles, no result later behind the island."""
    if run.ends[0] > given.ends[0]:
        return False
    for j, op in enumerate(ops):
        if _clock(op) and run.expected[j] > given.expected[j]:
            return False
        arrives = _ARRIVES.get(op.unit.name, 0) if op.writes and op.write_sb is None else 0
        late = [max(r.counted[j] + arrives - r.ends[0], 0) for r in (run, given)]
        if late[0] > late[1]:
            return False
    return True


def _run(
    scheduler: Scheduler, ops: Sequence[Op], order: Sequence[int], earliest: Sequence[int], start: Mapping[int, int]
) -> _Run:
    island = deepcopy(scheduler).in_order(ops, order, earliest)
    counted, expected, to_come = {}, {}, list(order)
    timed = list(_times(island, start))
    for word, now, time, _ in timed:
        if to_come and word & ~CONTROL_MASK == ops[to_come[0]].word:
            j = to_come.pop(0)
            counted[j], expected[j] = now, time
    assert not to_come, "an op of the island is not among its words"
    return _Run(counted, expected, timed[-1][3])


def _times(island: Island, start: Mapping[int, int]) -> Iterator[tuple[int, int, int, tuple[int, int]]]:
    """Each word with its counted and expected issue time, and when the next one may issue."""
    left = dict(start)
    now = time = 0
    for word in island.words:
        w = occupation(word)
        time = max([time, *(left.pop(sb) for sb in list(left) if w.waits >> sb & 1)])
        left |= {sb: max(left.get(sb, 0), time + w.release) for sb in w.claims}
        yield word, now, time, (now + w.issue, time + w.issue)
        now, time = now + w.issue, time + w.issue
