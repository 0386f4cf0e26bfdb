"""Packets that go over a back edge, in made-up kernels of any shape: what they store is what was captured, in order."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.splice.test_random_flow import _random_kernel, _walk
from xtrace.analysis import KernelAnalysis
from xtrace.probe import Site
from xtrace.splice.chains import chains
from xtrace.splice.model import Packet, PlacedSite
from xtrace.splice.resources import FreeFinder
from xtrace.splice.rotate import rotated_packet

WALKS = 12


def _loop_packet(a: KernelAnalysis, rng: random.Random) -> Packet | None:
    """Sites at random instructions, mostly of one loop; one of them is called a wait for the tensor cores."""
    if not a.loops:
        return None
    loop = rng.choice(a.loops)
    inside = [i for n in loop.blocks for i in a.cfg.blocks[n].indices if i]
    sites = sorted(rng.sample(inside, min(len(inside), rng.randint(2, 5))))
    records = [PlacedSite(Site(i, "here")) for i in sites if a.reachable(i)]
    for chain in chains(a, records, {p.site.index for p in records}):
        if len(chain.events) < 2 or len(chain.places) != len(chain.events):
            continue
        record = chain.events[rng.randrange(len(chain.events) - 1)].record
        record.site = replace(record.site, phase="matrix wait")
        packet = rotated_packet(a, chain, FreeFinder(a), {p.site.index for p in records} | {0}, 0)
        if packet is not None:
            return packet
    return None


def _run(packet: Packet, way: list[int]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Events that a warp on this way captures, and those that it stores, as (instruction, time)."""
    assert packet.flush is not None
    registers = {p.capture: 0 for p in packet.records}
    at = {p.site.index: p for p in packet.records}
    captured, stored, cursors = [], [], 0

    def store() -> None:
        stored.extend((p.site.index, registers[p.capture]) for p in packet.records if registers[p.capture])

    for now, i in enumerate(way, 1):
        if i == packet.flush.site.index:
            registers |= dict(packet.flush.moves)
            store()
        if i in at:
            registers[at[i].capture] = now
            captured.append((i, now))
            cursors += at[i].cursor is not None
            if at[i].stores:
                assert cursors == 1, "the cursor moves once before each store"
                cursors = 0
                store()
    return captured, stored


@pytest.mark.parametrize("part", range(4))
def test_what_a_packet_over_a_back_edge_stores_is_what_was_captured(part: int) -> None:
    packets = turns = 0
    for seed in range(2500 * part, 2500 * part + 2500):
        rng = random.Random(seed)
        a = _random_kernel(rng)
        packet = _loop_packet(a, rng)
        if packet is None:
            continue
        packets += 1
        for _ in range(WALKS):
            way = _walk(a, rng)
            captured, stored = _run(packet, way)
            if not a.cfg.successors[way[-1]]:
                assert stored == captured, seed
                turns += len(captured) > len(packet.records)
    assert packets > 20
    assert turns > 20
