"""Where the lanes of a warp may run apart.

Two lane groups of a warp may interleave at any instruction, so trace state that is kept in uniform
registers over several kernel instructions is safe only where no second group can run. A forward
may-analysis follows which registers may differ between lanes, and which branches they decide.
Within a region whose other lanes stand and wait (:mod:`.regions`) those inside are a warp of their own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from xtrace.isa.model import Flow, Instruction, RegisterLayout

from .cfg import Block, ControlFlow
from .dataflow import forward
from .regions import Region, barrier_of, joins_all, regions
from .spills import spill_slots

__all__ = ["Lanes", "lanes"]

_LANE_REGISTERS = re.compile(r"\bSR_(TID|LANEID|[A-Z]+MASK)")
_LANE_TAGS = frozenset({"matrix", "atomic", "local_load"})
_LANE_BASES = frozenset({"ELECT", "LDSM", "MATCH", "LDTM"})
_ONE_LANE = re.compile(r"SHFL\.IDX\s.*,\s*(RZ|R\d+|0x[0-9a-f]+),\s*0x1f\b")
# What a shuffle gives from a lane that has ended is undefined: no sound kernel depends on it.
_ELECTION = re.compile(r"ELECT P\d, UR(?:Z|\d+), PT\b")


@dataclass(frozen=True, slots=True)
class Lanes:
    """What is known about a warp's lanes when control stands before each instruction."""

    apart: tuple[bool, ...]  # another lane group may run at the same time
    sole: tuple[bool, ...]  # at most one lane gets here
    whole: tuple[bool, ...]  # all lanes that have not ended are here together


class _Turn(Enum):
    """What an instruction does to convergence, whatever its operands."""

    OPEN = "sets a convergence barrier"
    MEET = "waits at a convergence barrier"
    JOIN = "brings all lanes together"


class _Effect(NamedTuple):
    """The part of one instruction that matters here, found once: the analysis passes it several times."""

    written: int  # registers of single lanes, and stack slots
    killed: int  # of them, those certainly overwritten
    reads: int
    differs: bool | None  # whether results may differ between lanes that execute it together; None: if an operand does
    shuffle: int | None  # register bits of the one lane's number that a shuffle reads from; None: no such shuffle
    elected: int  # predicates that are true in one lane behind it
    turn: _Turn | None
    barrier: int  # bit of the convergence barrier
    parts: bool  # sends lanes different ways if an operand differs between them
    region: int  # bit of the region that this branch opens
    meets: int  # the barrier at which that region's other lanes wait
    enters: int  # the predicate that is true in those that enter it


@dataclass(frozen=True, slots=True)
class _State:
    varying: int  # registers that may differ between the lanes of this group
    apart: bool
    together: int  # convergence barriers that were set while all lanes were together
    open: int  # regions that some lanes may have entered, and others not
    many: int  # regions that more than one lane may have entered
    few: int  # predicates that are true in at most one lane

    def merge(self, other: _State) -> _State:
        return _State(
            self.varying | other.varying,
            self.apart or other.apart,
            self.together & other.together,
            self.open | other.open,
            self.many | other.many,
            self.few & other.few,
        )


def _differs(ins: Instruction, base: str) -> bool | None:
    if ins.opaque or base in _LANE_BASES or ins.tags & _LANE_TAGS or _LANE_REGISTERS.search(ins.text):
        return True
    return False if base in ("VOTE", "REDUX") else None


def _effect(ins: Instruction, layout: RegisterLayout, region: tuple[int, Region] | None, slots: int) -> _Effect:
    base = ins.base
    written = ins.writes & (layout["R"].mask | layout["P"].mask)
    reads, killed = ins.reads, ins.kills & written
    turn: _Turn | None = None
    bit = 0
    if base in ("BSSY", "BSYNC"):
        bit = barrier_of(ins)
        turn = (_Turn.OPEN if base == "BSSY" else _Turn.MEET) if bit else None
    elif joins_all(ins):
        turn = _Turn.JOIN
    votes = ins.opcode.startswith("BRA.U")  # one decision for all
    parts = ins.flow is Flow.INDIRECT or (ins.flow is Flow.BRANCH and bool(ins.guard) and not votes)
    differs = _differs(ins, base) if written else None
    shuffle: int | None = None
    if slots and "local_load" in ins.tags:
        reads, differs = reads | slots, None
    elif slots:
        written, killed = written | slots, killed | (0 if ins.guard else slots)
    if base == "SHFL":
        differs = True
        if (one := _ONE_LANE.search(ins.text)) and not ins.opaque:
            shuffle = layout["R"].bit(int(one[1][1:])) if one[1][1:].isdigit() else 0
    elected = written if not ins.guard and _ELECTION.match(ins.text) else 0
    opens, meets, enters = (1 << region[0], region[1].barrier, region[1].enters) if region else (0, 0, 0)
    return _Effect(written, killed, reads, differs, shuffle, elected, turn, bit, parts, opens, meets, enters)


class _Analysis:
    def __init__(self, cfg: ControlFlow, layout: RegisterLayout, occupied: Set[int]) -> None:
        self.cfg, self.regions = cfg, regions(cfg, layout, occupied)
        at = {region.branch: (k, region) for k, region in enumerate(self.regions)}
        slots = spill_slots(cfg, layout)
        effects = [_effect(ins, layout, at.get(ins.index), slots.get(ins.index, 0)) for ins in cfg.instructions]
        for ins in cfg.instructions:
            if ins.opcode == "WARPSYNC.COLLECTIVE" and ins.target is not None and not ins.guard:
                # Who gets to its target has run what stands in between, together with all others.
                body = effects[ins.index + 1 : cfg.blocks[cfg.block_of[ins.index + 1]].last + 1]
                elected = 0
                for effect in body:
                    elected = elected & ~effect.written | effect.elected
                effects[ins.index] = effects[ins.index]._replace(elected=elected)
        self._effects = [effects[block.first : block.last + 1] for block in cfg.blocks]
        self._around = [0] * len(cfg.blocks)  # regions around each block
        self._written = [0] * len(self.regions)  # inside each region
        for k, region in enumerate(self.regions):
            for n in region.inside:
                self._around[n] |= 1 << k
                for effect in self._effects[n]:
                    self._written[k] |= effect.written

    def sole(self, s: _State, block: Block) -> int:
        """Regions (bit set) around a block that at most one lane has entered."""
        return self._around[block.number] & ~s.many

    def through(self, s: _State, block: Block) -> _State:
        s = self._arrive(s, block)
        return _through(s, self._effects[block.number], self.sole(s, block))

    def before(self, s: _State, block: Block) -> tuple[list[bool], bool, bool]:
        """Whether lanes may be apart before each instruction of a block, whether one lane at most gets there, and
        whether others may stand and wait elsewhere.
        """
        apart: list[bool] = []
        s = self._arrive(s, block)
        _through(s, self._effects[block.number], self.sole(s, block), apart)
        return apart, bool(self.sole(s, block)), bool(s.open & self._around[block.number])

    def _arrive(self, s: _State, block: Block) -> _State:
        """Behind a region the others are still on their way, or wait; only they know what it has not overwritten."""
        left = s.open & ~self._around[block.number]
        many = s.many & self._around[block.number]
        if not left:
            return _State(s.varying, s.apart, s.together, s.open, many, s.few)
        varying = s.varying
        for k, written in enumerate(self._written):
            if left >> k & 1:
                varying |= written
        return _State(varying, True, s.together, s.open & ~left, many, s.few)


def _through(s: _State, effects: Sequence[_Effect], sole: int, before: list[bool] | None = None) -> _State:
    """State behind a run of instructions. ``before`` gains whether lanes may be apart before each of them."""
    varying, apart, together, opened, many, few = s.varying, s.apart, s.together, s.open, s.many, s.few
    for e in effects:
        if before is not None:
            before.append(apart)
        if e.written:
            few &= ~e.written
            differs = e.differs
            if e.shuffle is not None:  # a lane that is elsewhere gives nothing that all would get
                differs = bool(opened or e.shuffle & varying)
            if sole & opened and not apart:
                pass  # at the region's end it is known to differ; no other lane is here to differ from
            elif apart or differs or (differs is None and e.reads & varying):
                varying |= e.written
            else:
                varying &= ~e.killed
        if e.elected and not (apart or opened):
            few |= e.elected
        if e.turn is _Turn.OPEN:
            together = together & ~e.barrier if apart else together | e.barrier
        elif e.turn is _Turn.JOIN:
            apart = False
        elif e.turn is _Turn.MEET and together & e.barrier:
            apart, together = False, together & ~e.barrier
        if e.region and not e.enters & few:
            many |= e.region
        if e.parts and e.reads & varying and not sole:
            if e.region and not apart and (not e.meets or together & e.meets):
                opened |= e.region
            else:
                apart = True
    return _State(varying, apart, together, opened, many, few)


def lanes(cfg: ControlFlow, layout: RegisterLayout, occupied: Set[int] = frozenset()) -> Lanes:
    """Whether lanes may be apart, and whether one lane is alone, when control stands before each instruction.

    ``occupied`` are the instructions at which probes stand: lanes that pass one do not just wait for the others.
    """
    analysis = _Analysis(cfg, layout, occupied)
    start = forward(cfg, _State(0, False, 0, 0, 0, 0), analysis.through)
    apart: list[bool] = []
    sole: list[bool] = []
    whole: list[bool] = []
    for block in cfg.blocks:
        if block.number in start:
            before, one, part = analysis.before(start[block.number], block)
            apart += before
            sole += [one] * len(before)
            whole += [not (other or part) for other in before]
        else:
            apart += [True] * len(block.indices)
            sole += [False] * len(block.indices)
            whole += [False] * len(block.indices)
    return Lanes(tuple(apart), tuple(sole), tuple(whole))
