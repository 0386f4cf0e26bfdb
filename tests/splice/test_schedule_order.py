"""The scheduler's order of an island against all orders of it."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.splice.conftest import image
from workflow.scripts.exhaustive import LARGEST, Comparison, compare
from xtrace.isa.nvidia import encode as e
from xtrace.isa.nvidia.dependence import Problem
from xtrace.isa.nvidia.encode import Op, SpecialRegister
from xtrace.isa.nvidia.schedule import Island, Scheduler
from xtrace.splice import Options, plan
from xtrace.splice.apply import splice_kernel

CLOCK = SpecialRegister.CLOCK_LO
REGISTERS, UNIFORM, PREDICATES, SCOREBOARDS = (
    st.integers(20, 22),
    st.integers(4, 6),
    st.integers(0, 1),
    st.integers(1, 2),
)


def ops() -> st.SearchStrategy[Op]:
    stores = st.builds(e.store, st.just(4), st.just(0), REGISTERS, st.just(1), SCOREBOARDS)
    return st.one_of(
        st.builds(e.cs2r32, REGISTERS, st.just(CLOCK)),
        st.builds(e.mov_imm, REGISTERS, st.just(7)),
        st.builds(e.mov_uniform, REGISTERS, UNIFORM),
        st.builds(e.umov_imm, UNIFORM, st.just(7)),
        st.builds(lambda u: e.uiadd_imm(u, u, 16), UNIFORM),
        st.builds(e.r2ur, UNIFORM, REGISTERS),
        st.builds(e.elect, PREDICATES),
        st.builds(e.s2r, REGISTERS, st.just(SpecialRegister.TID_X), SCOREBOARDS),
        stores,
        st.builds(lambda store, p: store.guarded(p), stores, PREDICATES),
        st.builds(lambda sb: e.nop().waiting(1 << sb), SCOREBOARDS),
    )


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(ops(), max_size=3), st.lists(ops(), min_size=2, max_size=5), st.integers(0, 20), st.booleans())
def test_random_small_islands_are_as_short_as_any_legal_order(
    before: list[Op], island: list[Op], gap: int, waits: bool
) -> None:
    scheduler = Scheduler()
    if before:
        scheduler.island(before)
        scheduler.gap(gap)
    if waits:
        island[0] = island[0].waiting(1 << 2)
    found = compare(scheduler, island)
    assert found.scheduled == found.optimum <= found.given


def test_an_order_is_changed_where_another_one_is_shorter_and_only_there() -> None:
    late, early = e.elect(1), e.mov_imm(20, 7)
    store = e.store(4, 0, 20, 1, 2).guarded(1)
    better = compare(Scheduler(), [early, late, store])
    assert (better.given, better.scheduled) == (16, 15)
    words = Scheduler().island([late, early, store]).words
    assert [w & 0xFFF for w in words] == [op.word & 0xFFF for op in (late, early, store)]
    kept = [e.mov_imm(20, 7), e.mov_imm(21, 7), e.elect(1)]  # three cycles in any order
    assert [w & 0xFFFF for w in Scheduler().island(kept).words] == [op.word & 0xFFFF for op in kept]


def test_a_clock_is_not_read_later_for_a_shorter_island() -> None:
    island = [e.cs2r32(20, CLOCK), e.elect(1), e.store(4, 0, 21, 1, 2).guarded(1)]
    first, *_ = Scheduler().island(island).words
    assert first & 0xFFF == island[0].word & 0xFFF
    found = compare(Scheduler(), island)
    assert found.scheduled == found.optimum == found.given


def test_the_first_wait_stays_first() -> None:
    island = [e.mov_imm(20, 7).waiting(1 << 3), e.elect(1), e.store(4, 0, 20, 1, 2).guarded(1)]
    words = Scheduler().island(island).words
    assert words[0] & 0xFFF == e.elect(1).word & 0xFFF
    assert [w >> 116 & 63 for w in words] == [1 << 3, 0, 0]


def test_what_the_kernel_wrote_is_not_read_earlier() -> None:
    island = [e.nop(), e.nop(), e.r2ur(6, 20)]  # a last R2UR costs a cycle more
    assert Scheduler().island(island).words[2] & 0xFFF == e.r2ur(6, 20).word & 0xFFF
    own = Scheduler()
    own.island([e.mov_imm(20, 7)])
    own.gap(10)
    assert own.island(island).words[2] & 0xFFF != e.r2ur(6, 20).word & 0xFFF


def test_what_follows_a_wait_stays_behind_it() -> None:
    island = [e.cs2r32(21, CLOCK), e.nop().waiting(1 << 3), e.elect(1), e.store(4, 0, 21, 1, 2).guarded(1)]
    words = Scheduler().island(island).words
    assert [w & 0xFFF for w in words][:3] == [op.word & 0xFFF for op in island[:3]]


@pytest.mark.parametrize("name", ["triton_fa_fwd", "triton_softmax", "warp_specialised", "spin"])
def test_small_islands_of_real_kernels_are_as_short_as_any_legal_order(name: str) -> None:
    compared: dict[Problem, Comparison] = {}
    plain = Scheduler.island

    def island(self: Scheduler, given: list[Op]) -> Island:
        if len(given) <= LARGEST and self.ordering(given) not in compared:
            with mock.patch.object(Scheduler, "island", plain):
                compared[self.ordering(given)] = compare(self, given)
        return plain(self, given)

    loaded = image(name)
    (k,) = plan(loaded, loaded.kernels[:1], "pp", Options()).kernels
    with mock.patch.object(Scheduler, "island", island):
        splice_kernel(k)
    assert compared
    assert all(c.scheduled == c.optimum for c in compared.values())
