"""Chains in made-up kernels of any shape: jumps into loops, out-of-line blocks, guarded exits, sites anywhere."""

from __future__ import annotations

import random

import pytest

from tests.analysis.programs import ins
from tests.splice.conftest import image
from xtrace.analysis import KernelAnalysis
from xtrace.isa import for_arch
from xtrace.isa.model import Flow, Instruction
from xtrace.probe import Site
from xtrace.splice.chains import Chain, chains
from xtrace.splice.model import PlacedSite

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
