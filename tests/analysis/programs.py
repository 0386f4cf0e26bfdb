"""Small hand-made programs for the analyses: instructions without an encoding."""

from __future__ import annotations

from collections.abc import Sequence

from xtrace.analysis.cfg import ControlFlow, build_cfg
from xtrace.isa.model import Control, Flow, Instruction, Latency


def ins(
    index: int,
    *,
    reads: int = 0,
    writes: int = 0,
    target: int | None = None,
    guard: str = "",
    flow: Flow = Flow.FALL,
    falls: bool | None = None,
    wait: int = 0,
    write_sb: int | None = None,
    read_sb: int | None = None,
    stall: int = 1,
    tags: Sequence[str] = (),
    latency: Latency = Latency.FIXED,
    opcode: str = "OP",
    text: str | None = None,
) -> Instruction:
    """Instruction ``index`` of a program; ``target`` is an instruction index."""
    if target is not None and flow is Flow.FALL:
        flow = Flow.BRANCH
    if falls is None:
        falls = flow in (Flow.FALL, Flow.PUSH) or bool(guard)
    return Instruction(
        index=index,
        pc=16 * index,
        word=0,
        size=16,
        text=text or opcode,
        opcode=opcode,
        guard=guard,
        reads=reads,
        writes=writes,
        control=Control(stall, False, write_sb, read_sb, wait),
        flow=flow,
        target=None if target is None else 16 * target,
        falls_through=falls,
        latency=latency,
        tags=frozenset(tags),
    )


def program(*items: Instruction) -> ControlFlow:
    return build_cfg(tuple(items))
