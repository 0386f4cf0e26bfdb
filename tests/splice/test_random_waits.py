"""Scoreboards of probe stores in made-up kernels of any shape, along random ways."""

from __future__ import annotations

import random

import pytest

from tests.analysis.programs import ins
from tests.splice.test_ahead import skipping_loop
from tests.splice.test_random_flow import kernel
from xtrace.analysis import KernelAnalysis
from xtrace.isa.model import Flow
from xtrace.splice import KernelPlan, Options, plan_kernel
from xtrace.splice.model import LAYOUTS, PlacedSite

ADDRESS = 1 << 300  # stands for the uniform registers that a store of a packet reads


def random_kernel(rng: random.Random) -> KernelAnalysis:
    """Loops, side paths and guarded exits; loads and stores of the kernel's own; registers that come and go."""
    count = rng.randint(12, 40)
    live = (1 << 255) - 1 & ~((1 << rng.randint(12, 40)) - 1 << 4)
    items = [ins(0, stall=15), ins(1, writes=live, stall=15)]
    for i in range(2, count - 2):
        stall, draw = rng.randint(1, 12), rng.random()
        if draw < 0.22:
            guard = rng.choice(("@UP0", "@UP0", "@UP0", ""))
            items.append(ins(i, target=rng.randrange(max(i - 8, 1), min(i + 8, count - 1)), guard=guard, stall=stall))
        elif draw < 0.26:
            items.append(ins(i, flow=Flow.EXIT, guard="@P0", stall=stall))
        elif draw < 0.36:
            items.append(ins(i, write_sb=rng.randrange(6), stall=stall))
        elif draw < 0.5:
            items.append(ins(i, wait=1 << rng.randrange(6), stall=stall))
        elif draw < 0.62:
            items.append(ins(i, writes=15 << 4 * rng.randrange(1, 10), stall=stall))
        else:
            items.append(ins(i, stall=stall))
    return kernel([*items, ins(count - 2, reads=live, stall=15), ins(count - 1, flow=Flow.EXIT)])


class _Walk:
    """What is outstanding on one way."""

    def __init__(self, plan: KernelPlan) -> None:
        self.plan, self.a = plan, plan.analysis
        self.islands: dict[int, list[PlacedSite]] = {}
        for p in (*(p for k in plan.packets for p in k.everywhere), *plan.placed):
            at = self.islands.setdefault(p.site.index, [])
            if not any(p is known for known in at):
                at.append(p)
        self.probes = [0] * 6  # registers that stores of probes have yet to read, by scoreboard
        self.kernel = 0  # scoreboards that the kernel has claimed

    def run(self, rng: random.Random) -> int:
        i, steps, stores = 0, 0, 0
        while steps < 300:
            self._wait(self.plan.waits.get(i, 0))
            for p in self.islands.get(i, ()):
                if p.site.kind != "entry":
                    stores += self._island(p)
            self._kernel(i)
            if not self.a.cfg.successors[i]:
                break
            i, steps = rng.choice(self.a.cfg.successors[i]), steps + 1
        return stores

    def _wait(self, mask: int) -> None:
        assert not mask & self.kernel, "waits for an operation of the kernel"
        self.probes = [0 if mask >> k & 1 else held for k, held in enumerate(self.probes)]

    def _pending(self) -> int:
        bits = 0
        for held in self.probes:
            bits |= held
        return bits

    def _island(self, p: PlacedSite) -> int:
        self._wait(p.wait_first)
        written = sum(1 << n for n in set(p.general))
        if p.cursor is not None and p.cursor.size:
            written |= ADDRESS
        assert not written & self._pending(), "overwrites what a store has yet to read"
        held = sum(15 << quad for quad in p.quads) | (0 if p.pair is None else 3 << p.pair)
        for store in p.stores:
            held |= ((1 << store.words) - 1) << store.data | ADDRESS
        if held and p.scoreboard is not None:
            ends = p.site.kind == "exit" and not self.a.instructions[p.site.index].guard
            assert ends or not self.kernel >> p.scoreboard & 1, "a scoreboard that the kernel has claimed"
            self.probes[p.scoreboard] |= held
            if p.wait_last:
                self._wait(1 << p.scoreboard)
        return len(p.stores)

    def _kernel(self, i: int) -> None:
        instruction = self.a.instructions[i]
        c = instruction.control
        assert not instruction.writes & self._pending(), "the kernel overwrites what a store has yet to read"
        for k, held in enumerate(self.probes):
            ended = instruction.flow is Flow.EXIT and not instruction.guard
            assert not (held and c.wait_mask >> k & 1) or ended, "the kernel waits for a store of a probe"
            assert not (held and c.write_sb == k), "the kernel claims the scoreboard of a store"
        self.kernel &= ~c.wait_mask
        if c.write_sb is not None:
            self.kernel |= 1 << c.write_sb


@pytest.mark.parametrize("part", range(4))
def test_stores_are_waited_for_before_anything_that_they_read_changes(part: int) -> None:
    stores = 0
    for seed in range(60 * part, 60 * part + 60):
        rng = random.Random(seed)
        a = random_kernel(rng)
        sites = sorted(rng.sample(range(2, len(a.instructions) - 1), rng.randint(2, 9)))
        spec = ",".join(f"pc:{16 * i:#x}" for i in sites)
        placed = plan_kernel(a, spec, Options(layout=rng.randrange(LAYOUTS)))
        for _ in range(10 if placed.packets else 0):
            stores += _Walk(placed).run(rng)
    assert stores > 300


def test_stores_are_waited_for_before_the_first_event_of_the_next_packet_if_that_is_optional() -> None:
    stores = opening = 0
    for seed in range(120):
        rng = random.Random(seed)
        a, sites = skipping_loop(rng)
        placed = plan_kernel(a, ",".join(f"pc:{16 * i:#x}" for i in sites), Options(layout=rng.randrange(LAYOUTS)))
        opening += sum(len(k.opening) for k in placed.packets)
        for _ in range(6 if placed.packets else 0):
            stores += _Walk(placed).run(rng)
    assert stores > 300
    assert opening > 10
