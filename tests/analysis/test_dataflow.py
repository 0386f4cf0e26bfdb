"""Liveness and in-flight registers: what a probe must not write."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analysis.programs import ins, program
from xtrace.analysis.inflight import inflight
from xtrace.analysis.liveness import liveness
from xtrace.isa.model import Flow, Instruction, Latency

R0, R1, R2, R3 = 1, 2, 4, 8
ALL = (1 << 512) - 1


@st.composite
def random_programs(draw: st.DrawFn) -> tuple[Instruction, ...]:
    n = draw(st.integers(3, 12))
    items = []
    for i in range(n - 1):
        branch = draw(st.booleans()) and draw(st.booleans())
        guard = draw(st.sampled_from(["", "@P0", "@!P1"]))
        items.append(
            ins(
                i,
                reads=draw(st.integers(0, 15)),
                writes=draw(st.integers(0, 15)),
                guard=guard,
                target=draw(st.integers(0, n - 1)) if branch else None,
            )
        )
    items.append(ins(n - 1, flow=Flow.EXIT, falls=False))
    return tuple(items)


def _live_by_search(items: tuple[Instruction, ...], start: int, register: int) -> bool:
    """Definition of liveness, read literally: some path from ``start`` reads it before anything surely writes it."""
    seen: set[int] = set()
    stack = [start]
    while stack:
        i = stack.pop()
        if i in seen or i >= len(items):
            continue
        seen.add(i)
        if items[i].reads & register:
            return True
        if items[i].kills & register:
            continue
        if items[i].target is not None:
            stack.append(items[i].target // 16)
        if items[i].falls_through:
            stack.append(i + 1)
    return False


@given(random_programs())
@settings(max_examples=150, deadline=None)
def test_liveness_is_exactly_a_path_to_a_read(items: tuple[Instruction, ...]) -> None:
    before = liveness(program(*items)).before
    for i in range(len(items)):
        for register in (R0, R1, R2, R3):
            assert bool(before[i] & register) == _live_by_search(items, i, register)


@given(random_programs())
@settings(max_examples=60, deadline=None)
def test_blocks_partition_the_program_and_edges_agree(items: tuple[Instruction, ...]) -> None:
    cfg = program(*items)
    assert [i for b in cfg.blocks for i in b.indices] == list(range(len(items)))
    for i, out in enumerate(cfg.successors):
        for k in out:
            assert i in cfg.predecessors[k]
            if cfg.block_of[i] == cfg.block_of[k] and k == i + 1:
                continue
            assert cfg.blocks[cfg.block_of[k]].first == k, "control enters a block only at its head"


def test_a_guarded_write_does_not_end_a_live_range() -> None:
    before = liveness(
        program(ins(0, writes=R0, guard="@P0"), ins(1, reads=R0), ins(2, flow=Flow.EXIT, falls=False))
    ).before
    assert before[0] & R0


def test_a_guarded_exit_ends_a_block() -> None:
    cfg = program(ins(0), ins(1, flow=Flow.EXIT, guard="@P0"), ins(2), ins(3, flow=Flow.EXIT, falls=False))
    assert cfg.block_of[1] != cfg.block_of[2]


def test_a_load_target_is_busy_until_its_scoreboard_is_waited_for() -> None:
    cfg = program(
        ins(0, writes=R0, write_sb=2, tags=["memory"], latency=Latency.VARIABLE),
        ins(1),
        ins(2, wait=1 << 2),
        ins(3, flow=Flow.EXIT, falls=False),
    )
    state = inflight(cfg, 6, ALL)
    assert not state.busy[0] & R0
    assert state.busy[1] & R0
    assert state.busy[2] & R0, (
        "the wait acts at the issue of the instruction itself, a probe in front of it is too early"
    )
    assert not state.busy[3] & R0
    assert state.claimed[1] == state.claimed[2] == 1 << 2
    assert state.claimed[3] == 0


def test_store_sources_are_busy_until_read() -> None:
    cfg = program(
        ins(0, reads=R0 | R1, read_sb=1, tags=["memory"]),
        ins(1),
        ins(2, wait=1 << 1),
        ins(3, flow=Flow.EXIT, falls=False),
    )
    state = inflight(cfg, 6, ALL)
    assert state.busy[1] & (R0 | R1) == R0 | R1
    assert not state.busy[3]


def test_a_store_without_scoreboard_keeps_its_sources_until_the_kernel_writes_them() -> None:
    cfg = program(
        ins(0, reads=R0 | R1, tags=["memory"]), ins(1, writes=R0), ins(2), ins(3, flow=Flow.EXIT, falls=False)
    )
    state = inflight(cfg, 6, ALL)
    assert state.busy[1] & R0
    assert not state.busy[2] & R0
    assert state.busy[2] & R1


def test_claims_of_both_branches_count_after_a_join() -> None:
    cfg = program(
        ins(0, target=3, guard="@P0"),
        ins(1, writes=R0, write_sb=0, tags=["memory"], latency=Latency.VARIABLE),
        ins(2, target=4),
        ins(3, writes=R1, write_sb=1, tags=["memory"], latency=Latency.VARIABLE),
        ins(4, flow=Flow.EXIT, falls=False),
    )
    state = inflight(cfg, 6, ALL)
    assert state.claimed[4] == 0b11
    assert state.busy[4] & (R0 | R1) == R0 | R1


def _wgmma(i: int, registers: int, *, commit: bool) -> Instruction:
    tags = ["matrix", "matrix_async"] + (["matrix_commit"] if commit else [])
    return ins(i, reads=registers, writes=registers, tags=tags, latency=Latency.ASYNC_MATRIX, opcode="HGMMA")


def test_the_matrix_unit_owns_its_registers_until_the_group_is_waited_for() -> None:
    cfg = program(
        ins(0, tags=["matrix_fence"]),
        _wgmma(1, R0, commit=True),
        _wgmma(2, R1, commit=True),
        ins(3, tags=["matrix_wait", "pending=1"]),
        ins(4),
        ins(5, tags=["matrix_wait", "pending=0"]),
        ins(6, flow=Flow.EXIT, falls=False),
    )
    busy = inflight(cfg, 6, ALL).busy
    assert busy[3] & (R0 | R1) == R0 | R1
    assert not busy[4] & R0, "the older group has retired"
    assert busy[4] & R1
    assert not busy[6]


def test_registers_of_a_fence_window_are_not_to_be_written_inside_it_or_right_before() -> None:
    cfg = program(
        ins(0, stall=4),
        ins(1, stall=4),
        ins(2, stall=4),
        ins(3, tags=["matrix_fence"]),
        ins(4),
        _wgmma(5, R2, commit=True),
        ins(6, flow=Flow.EXIT, falls=False),
    )
    busy = inflight(cfg, 6, ALL).busy
    assert busy[4] & R2
    assert busy[3] & R2, "a result written here would not have arrived at the fence"
    assert busy[2] & R2, "4 of 8 cycles"
    assert not busy[1] & R2, "8 cycles before the fence it is an ordinary dead register"


def test_a_group_stays_owned_around_a_loop() -> None:
    cfg = program(
        ins(0),
        ins(1),
        _wgmma(2, R0, commit=True),
        ins(3, tags=["matrix_wait", "pending=1"]),
        ins(4, target=1, guard="@P0"),
        ins(5, flow=Flow.EXIT, falls=False),
    )
    assert inflight(cfg, 6, ALL).busy[1] & R0
