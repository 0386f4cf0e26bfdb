"""Order, stall counts and scoreboard waits of straight-line probe code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from . import encode as e
from .dependence import READ_LATE, SEEN, Claim, Problem, arrives, between, foreign, problem, tail
from .encode import Op, Unit
from .occupation import release_cycles
from .ordering import best_order

__all__ = ["Island", "Patch", "Scheduler", "schedule"]

_NO_SB = 7
_BRANCH_ISSUE = 5  # cycles that compilers leave behind a branch


class Patch(NamedTuple):
    """A u32 immediate (word bits 32-63) that is filled in at load time."""

    word_index: int
    value: str


@dataclass(frozen=True, slots=True)
class Island:
    words: tuple[int, ...]
    patches: tuple[Patch, ...] = ()


def _control(stall: int, op: Op) -> int:
    code = stall + 16 if stall <= 11 else stall  # keep issuing from this warp where the encoding allows it
    write_sb = _NO_SB if op.write_sb is None else op.write_sb
    read_sb = _NO_SB if op.read_sb is None else op.read_sb
    return code | write_sb << 5 | read_sb << 8 | op.wait << 11


class _Pending(NamedTuple):
    """Claims on one scoreboard that nothing has waited for yet."""

    registers: int
    at: int  # issue time of the last one
    released: int  # modelled time


class Scheduler:
    """In-order issue times that satisfy every dependence, over islands that run one after the other."""

    def __init__(self) -> None:
        self._done: list[tuple[Op, int]] = []
        self._pending_write: dict[int, _Pending] = {}  # by scoreboard
        self._pending_read: dict[int, _Pending] = {}
        self._free = 0  # earliest issue time of the next instruction

    def gap(self, cycles: int) -> None:
        """Least time that the kernel's own instructions take between this island and the next."""
        self._free += cycles

    def island(self, ops: list[Op]) -> Island:
        """``ops``, at least one, in the order that lets the kernel go on soonest; equals keep the given one.

        An island with a branch keeps its order: it was written so that nothing is on its way where the branch leaves.
        """
        start, before = self._free, self._state()
        issued = [self._issue(op, start + op.after) for op in ops]
        waits = issued[0][0].wait != ops[0].wait or any(op.wait for op, _ in issued[1:])
        stalls = issued[-1][1] - start + tail(ops[-1]) > len(ops)
        if len(ops) == 1 or not (waits or stalls) or any(op.unit is Unit.BRANCH for op in ops):
            return _words(start, issued)
        self._restore(before)
        choice = self.ordering(ops)
        return self.in_order(ops, best_order(choice).order, [task.earliest for task in choice.tasks])

    def ordering(self, ops: list[Op]) -> Problem:
        """The choice of an order that :meth:`island` has for ``ops`` now."""
        start, before = self._free, self._state()
        pending = (self._pending_write, self._pending_read)
        carried = [Claim(sb, p.at + SEEN - start, p.released - start) for each in pending for sb, p in each.items()]
        conflicts = [sorted(set(self._conflicts(op))) for op in ops]
        earliest = [max([op.after, *(at - start for at in self._results(op))]) for op in ops]
        known = self.written
        for j, op in enumerate(ops):
            _, time = self._issue(op, start + op.after)
            if foreign(op, known):
                earliest[j] = time - start
            known |= op.writes
        self._restore(before)
        return problem(ops, earliest, carried, conflicts)

    def in_order(self, ops: Sequence[Op], order: Sequence[int], earliest: Sequence[int]) -> Island:
        """``ops`` in one order, each ``earliest`` cycles from the island's start or later. A first wait stays first."""
        start = self._free
        bare = [replace(ops[0], wait=0), *ops[1:]]
        return _words(
            start,
            [
                self._issue(bare[j] if n else bare[j].waiting(ops[0].wait), start + max(earliest[j], bare[j].after))
                for n, j in enumerate(order)
            ],
        )

    @property
    def written(self) -> int:
        """Registers that the islands so far write."""
        bits = 0
        for op, _ in self._done:
            bits |= op.writes
        return bits

    @property
    def unsettled(self) -> int:
        """Cycles from here until every result of fixed latency has arrived."""
        return max((at + arrives(op) for op, at in self._done), default=0) - self._free

    def _state(self) -> tuple[int, dict[int, _Pending], dict[int, _Pending], int]:
        return len(self._done), dict(self._pending_write), dict(self._pending_read), self._free

    def _restore(self, state: tuple[int, dict[int, _Pending], dict[int, _Pending], int]) -> None:
        count, self._pending_write, self._pending_read, self._free = state[0], dict(state[1]), dict(state[2]), state[3]
        del self._done[count:]

    def _results(self, op: Op) -> Iterator[int]:
        """When ``op`` may issue, by results that are counted in cycles."""
        for earlier, at in reversed(self._done):
            if (cycles := between(earlier, op)) is not None:
                yield at + cycles

    def _conflicts(self, op: Op) -> Iterator[int]:
        """Scoreboards that hold registers of ``op``."""
        for pending, registers in ((self._pending_write, op.reads | op.writes), (self._pending_read, op.writes)):
            yield from (sb for sb, p in pending.items() if p.registers & registers)

    def _issue(self, op: Op, earliest: int = 0) -> tuple[Op, int]:
        time = max([self._free, earliest, *self._results(op)])
        for sb in self._conflicts(op):
            op = op.waiting(1 << sb)
        for pending in (self._pending_write, self._pending_read):
            for sb in [k for k in pending if op.wait >> k & 1]:
                time = max(time, pending.pop(sb).at + SEEN)  # a wait one cycle after the claim does not see it
        for claim, pending, registers in (
            (op.write_sb, self._pending_write, op.writes),
            (op.read_sb, self._pending_read, op.reads & READ_LATE),
        ):
            if claim is not None:
                so_far = pending.get(claim, _Pending(0, 0, 0))
                released = max(so_far.released, time + release_cycles(op.word))
                pending[claim] = _Pending(so_far.registers | registers, time, released)
        self._done.append((op, time))
        self._free = time + (_BRANCH_ISSUE if op.unit is Unit.BRANCH else 1)
        return op, time


def _idle(cycles: int) -> list[int]:
    """NOPs that take so long."""
    return [e.nop().word | _control(min(rest, 15), e.nop()) << 105 for rest in range(cycles, 0, -15)]


def _words(start: int, issued: list[tuple[Op, int]]) -> Island:
    words = _idle(issued[0][1] - start)  # the kernel's last stall is not ours to lengthen
    patches: list[Patch] = []
    for k, (op, time) in enumerate(issued):
        gap = issued[k + 1][1] - time if k + 1 < len(issued) else tail(op)
        stall = min(gap, 15)
        if op.patch:
            patches.append(Patch(len(words), op.patch))
        words.append(op.word | _control(stall, op) << 105)
        words += _idle(gap - stall)
    return Island(tuple(words), tuple(patches))


def schedule(ops: list[Op], *, settled: int | None = None) -> Island:
    """The fewest stall cycles that satisfy every dependence inside one island.

    With ``settled``, results of fixed latency have arrived so many cycles behind the island, which ends in a stall of
    its own where need be.
    """
    scheduler = Scheduler()
    island = scheduler.island(ops)
    late = 0 if settled is None else scheduler.unsettled - settled
    return Island((*island.words, *_idle(late)), island.patches)
