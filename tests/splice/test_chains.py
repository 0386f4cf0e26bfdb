"""Which sites share a packet, and what packets promise: together, in order, registers and predicates undisturbed."""

from __future__ import annotations

import itertools

import pytest

from tests.splice.conftest import TRACEABLE, analysed
from xtrace.analysis import KernelAnalysis
from xtrace.splice import KernelPlan, Options, plan_kernel
from xtrace.splice.chains import between, chains, split
from xtrace.splice.line import Line
from xtrace.splice.model import MAX_EVENTS, PlacedSite
from xtrace.splice.resources import FreeFinder

SPECS = ("pp", "block", "op:*")


def planned(name: str, spec: str) -> KernelPlan:
    return plan_kernel(analysed(name), spec, Options())


def _inside(a: KernelAnalysis, first: int, last: int, flush: PlacedSite | None = None) -> set[int]:
    """Instructions that may run from island ``first`` to island ``last`` or ``flush``: its own search, path by path."""
    ends = {last} if flush is None else {last, flush.site.index}
    seen: set[int] = set()
    stack = [first]
    while stack:
        i = stack.pop()
        if i in seen or (i in ends and seen):
            continue
        seen.add(i)
        stack += a.cfg.successors[i]
    return seen - ends


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("name", TRACEABLE)
def test_whoever_passes_one_place_of_a_packet_passes_the_next_before_coming_back(name: str, spec: str) -> None:
    a = analysed(name)
    for packet in planned(name, spec).packets:
        places = [p.site.index for p in packet.islands]
        for here, there in itertools.pairwise(places):
            reached = _inside(a, here, there, packet.flush)
            assert not any(a.cfg.successors[i] == () for i in reached), "the kernel may end in between"
            assert all(here not in a.cfg.successors[i] for i in reached), "the first place may run again"


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("name", TRACEABLE)
def test_no_kernel_instruction_touches_a_packets_registers_while_they_hold_clocks(name: str, spec: str) -> None:
    a = analysed(name)
    for packet in planned(name, spec).packets:
        held: dict[int, int] = {}  # register -> place from which on it holds something
        for p in packet.islands:
            for register, start in list(held.items()):
                for i in _inside(a, start, p.site.index, packet.flush) if start != p.site.index else ():
                    assert not a.instructions[i].writes >> register & 1, (hex(16 * i), f"R{register}")
            written = ([] if p.capture is None else [p.capture]) + [r for r, _ in p.moves]
            held |= dict.fromkeys(written, p.site.index)
            for step in p.transfers:
                for register in step.sources:
                    held.pop(register, None)
                held |= dict.fromkeys(step.general, p.site.index)
            for store in p.stores:
                for register in range(store.data, store.data + store.words):
                    held.pop(register, None)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("name", TRACEABLE)
def test_every_placed_record_is_in_one_packet_whose_words_are_all_stored_once(name: str, spec: str) -> None:
    plan = planned(name, spec)
    ids = [p.id for packet in plan.packets for p in packet.records]
    assert sorted(ids) == sorted(p.id for p in plan.records) == list(range(1, len(ids) + 1))
    assert [packet.tag for packet in plan.packets] == list(range(1, len(plan.packets) + 1))
    for packet in plan.packets:
        events = len(packet.records)
        assert 1 <= events <= MAX_EVENTS
        stored = [
            word for p in packet.islands for s in p.stores for word in range(s.offset // 4, s.offset // 4 + s.words)
        ]
        last = packet.size // 4
        assert len(set(stored)) == len(stored)
        assert packet.words == (2 + (events - 1) // 2 if packet.short else events)
        assert set(range(last - 1 - packet.words, last)) <= set(stored)
        cursors = [p.cursor for p in packet.islands if p.cursor is not None]
        assert [(c.size, c.events) for c in cursors] == [(4 * last, events - len(packet.optional))]
        assert all(p.cursor == (0, 1) for p in packet.optional)


def test_all_sites_of_a_loop_body_without_branches_share_one_packet() -> None:
    plan = planned("triton_gemm", "pp")
    a = plan.analysis
    inside = [p for packet in plan.packets for p in packet.records if a.loop_of(p.site.index) is not None]
    packets = {packet.tag for packet in plan.packets for p in packet.records if p in inside}
    assert len(inside) >= 4
    assert len(packets) == 1


def test_sites_in_the_two_arms_of_a_branch_share_nothing() -> None:
    checked = 0
    for name in TRACEABLE:
        a = analysed(name)
        for ins in a.instructions:
            arms = a.cfg.successors[ins.index]
            if len(arms) == 2 and ins.guard:
                checked += 1
                one, other = (between(a, *pair, set()) for pair in (arms, arms[::-1]))
                assert one is None or other is None
    assert checked >= 10


def test_splitting_a_chain_loses_no_site() -> None:
    a = analysed("triton_fa_fwd")
    records = [PlacedSite(p.site) for p in planned("triton_fa_fwd", "pp").records]
    longest = max(chains(a, records, {p.site.index for p in records}), key=lambda c: len(c.events))
    pieces = [longest]
    while any(len(c.events) > 1 for c in pieces):
        pieces = [piece for c in pieces for piece in (split(c) if len(c.events) > 1 else [c])]
    assert sorted(p.site.index for c in pieces for p in c.sites) == sorted(p.site.index for p in longest.sites)


def test_a_kernel_that_emits_nothing_twice_gets_a_ring_of_just_its_size() -> None:
    plan = planned("triton_rmsnorm", "pp")
    assert plan.slot.stride == plan.slot.ring
    assert plan.slot.ring >= sum(packet.size for packet in plan.packets) > plan.slot.ring // 2
    loop = planned("triton_fa_fwd", "pp").slot
    assert loop.stride > loop.ring
    assert planned("triton_softmax", "pp").slot.stripe == 32


def test_only_a_wait_that_drains_the_tensor_cores_is_a_free_place_for_a_store() -> None:
    a = analysed("triton_gemm")
    records = [PlacedSite(p.site) for p in planned("triton_gemm", "pp").records]
    free: dict[bool, bool] = {}
    for chain in chains(a, records, {p.site.index for p in records}):
        line = Line(a, chain, FreeFinder(a), set(), 0)
        for k, index in enumerate(chain.places):
            if "matrix_wait" in a.instructions[index].tags:
                free["pending=0" in a.instructions[index].tags] = k in line.idle
    assert free == {True: True, False: False}
