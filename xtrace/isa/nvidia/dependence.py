"""What must come before what in straight-line probe code, and by how many cycles.

Cycle counts are the public table values of sm_90 (facts/sass.md 7.1), never the smaller measured ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .encode import Op, Unit
from .occupation import release_cycles

__all__ = [
    "READS_LATE",
    "READ_LATE",
    "SEEN",
    "Claim",
    "Problem",
    "Task",
    "arrives",
    "between",
    "carried_id",
    "foreign",
    "problem",
    "tail",
]

READS_LATE = (Unit.MEMORY, Unit.TO_UNIFORM)  # the guard, or the source, up to two cycles after issue
READ_LATE = ~(0x7F << 256)  # stores read registers after issue, but their guard predicate at it
SEEN = 2  # cycles after a claim until a wait sees it
_OVERWRITES = 2  # cycles from one write of a register to the next
_OVERWRITES_TO_UNIFORM = 10
_READ_BEFORE_MOVE = 3  # from a read in the uniform datapath to a uniform move that writes
_CLOCK_READ = 0x805
_NOT_UNIFORM = (1 << 263) - 1  # general registers and predicates
_LATEST = {  # cycles until every consumer sees a result
    Unit.ALU: 8,
    Unit.UNIFORM: 12,
    Unit.UNIFORM_MOVE: 5,
    Unit.TO_UNIFORM: 15,
    Unit.ELECT: 13,
    Unit.UNIFORM_PREDICATE: 6,
    Unit.PREDICATE: 13,
}


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


def foreign(op: Op, known: int) -> bool:
    """Whether ``op`` reads what no probe code in view has written. Addresses of stores are always the probes' own."""
    return bool(op.reads & ~known & (_NOT_UNIFORM if op.unit is Unit.MEMORY else -1))


def tail(op: Op) -> int:
    """Cycles behind a last op: a kernel instruction may overwrite what it has not read yet."""
    return 2 if op.unit in READS_LATE or op.settle else 1


def arrives(op: Op) -> int:
    """Cycles from issue until every consumer sees a result of fixed latency; 0 where there is none."""
    return _LATEST.get(op.unit, 0) if op.writes and op.write_sb is None else 0


@dataclass(frozen=True, slots=True)
class Claim:
    """A scoreboard that code in front of an island has claimed. Times count from the island's start."""

    scoreboard: int
    seen: int  # a wait may issue from here on
    released: int  # modelled


@dataclass(frozen=True, slots=True)
class Task:
    """One instruction of an island; others are named by their number in the given order."""

    earliest: int  # cycles from the island's start
    after: tuple[tuple[int, int], ...]  # (task, least cycles from its issue)
    released_by: tuple[int, ...]  # tasks whose claims must be over; carried claims as :func:`carried_id`
    waits: int  # scoreboards that the instruction itself says to wait for (bit set)
    claims: tuple[int, ...]
    release: int  # modelled cycles from issue until they are released
    clock: bool  # must not issue later than in the given order
    arrives: int  # cycles from issue until every consumer behind the island sees the result
    tail: int  # least cycles to the kernel's next instruction


def carried_id(scoreboard: int) -> int:
    """What claims of code in front of the island are called among tasks."""
    return -1 - scoreboard


@dataclass(frozen=True, slots=True)
class Problem:
    """An island to be ordered. Every order that keeps ``after`` computes the same."""

    tasks: tuple[Task, ...]
    carried: tuple[Claim, ...]
    first_waits: int  # scoreboards that the first instruction waits for, whichever it is


def problem(
    ops: Sequence[Op],
    earliest: Sequence[int],
    carried: Sequence[Claim],
    conflicts: Sequence[Sequence[int]],
) -> Problem:
    """``ops``, at least one, as tasks.

    Memory instructions keep their order, clock reads too. The wait of the first instruction stays in front of all; what
    follows another one that says to wait stays behind it.

    Parameters
    ----------
    earliest
        Cycles from the island's start: results of code in front of it arrive, and what the kernel has written is not
        read sooner than in the given order.
    conflicts
        For each op, scoreboards that code in front has claimed for registers of the op.
    """
    first_waits = ops[0].wait
    own = [replace(ops[0], wait=0), *ops[1:]]
    tasks = []
    for j, op in enumerate(own):
        after = [(i, 1 if own[i].wait else 0) for i in range(j)]
        after = [(i, max(cycles, between(own[i], op) or 0)) for i, cycles in after]
        released_by = (*map(carried_id, conflicts[j]), *(i for i in range(j) if _claims_conflict(own[i], op)))
        claims = tuple(sb for sb in (op.write_sb, op.read_sb) if sb is not None)
        release = release_cycles(op.word) if claims else 0
        clock = op.word & 0xFFF == _CLOCK_READ
        tasks.append(
            Task(
                earliest[j],
                tuple((i, cycles) for i, cycles in after if cycles),
                released_by,
                op.wait,
                claims,
                release,
                clock,
                arrives(op),
                tail(op),
            )
        )
    return Problem(tuple(tasks), tuple(carried), first_waits)


def between(first: Op, second: Op) -> int | None:
    """Least cycles from issue of ``first`` to issue of ``second``; None where their order does not matter."""
    cycles = []
    if first.writes & second.reads:
        cycles.append(_distance(first, second) if first.write_sb is None else 1)
    if first.writes & second.writes:
        cycles.append(_OVERWRITES_TO_UNIFORM if first.unit is Unit.TO_UNIFORM else _OVERWRITES)
    if first.reads & second.writes:
        moved = first.unit is Unit.UNIFORM and second.unit is Unit.UNIFORM_MOVE
        cycles.append(_READ_BEFORE_MOVE if moved else 2 if first.unit in READS_LATE else 1)
    same_kind = first.unit is second.unit is Unit.MEMORY or (_clock(first) and _clock(second))
    scoreboards = _claimed(first) & second.wait | _claimed(second) & first.wait
    if same_kind or scoreboards:
        cycles.append(1)
    return max(cycles, default=None)


def _clock(op: Op) -> bool:
    return op.word & 0xFFF == _CLOCK_READ


def _claimed(op: Op) -> int:
    return sum(1 << sb for sb in {op.write_sb, op.read_sb} if sb is not None)


def _claims_conflict(first: Op, second: Op) -> bool:
    written = first.write_sb is not None and first.writes & (second.reads | second.writes)
    read = first.read_sb is not None and first.reads & READ_LATE & second.writes
    return bool(written or read)
