"""What hardware may still be reading or writing, against searches that take the definitions literally."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analysis.programs import ins, program
from xtrace.analysis import KernelAnalysis
from xtrace.analysis.inflight import inflight
from xtrace.isa.model import Flow, Instruction

SCOREBOARDS = 3
LATE = 0b0111  # the fourth register is of a class that is read at issue


def analysis(*items: Instruction) -> KernelAnalysis:
    kernel: Any = SimpleNamespace(info=())
    isa: Any = None
    return KernelAnalysis(kernel, isa, items, "test")


@st.composite
def programs(draw: st.DrawFn) -> tuple[Instruction, ...]:
    n = draw(st.integers(3, 10))
    items = []
    for i in range(n - 1):
        kind = draw(st.sampled_from(["plain", "plain", "unprotected", "claims"]))
        scoreboard = st.none() | st.integers(0, SCOREBOARDS - 1) if kind == "claims" else st.none()
        items.append(
            ins(
                i,
                reads=draw(st.integers(0, 15)),
                writes=draw(st.integers(0, 15)),
                guard=draw(st.sampled_from(["", "@P0"])),
                target=draw(st.none() | st.none() | st.integers(0, n - 1)),
                wait=draw(st.integers(0, 7)) if kind == "claims" else 0,
                write_sb=draw(scoreboard),
                read_sb=draw(scoreboard),
                stall=draw(st.sampled_from([0, 1, 2, 5, 7, 8, 15])),
                tags=["memory"] if kind == "unprotected" else draw(st.sampled_from([(), ("matrix",)])),
                opcode=draw(st.sampled_from(["IADD3", "LDG.E", "DFMA"])),
            )
        )
    return (*items, ins(n - 1, flow=Flow.EXIT, falls=False))


def _next(items: tuple[Instruction, ...], i: int) -> set[int]:
    out = {i + 1} if items[i].falls_through else set()
    return out if items[i].target is None else out | {items[i].target // 16}


def _reached(items: tuple[Instruction, ...], start: int) -> set[int]:
    seen: set[int] = set()
    stack = [start]
    while stack:
        i = stack.pop()
        if i not in seen:
            seen.add(i)
            stack += _next(items, i)
    return seen


def _before(items: tuple[Instruction, ...], claim: int, ends: Any) -> set[int]:
    """Instructions before which a claim of ``claim`` may be outstanding; it ends in an instruction that ``ends`` it."""
    out: set[int] = set()
    stack = list(_next(items, claim))
    while stack:
        i = stack.pop()
        if i not in out:
            out.add(i)
            if not ends(items[i]):
                stack += _next(items, i)
    return out


@given(programs())
@settings(max_examples=150, deadline=None)
def test_a_claim_lasts_on_every_path_until_its_scoreboard_is_waited_for(items: tuple[Instruction, ...]) -> None:
    found = inflight(program(*items), SCOREBOARDS, LATE)
    claimed, busy = [0] * len(items), [0] * len(items)
    for i in _reached(items, 0):
        x, c = items[i], items[i].control
        claims = [(c.write_sb, x.writes), (c.read_sb if c.read_sb is not None else c.write_sb, x.reads & LATE)]
        for k, registers in claims:
            if k is not None:
                for at in _before(items, i, lambda y, k=k: y.control.wait_mask >> k & 1):
                    claimed[at] |= 1 << k
                    busy[at] |= registers
        if "memory" in x.tags and c.write_sb is None and c.read_sb is None:
            for r in (1, 2, 4):
                for at in _before(items, i, lambda y, r=r: y.writes & r) if x.reads & r else ():
                    busy[at] |= r
    assert list(found.claimed) == claimed
    assert list(found.busy) == busy


@given(programs())
@settings(max_examples=150, deadline=None)
def test_results_that_are_only_counted_are_recent_until_they_have_arrived(items: tuple[Instruction, ...]) -> None:
    a = analysis(*items)
    expected = [0] * len(items)
    for start in items:
        slow = "matrix" in start.tags or start.opcode == "DFMA"
        arrivals: dict[int, int] = {}  # cycles from its issue to each instruction, on the shortest path
        work = [(start.index, 0)]
        while work:
            i, cycles = work.pop()
            cycles += max(items[i].control.stall, 1)
            for k in _next(items, i):
                if cycles < arrivals.get(k, 40):
                    arrivals[k] = cycles
                    work.append((k, cycles))
        for i, cycles in arrivals.items():
            if cycles < 8:
                expected[i] |= start.reads
            if cycles < (40 if slow else 16):
                expected[i] |= start.writes
    assert [a.recently_used(i) for i in range(len(items))] == expected


@pytest.mark.parametrize("opcode", ["IADD3", "DFMA"])
@pytest.mark.parametrize("cycles", [7, 8, 15, 16, 39, 40])
def test_operands_take_8_cycles_results_16_and_slow_ones_40(opcode: str, cycles: int) -> None:
    a = analysis(
        ins(0, reads=1, writes=2, stall=cycles - 3, opcode=opcode), ins(1, stall=3), ins(2, flow=Flow.EXIT, falls=False)
    )
    pending = 2 if cycles < (40 if opcode == "DFMA" else 16) else 0
    assert a.recently_used(2) == pending | (1 if cycles < 8 else 0)


@pytest.mark.parametrize(
    ("opcode", "first", "late"), [("IADD3", 8, 8), ("DFMA", 20, 18)]
)  # too late by way of such stalls
@pytest.mark.parametrize("falling", [False, True])
@pytest.mark.parametrize("jumping", [False, True])
def test_the_shorter_way_counts(opcode: str, first: int, late: int, falling: bool, jumping: bool) -> None:
    a = analysis(
        ins(0, writes=2, stall=first, opcode=opcode),
        ins(1, target=3, guard="@P0"),
        ins(2, stall=late if falling else 1, target=4, falls=False),
        ins(3, stall=late if jumping else 1),
        ins(4, stall=1),
        ins(5, flow=Flow.EXIT, falls=False),
    )
    assert a.recently_used(5) == (0 if falling and jumping else 2)
