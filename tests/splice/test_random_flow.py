"""Chains in made-up kernels of any shape: jumps into loops, out-of-line blocks, guarded exits, sites anywhere."""

from __future__ import annotations

import random
from importlib import import_module

import pytest

from tests.analysis.programs import ins
from tests.splice.conftest import image
from xtrace.analysis import KernelAnalysis
from xtrace.isa import for_arch
from xtrace.isa.model import Flow, Instruction, Latency
from xtrace.isa.nvidia.emit import Carry
from xtrace.probe import Site
from xtrace.splice import Options, Stripes, plan_kernel
from xtrace.splice.chains import Chain, chains
from xtrace.splice.model import LAYOUTS, PlacedSite

R0 = 1  # bit of a general register; those of predicates begin at bit 256
COUNTED = 4  # cycles from one addition to the count of events to the next


def kernel(items: list[Instruction]) -> KernelAnalysis:
    return KernelAnalysis(image("triton_gemm").kernels[0], for_arch("sm_90a"), tuple(items), "made-up kernel")


def chained(a: KernelAnalysis, sites: list[int]) -> list[Chain]:
    records = [PlacedSite(Site(i, "here")) for i in sites if a.reachable(i)]
    return chains(a, records, {p.site.index for p in records})


def _random_kernel(rng: random.Random) -> KernelAnalysis:
    count = rng.randint(6, 24)
    items = []
    for i in range(count - 1):
        draw = rng.random()
        if draw < 0.3:
            guard = "" if rng.random() < 0.3 else "@UP0"
            items.append(ins(i, target=rng.randrange(1, count), guard=guard, stall=rng.randint(1, 6)))
        elif draw < 0.36:
            items.append(ins(i, flow=Flow.EXIT, guard=rng.choice(("", "@P0")), stall=5))
        else:
            items.append(ins(i, stall=rng.randint(1, 6)))
    return kernel([*items, ins(count - 1, flow=Flow.EXIT, stall=5)])


def _walk(a: KernelAnalysis, rng: random.Random) -> list[int]:
    way = [0]
    while a.cfg.successors[way[-1]] and len(way) < 200:
        way.append(rng.choice(a.cfg.successors[way[-1]]))
    return way


def _follow(a: KernelAnalysis, chain: Chain, way: list[int], *, ended: bool) -> None:
    """Places come round in order, optional events at most once, between their places, in order, and apart."""
    optional = {e.record.site.index: (k, e) for k, e in enumerate(chain.events) if e.optional}
    place, latest, counted, now = len(chain.places) - 1, -1, -COUNTED, 0
    for i in way:
        if i in chain.places:
            place = (place + 1) % len(chain.places)
            assert i == chain.places[place], "out of order"
            assert now - counted >= COUNTED or counted < 0
            latest = -1
        elif i in optional:
            k, event = optional[i]
            assert event.place == place, "an optional event outside its places"
            assert k > latest, "optional events twice, or not in order"
            assert now - counted >= COUNTED or latest < 0
            latest, counted = k, now
        now += a.instructions[i].control.stall
    assert not ended or place == len(chain.places) - 1, "the kernel ended within a chain"


@pytest.mark.parametrize("part", range(4))
def test_every_way_through_a_kernel_passes_a_chain_in_order(part: int) -> None:
    shared = optional = 0
    for seed in range(500 * part, 500 * part + 500):
        rng = random.Random(seed)
        a = _random_kernel(rng)
        sites = sorted(rng.sample(range(1, len(a.instructions)), rng.randint(2, 5)))
        found = [c for c in chained(a, sites) if len(c.places) > 1]
        shared += len(found)
        optional += sum(e.optional for c in found for e in c.events)
        for _ in range(12 if found else 0):
            way = _walk(a, rng)
            for chain in found:
                _follow(a, chain, way, ended=not a.cfg.successors[way[-1]])
    assert shared > 50
    assert optional > 3


def test_a_site_in_between_by_address_alone_is_no_optional_event() -> None:
    # Only 2 leads to the block 6-7: whoever passes 3 passes 8, and nobody passes 6 in between.
    items = [ins(i, stall=6) for i in range(10)]
    items[2] = ins(2, target=6, guard="@UP0", stall=6)
    items[5] = ins(5, target=8, stall=6)
    items[7] = ins(7, flow=Flow.EXIT, stall=6)
    items[9] = ins(9, flow=Flow.EXIT)
    for chain in chained(kernel(items), [3, 6, 8]):
        assert not any(e.optional for e in chain.events)


def crowded_kernel(rng: random.Random) -> KernelAnalysis:
    """Few registers are dead, and some are given to matrix instructions behind fences."""
    count = rng.randint(16, 40)
    free = sum(R0 << r for r in rng.sample(range(8, 60), rng.randint(2, 5)))
    free |= sum(15 << 4 * q for q in rng.sample(range(2, 15), rng.randint(1, 3)))
    live = (1 << 255) - 1 & ~free
    matrix = sum(15 << 4 * q for q in rng.sample(range(2, 15), 8)) & free
    items = [ins(0, stall=15), ins(1, writes=live, stall=15), ins(2, stall=15), ins(3, stall=15)]
    for i in range(4, count - 2):
        stall, draw = rng.randint(1, 12), rng.random()
        if draw < 0.2:
            items.append(ins(i, target=min(i + rng.randint(2, 6), count - 2), guard="@UP0", stall=stall))
        elif draw < 0.3:
            items.append(ins(i, tags=("matrix_fence",), stall=stall))
        elif draw < 0.35:
            items.append(ins(i, writes=matrix, latency=Latency.ASYNC_MATRIX, tags=("matrix_commit",), stall=stall))
        elif draw < 0.4:
            items.append(ins(i, tags=("matrix_wait",), stall=stall))
        elif draw < 0.6:  # dead results: what is free here is not free for long
            items.append(ins(i, writes=free & sum(15 << 4 * q for q in rng.sample(range(2, 15), 7)), stall=stall))
        else:
            items.append(ins(i, stall=stall))
    return kernel([*items, ins(count - 2, reads=live, stall=15), ins(count - 1, flow=Flow.EXIT)])


def _least_cycles(a: KernelAnalysis, start: int, end: int) -> int:
    best: dict[int, int] = {}
    stack = [(start, 0)]
    while stack:
        i, cycles = stack.pop()
        if best.get(i, 1 << 30) > cycles:
            best[i] = cycles
            stack += [(k, cycles + a.instructions[i].control.stall) for k in a.cfg.successors[i]]
    return best[end]


@pytest.mark.parametrize("part", range(4))
def test_packets_keep_off_registers_of_the_matrix_unit_and_fetch_no_parked_clock_too_early(part: int) -> None:
    placed = parked = 0
    for seed in range(75 * part, 75 * part + 75):
        rng = random.Random(seed)
        a = crowded_kernel(rng)
        sites = sorted(rng.sample(range(4, len(a.instructions) - 1), rng.randint(2, 9)))
        spec = ",".join(f"pc:{16 * i:#x}" for i in sites)
        for packet in plan_kernel(a, spec, Options(layout=rng.randrange(LAYOUTS))).packets:
            for p in (*packet.islands, *packet.optional):
                placed += 1
                for register in p.general:
                    assert not a.inflight.busy[p.site.index] >> register & 1, (seed, p.site.index, register)
            for p in packet.optional:
                fetched = {
                    step.source: k.site.index for k in packet.islands for step in k.transfers
                    if step.carry is Carry.FETCH
                }  # fmt: skip
                for step in p.transfers:
                    parked += 1  # a move to a uniform register arrives 15 cycles on; two pass in the island
                    assert _least_cycles(a, p.site.index, fetched[step.target]) >= 13, seed
    assert placed > 50
    assert parked > 0


def test_a_ring_without_slack_is_only_for_packets_that_cannot_come_twice() -> None:
    # 3 and 5 lead to each other, and both are entered from outside: a cycle without a head.
    cycle = [ins(i, stall=15) for i in range(8)]
    cycle[2] = ins(2, target=5, guard="@UP0", stall=15)
    cycle[6] = ins(6, target=3, guard="@UP0", stall=15)
    cycle[7] = ins(7, flow=Flow.EXIT)
    assert not kernel(cycle).loops
    # Lanes part at 2 and may never be together again: each group passes 4 for itself.
    apart = [ins(i, stall=15) for i in range(8)]
    apart[1] = ins(1, writes=R0 << 256, text="ISETP P0, SR_LANEID", stall=15)
    apart[2] = ins(2, target=4, guard="@P0", reads=R0 << 256, stall=15)
    apart[7] = ins(7, flow=Flow.EXIT)
    straight = [*(ins(i, stall=15) for i in range(7)), ins(7, flow=Flow.EXIT)]
    for items, wraps in ((cycle, True), (apart, True), (straight, False)):
        result = plan_kernel(kernel(items), "pc:0x40", Options(stripes=Stripes.OFF))
        assert len(result.records) == 1
        assert result.slot is not None
        assert (result.slot.stride > result.slot.ring) == wraps


def test_two_sites_never_move_to_the_same_place(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = (1 << 255) - 1
    items = [ins(i, stall=15) for i in range(9)]
    items[1] = ins(1, writes=everything, stall=15)  # live at 4 and 6, dead at 5
    items[4] = ins(4, reads=everything, stall=15)
    items[5] = ins(5, writes=everything, stall=15)
    items[6] = ins(6, reads=everything, stall=15)
    items[8] = ins(8, flow=Flow.EXIT)
    wanted = [Site(0, "entry", "entry"), Site(4, "a", alternatives=(5,)), Site(6, "b", alternatives=(5,))]
    monkeypatch.setattr(import_module("xtrace.splice.plan"), "select", lambda a, spec: wanted)
    result = plan_kernel(kernel(items), "pp", Options())
    assert [p.site.index for p in result.records] == [5]
    assert [r.site.phase for r in result.refused] == ["b"]


def test_a_jump_back_to_the_first_instruction_is_refused() -> None:
    result = plan_kernel(kernel([*(ins(i) for i in range(4)), ins(4, target=0, guard="@UP0"), ins(5, flow=Flow.EXIT)]),
                         "pp", Options())  # fmt: skip
    assert result.state is None
    assert "back to its first instruction" in result.refused[0].reason
