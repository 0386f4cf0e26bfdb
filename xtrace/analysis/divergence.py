"""Where the lanes of a warp may run apart.

Two lane groups of a warp may interleave at any instruction, so trace state that is kept in uniform
registers over several kernel instructions is safe only where all lanes are together. A forward
may-analysis follows which registers may differ between lanes, and which branches they decide.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from xtrace.isa.model import Flow, Instruction, RegisterLayout

from .cfg import Block, ControlFlow
from .dataflow import forward

__all__ = ["divergent_points"]

_LANE_REGISTERS = re.compile(r"\bSR_(TID|LANEID|[A-Z]+MASK)")
_BARRIER = re.compile(r"\bB(\d+)\b")
_LANE_TAGS = frozenset({"matrix", "atomic", "local_load"})
_LANE_BASES = frozenset({"ELECT", "LDSM", "MATCH", "LDTM"})
_ONE_LANE = re.compile(r"SHFL\.IDX\s.*,\s*(RZ|0x[0-9a-f]+),\s*0x1f\b")


class _Turn(Enum):
    """What an instruction does to convergence, whatever its operands."""

    OPEN = "sets a convergence barrier"
    MEET = "waits at a convergence barrier"
    JOIN = "brings all lanes together"


class _Effect(NamedTuple):
    """The part of one instruction that matters here, found once: the analysis passes it several times."""

    written: int  # registers of single lanes
    killed: int  # of them, those certainly overwritten
    reads: int
    differs: bool | None  # whether results may differ between lanes that execute it together; None: if an operand does
    turn: _Turn | None
    barrier: int  # bit of the convergence barrier
    parts: bool  # sends lanes different ways if an operand differs between them


@dataclass(frozen=True, slots=True)
class _State:
    varying: int  # registers that may differ between lanes
    apart: bool  # lanes may be apart
    together: int  # convergence barriers that were set while all lanes were together

    def merge(self, other: _State) -> _State:
        return _State(self.varying | other.varying, self.apart or other.apart, self.together & other.together)


def _differs(ins: Instruction, base: str) -> bool | None:
    if ins.opaque or base in _LANE_BASES or ins.tags & _LANE_TAGS or _LANE_REGISTERS.search(ins.text):
        return True
    if base == "SHFL":
        return not _ONE_LANE.search(ins.text)
    return False if base in ("VOTE", "REDUX") else None


def _effect(ins: Instruction, per_lane: int) -> _Effect:
    base = ins.base
    written = ins.writes & per_lane
    turn: _Turn | None = None
    bit = 0
    if base in ("BSSY", "BSYNC") and (barrier := _BARRIER.search(ins.text.split(base, 1)[1])):
        turn, bit = _Turn.OPEN if base == "BSSY" else _Turn.MEET, 1 << int(barrier[1])
    elif ins.opcode == "WARPSYNC.ALL" and not ins.guard:
        turn = _Turn.JOIN
    parts = ins.flow is Flow.INDIRECT or (ins.flow is Flow.BRANCH and bool(ins.guard))
    differs = _differs(ins, base) if written else None
    return _Effect(written, ins.kills & per_lane, ins.reads, differs, turn, bit, parts)


def _through(s: _State, effects: Sequence[_Effect], before: list[bool] | None = None) -> _State:
    """State behind a run of instructions. ``before`` gains whether lanes may be apart before each of them."""
    varying, apart, together = s.varying, s.apart, s.together
    for written, killed, reads, differs, turn, barrier, parts in effects:
        if before is not None:
            before.append(apart)
        if written:
            if apart or differs or (differs is None and reads & varying):
                varying |= written
            else:
                varying &= ~killed
        if turn is _Turn.OPEN:
            together = together & ~barrier if apart else together | barrier
        elif turn is _Turn.JOIN or (turn is _Turn.MEET and together & barrier):
            apart = False
        if parts and reads & varying:
            apart = True
    return _State(varying, apart, together)


def divergent_points(cfg: ControlFlow, layout: RegisterLayout) -> tuple[bool, ...]:
    """For each instruction, whether lanes may be apart when control stands before it."""
    per_lane = layout["R"].mask | layout["P"].mask
    effects = [_effect(ins, per_lane) for ins in cfg.instructions]
    of_block = [effects[block.first : block.last + 1] for block in cfg.blocks]

    def through(state: _State, block: Block) -> _State:
        return _through(state, of_block[block.number])

    start = forward(cfg, _State(0, False, 0), through)
    apart: list[bool] = []
    for block in cfg.blocks:
        if block.number in start:
            _through(start[block.number], of_block[block.number], apart)
        else:
            apart += [True] * len(block.indices)
    return tuple(apart)
