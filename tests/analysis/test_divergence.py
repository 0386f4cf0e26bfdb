"""Where lanes may be apart: the trace cursor in uniform registers must not be kept across kernel instructions there."""

from __future__ import annotations

from tests.splice.conftest import analysed
from xtrace.splice import Options, plan_kernel


def test_kernels_whose_branches_are_uniform_are_never_apart() -> None:
    for name in ("triton_fa_fwd", "triton_gemm", "triton_softmax"):
        a = analysed(name)
        assert not any(a.divergent[i.index] for i in a.instructions if a.reachable(i.index))


def test_a_branch_on_the_thread_number_takes_lanes_apart_until_they_meet() -> None:
    a = analysed("spin")  # if (threadIdx.x == 0) ... else if (threadIdx.x == 32) ...; then WARPSYNC.ALL
    join = next(i.index for i in a.instructions if i.opcode == "WARPSYNC.ALL")
    split = next(i.index for i in a.instructions if i.base == "BRA" and i.guard and i.index < join)
    assert not a.divergent[split]
    assert a.divergent[split + 1]
    assert a.divergent[join]
    assert not a.divergent[join + 1]


def test_records_of_lanes_that_may_be_apart_are_done_within_their_island() -> None:
    a = analysed("spin")
    placed = plan_kernel(a, "op:*", Options())
    for packet in placed.packets:
        if any(a.divergent[p.site.index] for p in packet.islands):
            assert [p.site.kind for p in packet.islands] == ["record"]
            assert packet.islands[0].stores
