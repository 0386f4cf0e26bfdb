"""Loops, reconvergence, register budgets and occupancy."""

from __future__ import annotations

import pytest

from tests.analysis.programs import ins, program
from xtrace.analysis.cfg import build_cfg
from xtrace.analysis.loops import find_loops
from xtrace.analysis.occupancy import SM90, register_slack, resident_blocks_by_registers
from xtrace.errors import Refused
from xtrace.isa.model import Flow

END = {"flow": Flow.EXIT, "falls": False}


def test_nested_loops_have_parents_and_depths() -> None:
    cfg = program(ins(0), ins(1), ins(2), ins(3, target=2, guard="@P0"), ins(4, target=1, guard="@P1"), ins(5, **END))
    outer, inner = find_loops(cfg)
    assert (outer.depth, inner.depth) == (1, 2)
    assert inner.parent == outer.id
    assert inner.blocks < outer.blocks


def test_an_endless_loop_behind_the_exit_is_a_loop_only_if_it_is_reached() -> None:
    cfg = program(ins(0), ins(1, **END), ins(2, target=2))
    assert find_loops(cfg) == ()
    assert cfg.block_of[2] not in cfg.reachable


def _bssy(i: int, barrier: int, target: int):  # type: ignore[no-untyped-def]
    return ins(i, opcode="BSSY", text=f"BSSY B{barrier}, 0x{16 * target:x}", flow=Flow.PUSH, target=target)


def _bsync(i: int, barrier: int):  # type: ignore[no-untyped-def]
    return ins(i, opcode="BSYNC", text=f"BSYNC B{barrier}")


def test_reconvergence_goes_to_the_region_that_was_entered_and_not_to_others() -> None:
    # Two roles use the same barrier number: code of one must not seem to continue in the other.
    cfg = program(
        ins(0, target=6, guard="@P0"),
        _bssy(1, 0, 4),
        ins(2),
        _bsync(3, 0),
        ins(4),
        ins(5, **END),
        _bssy(6, 0, 9),
        ins(7),
        _bsync(8, 0),
        ins(9, **END),
    )
    assert cfg.successors[3] == (4,)
    assert cfg.successors[8] == (9,)


def test_reconvergence_may_skip_ahead_of_the_barrier() -> None:
    cfg = program(_bssy(0, 1, 4), ins(1, target=3, guard="@P0"), _bsync(2, 1), _bsync(3, 1), ins(4, **END))
    assert set(cfg.successors[2]) == {3, 4}


def test_jumps_that_cannot_be_followed_are_refused() -> None:
    with pytest.raises(Refused, match="without a known target list"):
        build_cfg((ins(0, flow=Flow.INDIRECT, falls=False),))
    with pytest.raises(Refused, match="leaves the kernel's code"):
        build_cfg((ins(0, target=99, falls=False),))


@pytest.mark.parametrize(
    ("registers", "threads", "blocks"),
    [(168, 384, 1), (128, 256, 2), (64, 256, 4), (32, 256, 8), (255, 128, 2), (226, 256, 1), (40, 1024, 1)],
)
def test_resident_blocks_as_the_occupancy_calculator_gives_them(registers: int, threads: int, blocks: int) -> None:
    assert resident_blocks_by_registers(registers, threads, SM90) == blocks


@pytest.mark.parametrize(
    ("registers", "threads", "slack"), [(226, 256, 255), (64, 256, 64), (63, 256, 64), (206, 128, 255), (30, None, 32)]
)
def test_register_slack_never_costs_a_block(registers: int, threads: int | None, slack: int) -> None:
    assert register_slack(registers, threads, SM90) == slack
    if threads:
        before = resident_blocks_by_registers(registers, threads, SM90)
        assert resident_blocks_by_registers(slack, threads, SM90) == before
        if slack < 255:
            assert resident_blocks_by_registers(slack + 1, threads, SM90) < before
