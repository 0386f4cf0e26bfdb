"""Stall counts and scoreboard waits for straight-line probe code.

Cycle counts are the public table values of sm_90 (facts/sass.md 7.1), never the smaller measured ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from . import encode as e
from .encode import Op, Unit

__all__ = ["Island", "Patch", "Scheduler", "schedule"]

_NO_SB = 7
_READS_LATE = (Unit.MEMORY, Unit.TO_UNIFORM)  # the guard, or the source, up to two cycles after issue
_BRANCH_ISSUE = 5  # cycles that compilers leave behind a branch
_READ_LATE = ~(0x7F << 256)  # stores read registers after issue, but their guard predicate at it


class Patch(NamedTuple):
    """A u32 immediate (word bits 32-63) that is filled in at load time."""

    word_index: int
    value: str


@dataclass(frozen=True, slots=True)
class Island:
    words: tuple[int, ...]
    patches: tuple[Patch, ...] = ()


def _distance(producer: Op, consumer: Op) -> int:
    """Cycles from issue of ``producer`` to issue of ``consumer`` that reads its result (sm_90 table values)."""
    to_memory = consumer.unit in (Unit.MEMORY,)
    uniform = consumer.unit in (Unit.UNIFORM, Unit.UNIFORM_PREDICATE)
    match producer.unit:
        case Unit.ALU:
            return 8 if to_memory else 6
        case Unit.UNIFORM:
            return 4 if uniform else 7 if consumer.unit is Unit.UNIFORM_MOVE else 12
        case Unit.UNIFORM_MOVE:
            return 2 if uniform or consumer.unit is Unit.UNIFORM_MOVE else 5
        case Unit.TO_UNIFORM:
            return 13 if uniform else 15
        case Unit.ELECT:
            return 13
        case Unit.UNIFORM_PREDICATE:
            return 6
        case Unit.PREDICATE:
            return 5 if consumer.unit is Unit.PREDICATE else 13
    return 2


def _control(stall: int, op: Op) -> int:
    code = stall + 16 if stall <= 11 else stall  # keep issuing from this warp where the encoding allows it
    write_sb = _NO_SB if op.write_sb is None else op.write_sb
    read_sb = _NO_SB if op.read_sb is None else op.read_sb
    return code | write_sb << 5 | read_sb << 8 | op.wait << 11


class Scheduler:
    """In-order issue times that satisfy every dependence, over islands that run one after the other."""

    def __init__(self) -> None:
        self._done: list[tuple[Op, int]] = []
        self._pending_write: dict[int, tuple[int, int]] = {}  # scoreboard -> (registers, issue time of the last claim)
        self._pending_read: dict[int, tuple[int, int]] = {}
        self._free = 0  # earliest issue time of the next instruction

    def gap(self, cycles: int) -> None:
        """Least time that the kernel's own instructions take between this island and the next."""
        self._free += cycles

    def island(self, ops: list[Op]) -> Island:
        start = self._free
        issued = [self._issue(op, start) for op in ops]
        words: list[int] = []
        for early in range(issued[0][1] - start, 0, -15):  # the kernel's last stall is not ours to lengthen
            words.append(e.nop().word | _control(min(early, 15), e.nop()) << 105)
        patches: list[Patch] = []
        for k, (op, time) in enumerate(issued):
            # Behind the island a kernel instruction may overwrite what a last store or move reads.
            gap = issued[k + 1][1] - time if k + 1 < len(issued) else 2 if op.unit in _READS_LATE or op.settle else 1
            stall = min(gap, 15)
            if op.patch:
                patches.append(Patch(len(words), op.patch))
            words.append(op.word | _control(stall, op) << 105)
            for rest in range(gap - stall, 0, -15):
                words.append(e.nop().word | _control(min(rest, 15), e.nop()) << 105)
        return Island(tuple(words), tuple(patches))

    def _issue(self, op: Op, start: int) -> tuple[Op, int]:
        time = max(self._free, start + op.after)
        for earlier, at in reversed(self._done):
            if earlier.write_sb is None and earlier.writes & op.reads:
                time = max(time, at + _distance(earlier, op))
            if earlier.writes & op.writes:
                time = max(time, at + 2)
        for pending, conflicts in ((self._pending_write, op.reads | op.writes), (self._pending_read, op.writes)):
            for sb, (bits, _) in pending.items():
                if bits & conflicts:
                    op = op.waiting(1 << sb)
        for pending in (self._pending_write, self._pending_read):
            for sb in [k for k in pending if op.wait >> k & 1]:
                time = max(time, pending.pop(sb)[1] + 2)  # a wait one cycle after the claim does not see it
        for claim, pending, registers in (
            (op.write_sb, self._pending_write, op.writes),
            (op.read_sb, self._pending_read, op.reads & _READ_LATE),
        ):
            if claim is not None:
                pending[claim] = (pending.get(claim, (0, 0))[0] | registers, time)
        self._done.append((op, time))
        self._free = time + (_BRANCH_ISSUE if op.unit is Unit.BRANCH else 1)
        return op, time


def schedule(ops: list[Op]) -> Island:
    """The fewest stall cycles that satisfy every dependence inside one island."""
    return Scheduler().island(ops)
