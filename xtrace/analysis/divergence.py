"""Where the lanes of a warp may run apart.

Two lane groups of a warp may interleave at any instruction, so trace state that is kept in uniform
registers over several kernel instructions is safe only where all lanes are together. A forward
may-analysis follows which registers may differ between lanes, and which branches they decide.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from xtrace.isa.model import Flow, Instruction, RegisterLayout

from .cfg import ControlFlow

__all__ = ["divergent_points"]

_LANE_REGISTERS = re.compile(r"\bSR_(TID|LANEID|[A-Z]+MASK)")
_BARRIER = re.compile(r"\bB(\d+)\b")
_ONE_LANE = re.compile(r"SHFL\.IDX\s.*,\s*(RZ|0x[0-9a-f]+),\s*0x1f\b")


@dataclass(frozen=True, slots=True)
class _State:
    varying: int  # registers that may differ between lanes
    apart: bool  # lanes may be apart
    together: int  # convergence barriers that were set while all lanes were together

    def merge(self, other: _State) -> _State:
        return _State(self.varying | other.varying, self.apart or other.apart, self.together & other.together)


def _differs(ins: Instruction, varying: int) -> bool:
    """Whether results of an instruction may differ between lanes that execute it together."""
    if ins.opaque or ins.base == "ELECT" or _LANE_REGISTERS.search(ins.text):
        return True
    if ins.tags & {"matrix", "atomic", "local_load"} or ins.base in ("LDSM", "MATCH", "LDTM"):
        return True
    if ins.base == "SHFL":
        return not _ONE_LANE.search(ins.text)
    if ins.base in ("VOTE", "REDUX"):
        return False
    return bool(ins.reads & varying)


def _step(s: _State, ins: Instruction, per_lane: int) -> _State:
    varying, apart, together = s.varying, s.apart, s.together
    written = ins.writes & per_lane
    if written:
        if apart or _differs(ins, varying):
            varying |= written
        else:
            varying &= ~(ins.kills & per_lane)
    barrier = _BARRIER.search(ins.text.split(ins.base, 1)[1]) if ins.base in ("BSSY", "BSYNC") else None
    if barrier is not None:
        bit = 1 << int(barrier[1])
        if ins.base == "BSSY":
            together = together | bit if not apart else together & ~bit
        elif together & bit:
            apart = False
    if ins.opcode == "WARPSYNC.ALL" and not ins.guard:
        apart = False
    if ins.flow in (Flow.BRANCH, Flow.INDIRECT) and (ins.guard or ins.flow is Flow.INDIRECT) and ins.reads & varying:
        apart = True
    return _State(varying, apart, together)


def divergent_points(cfg: ControlFlow, layout: RegisterLayout) -> tuple[bool, ...]:
    """For each instruction, whether lanes may be apart when control stands before it."""
    per_lane = layout["R"].mask | layout["P"].mask
    start: dict[int, _State] = {0: _State(0, False, 0)}
    work = [0] if cfg.blocks else []
    while work:
        n = work.pop()
        state = start[n]
        for i in cfg.blocks[n].indices:
            state = _step(state, cfg.instructions[i], per_lane)
        for k in cfg.blocks[n].successors:
            old = start.get(k)
            new = state if old is None else old.merge(state)
            if new != old:
                start[k] = new
                if k not in work:
                    work.append(k)
    apart = [True] * len(cfg.instructions)
    for block in cfg.blocks:
        if block.number in start:
            state = start[block.number]
            for i in block.indices:
                apart[i] = state.apart
                state = _step(state, cfg.instructions[i], per_lane)
    return tuple(apart)
