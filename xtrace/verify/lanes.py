"""Where two groups of a warp's lanes may run one beside the other: the verifier's own answer, on the original kernel.

Lanes part at a branch whose predicate differs between them, and meet at WARPSYNC.ALL, or at the BSYNC of a barrier that
all of them had set. What differs is followed through registers and through stack slots. Two exceptions make code under
an elected lane usable: while one side of a branch waits at the meeting point, the other side has the warp to itself;
and one single lane cannot part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Set
from dataclasses import dataclass

from xtrace.isa.model import Flow, Instruction
from xtrace.verify.frames import stack_slots
from xtrace.verify.program import Program

__all__ = ["parted", "together"]

_THREAD = re.compile(r"SR_(TID|LANEID|\w+MASK)\b")
_BROADCAST = re.compile(r"SHFL\.IDX (?:PT|P\d), R\d+, R(?:\d+|Z), (R\d+|RZ|0x[0-9a-f]+), 0x1f\b")
_ELECT = re.compile(r"ELECT (P\d), UR(?:\d+|Z), PT\b")
_BRANCH = re.compile(r"@(!?)(P\d) BRA \S+$")
_REACH = 64  # instructions of a way to the meeting point


@dataclass(frozen=True, slots=True)
class _Side:
    """Instructions that only those run who did not go straight to the meeting point."""

    body: frozenset[int]
    barrier: int  # of the meeting point; 0: WARPSYNC.ALL
    lone: int  # predicate (bit) that holds in every lane that enters; 0: none known


@dataclass(slots=True)
class _State:
    varies: int = 0  # differs between lanes: registers, and stack slots above them
    parted: bool = False
    barriers: int = 0  # set by all lanes together
    inside: int = 0  # sides that some lanes may have entered without the others
    crowd: int = 0  # sides that several lanes may have entered
    lone: int = 0  # predicates that hold in one lane at most

    def join(self, other: _State) -> _State:
        return _State(
            self.varies | other.varies, self.parted or other.parted, self.barriers & other.barriers,
            self.inside | other.inside, self.crowd | other.crowd, self.lone & other.lone,
        )  # fmt: skip


def parted(program: Program, busy: Set[int]) -> list[bool]:
    """Before each instruction, whether a second group of lanes may be running.

    ``busy`` are the instructions in front of which probes do something: who passes one does not merely wait.
    """
    return [state is None or state.parted for state in _states(program, busy)]


def together(program: Program, busy: Set[int]) -> list[bool]:
    """Before each instruction, whether all lanes of the warp that have not ended are here."""
    return [state is not None and not state.parted and not state.inside for state in _states(program, busy)]


def _states(program: Program, busy: Set[int]) -> list[_State | None]:
    """What is known before each instruction; None where control does not get."""
    flow = _Flow(program, busy)
    blocks = program.blocks()
    number = {block.start: n for n, block in enumerate(blocks)}
    before: dict[int, _State] = {program.block_of[i]: _State() for i in program.entries}
    work = sorted(before)
    result: list[_State | None] = [None] * len(program.code)
    while work:
        n = work.pop(0)
        block, state = blocks[n], before[n]
        for i in block:
            result[i] = state
            state = flow.step(i, state)
            if i != block[-1] and program.code[i].flow is not Flow.FALL:  # a branch to the next instruction parts too
                state = flow.edge(i, i + 1, state)
        for j in program.succ[block[-1]]:
            new = flow.edge(block[-1], j, state)
            m = number[j]
            old = before.get(m)
            joined = new if old is None else old.join(new)
            if joined != old:
                before[m] = joined
                if m not in work:
                    work.append(m)
    return result


class _Flow:
    def __init__(self, program: Program, busy: Set[int]) -> None:
        self._program, self._busy = program, busy
        layout = program.layout
        self._lanes = layout["R"].mask | layout["P"].mask
        self._slots = stack_slots(program)
        self._rules = [self._rule(ins) for ins in program.code]
        self._elections = {i: self._elected(i) for i in range(len(program.code))}
        self._sides: list[_Side] = []
        self._at: dict[int, int] = {}  # branch -> its side
        for ins in program.code:
            if ins.flow is Flow.BRANCH and ins.guard and not ins.opcode.startswith("BRA.U"):
                side = self._side(ins)
                if side is not None:
                    self._at[ins.index] = len(self._sides)
                    self._sides.append(side)
        self._writes = [self._written_in(side.body) for side in self._sides]
        self._lies_in = [0] * len(program.code)
        for n, side in enumerate(self._sides):
            for i in side.body:
                self._lies_in[i] |= 1 << n

    def _written_in(self, body: frozenset[int]) -> int:
        bits = 0
        for i in body:
            bits |= self._written(self._program.code[i])
        return bits

    def _written(self, ins: Instruction) -> int:
        slots = self._slots.get(ins.index, 0) if ins.base == "STL" else 0
        return ins.writes & self._lanes | slots

    def _reads(self, ins: Instruction) -> int:
        return ins.reads | (self._slots.get(ins.index, 0) if ins.base == "LDL" else 0)

    def _rule(self, ins: Instruction) -> Callable[[_State], bool]:
        """Whether what an instruction writes differs between lanes that run it together."""
        if ins.opaque or ins.base in ("ELECT", "LDSM", "MATCH", "LDTM") or _THREAD.search(ins.text):
            return lambda _: True
        if ins.tags & {"matrix", "atomic"} or ("local_load" in ins.tags and ins.index not in self._slots):
            return lambda _: True
        if ins.base in ("VOTE", "REDUX"):
            return lambda _: False
        if ins.base == "SHFL":
            match = _BROADCAST.search(ins.text)
            if match is None:
                return lambda _: True
            index = self._program.layout["R"].bit(int(match[1][1:])) if re.fullmatch(r"R\d+", match[1]) else 0
            return lambda s: bool(s.inside or s.varies & index)
        reads = self._reads(ins)
        return lambda s: bool(s.varies & reads)

    def _elected(self, i: int) -> int:
        """Predicates of which an election makes one lane's true; for a collective, the election that it is about."""
        code, layout = self._program.code, self._program.layout
        ins = code[i]
        if ins.guard:
            return 0
        if match := _ELECT.match(ins.text.strip()):
            return layout["P"].bit(int(match[1][1:]))
        if ins.opcode != "WARPSYNC.COLLECTIVE":
            return 0
        elected = 0
        for k in range(i + 1, len(code)):
            match = None if code[k].guard else _ELECT.match(code[k].text.strip())
            elected &= ~code[k].writes
            elected |= layout["P"].bit(int(match[1][1:])) if match else 0
            if code[k].base == "ENDCOLLECTIVE":
                return elected
            if code[k].flow is not Flow.FALL:
                return 0
        return 0

    def _alone(self, i: int, s: _State) -> int:
        """Sides around that at most one lane has entered."""
        return self._lies_in[i] & ~s.crowd

    def step(self, i: int, s: _State) -> _State:
        """State behind instruction ``i``, wherever it goes on."""
        ins = self._program.code[i]
        varies, parting, barriers, lone = s.varies, s.parted, s.barriers, s.lone
        if written := self._written(ins):
            lone &= ~written
            if parting or not self._alone(i, s) & s.inside:  # else edge() will tell that it differs
                differs = parting or self._rules[i](s)
                kills = not ins.conditional and not ins.opaque
                varies = varies | written if differs else varies & ~(written if kills else 0)
        if not (parting or s.inside):
            lone |= self._elections[i]
        if ins.base == "BSSY":
            barriers = barriers & ~_barrier(ins) if parting else barriers | _barrier(ins)
        elif ins.base == "BSYNC" and barriers & _barrier(ins):
            parting, barriers = False, barriers & ~_barrier(ins)
        elif _meets_all(ins):
            parting = False
        return _State(varies, parting, barriers, s.inside, s.crowd, lone)

    def edge(self, i: int, j: int, s: _State) -> _State:
        """State on the way from ``i`` to ``j``."""
        ins = self._program.code[i]
        varies, parting, inside, crowd = s.varies, s.parted, s.inside, s.crowd
        number = self._at.get(i)
        side = None if number is None else self._sides[number]
        if side is not None and number is not None and j in side.body and not side.lone & s.lone:
            crowd |= 1 << number
        if self._splits(ins) and self._reads(ins) & varies and not self._alone(i, s):
            waits = side is not None and not parting and (not side.barrier or side.barrier & s.barriers)
            if waits and side is not None and number is not None and j in side.body:
                inside |= 1 << number
            else:
                parting = True
        here = self._lies_in[j]
        for n, written in enumerate(self._writes):
            if inside >> n & 1 and not here >> n & 1:  # the others are still on their way, with their old values
                varies, parting = varies | written, True
        return _State(varies, parting, s.barriers, inside & here, crowd & here, s.lone)

    def _splits(self, ins: Instruction) -> bool:
        if ins.flow in (Flow.INDIRECT, Flow.CALL, Flow.RETURN):
            return True
        return ins.flow is Flow.BRANCH and bool(ins.guard) and not ins.opcode.startswith("BRA.U")

    def _side(self, branch: Instruction) -> _Side | None:
        """The side of a branch that works while the other one waits, if there is one."""
        succ = self._program.succ[branch.index]
        if len(succ) != 2:
            return None
        for straight, enter in (succ, succ[::-1]):
            meeting = self._meeting(straight)
            if meeting is None:
                continue
            body = self._body(branch.index, enter, meeting[1], meeting[0])
            if body is not None:
                match = _BRANCH.match(branch.text.strip())
                falls = enter == branch.index + 1
                known = match is not None and bool(match[1]) == falls
                lone = self._program.layout["P"].bit(int(match[2][1:])) if match and known else 0
                return _Side(body, 0 if _meets_all(self._program.code[meeting[0]]) else _barrier(
                    self._program.code[meeting[0]]), lone)  # fmt: skip
        return None

    def _meeting(self, i: int) -> tuple[int, set[int]] | None:
        """Instruction where lanes that go straight on from ``i`` wait for the others, and the way to it."""
        way: set[int] = set()
        for _ in range(_REACH):
            ins = self._program.code[i]
            way.add(i)
            if i in self._busy or ins.opaque:
                return None
            if _meets_all(ins) or (ins.base == "BSYNC" and not ins.guard):
                return i, way
            if len(self._program.succ[i]) != 1 or {ins.control.write_sb, ins.control.read_sb} != {None}:
                return None
            if ins.flow is not Flow.FALL and (ins.flow is not Flow.BRANCH or ins.guard):
                return None
            if "converge" in ins.tags:
                return None
            i = self._program.succ[i][0]
        return None

    def _body(self, branch: int, enter: int, way: set[int], meeting: int) -> frozenset[int] | None:
        code, succ, pred = self._program.code, self._program.succ, self._program.pred
        body: set[int] = set()
        work = [enter]
        while work:
            i = work.pop()
            if i in way or i in body:
                continue
            ins = code[i]
            ends = not succ[i] or ins.flow is Flow.EXIT or ins.opaque
            if i == branch or ends or ins.base in ("WARPSYNC", "BREAK", "YIELD"):
                return None
            if ins.base == "BSSY" and _barrier(ins) == _barrier(code[meeting]):
                return None
            body.add(i)
            work += succ[i]
        live = self._program_reachable()
        for i in body:
            if any(p not in body and live[p] and not (p == branch and i == enter) for p in pred[i]):
                return None
        return frozenset(body) if body and not self._foreign_barrier(body, enter) else None

    def _program_reachable(self) -> list[bool]:
        if not hasattr(self, "_live"):
            self._live = self._program.reachable()
        return self._live

    def _foreign_barrier(self, body: set[int], enter: int) -> bool:
        """Whether a barrier that was set outside may be waited for in ``body``."""
        open_: dict[int, int] = {}
        work = [(enter, -1)]
        while work:
            i, foreign = work.pop()
            known = open_.get(i, 0)
            if i not in body or not foreign & ~known:
                continue
            open_[i] = foreign = foreign | known
            ins = self._program.code[i]
            if ins.base == "BSYNC" and foreign & _barrier(ins):
                return True
            if ins.base == "BSSY":
                foreign &= ~_barrier(ins)
            work += [(j, foreign) for j in self._program.succ[i]]
        return False


def _barrier(ins: Instruction) -> int:
    match = re.search(r"\bB(\d+)\b", ins.text)
    return 1 << int(match[1]) if match else 0


def _meets_all(ins: Instruction) -> bool:
    return ins.opcode == "WARPSYNC.ALL" and not ins.guard
