"""What packets of a loop have done for them in front of it: tags and lanes are there whenever they are needed."""

from __future__ import annotations

import random

import pytest

from tests.analysis.programs import ins
from tests.splice.conftest import analysed, image
from tests.splice.test_random_flow import kernel
from xtrace.analysis import KernelAnalysis
from xtrace.isa.model import Flow
from xtrace.splice import KernelPlan, Options, plan, plan_kernel
from xtrace.splice.line import predicate_bit
from xtrace.splice.model import Packet, PlacedSite


def random_loops(rng: random.Random) -> KernelAnalysis:
    """Loops that all lanes run together, one behind or inside another; predicates and registers are used at times."""
    count = rng.randint(14, 40)
    live = (1 << 255) - 1 & ~((1 << rng.randint(8, 24)) - 1 << 4)
    items = [ins(0, stall=15), ins(1, writes=live, stall=15)]
    for i in range(2, count - 1):
        draw, stall = rng.random(), rng.randint(1, 12)
        if draw < 0.2:
            items.append(ins(i, target=rng.randrange(max(i - 9, 1), i), guard="@UP0", stall=stall))
        elif draw < 0.27:
            items.append(ins(i, target=min(i + rng.randint(1, 6), count - 1), guard="@UP0", stall=stall))
        elif draw < 0.4:
            items.append(ins(i, writes=1 << rng.randrange(4, 16), stall=stall))
        elif draw < 0.5:
            items.append(ins(i, writes=1 << PREDICATES + rng.randrange(7), stall=stall))
        else:
            items.append(ins(i, stall=stall))
    return kernel([*items, ins(count - 1, reads=live, stall=15), ins(count, flow=Flow.EXIT)])


def skipping_loop(rng: random.Random) -> tuple[KernelAnalysis, list[int]]:
    """A loop, perhaps run again and again, with parts that an iteration may leave out, and sites."""
    live = (1 << 255) - 1 & ~((1 << rng.randint(12, 24)) - 1 << 4)
    items = [ins(0, stall=15), ins(1, writes=live, stall=15)]
    sites: list[int] = []

    def straight(most: int) -> int:
        for _ in range(rng.randint(1, most)):
            writes = 1 << rng.randrange(4, 24) if rng.random() < 0.15 else 0
            claims = rng.randrange(6) if rng.random() < 0.05 else None
            waits = 1 << rng.randrange(6) if rng.random() < 0.1 else 0
            items.append(ins(len(items), writes=writes, write_sb=claims, wait=waits, stall=rng.randint(4, 12)))
        return len(items) - 1

    again, head = straight(3), straight(3) + 1
    sites += [head - 2] if rng.random() < 0.3 else []
    for _ in range(rng.randint(1, 3)):
        branch = straight(4)
        sites += [branch] if rng.random() < 0.5 else []
        items.append(ins(len(items), stall=5))
        sites.append(straight(4))
        items[branch + 1] = ins(branch + 1, target=len(items), guard="@UP0", stall=5)
    sites.append(straight(4))
    straight(6)
    items.append(ins(len(items), target=head, guard="@UP0", stall=5))
    sites += [straight(3)] if rng.random() < 0.5 else []
    straight(2)
    if rng.random() < 0.5:
        items.append(ins(len(items), target=again, guard="@UP0", stall=5))
    items.append(ins(len(items), reads=live, stall=15))
    return kernel([*items, ins(len(items), flow=Flow.EXIT)]), sites


PREDICATES = predicate_bit(analysed("cp_async"), 0).bit_length() - 1


class _Walk:
    """Who wrote registers and predicates last, on one way."""

    def __init__(self, planned: KernelPlan) -> None:
        self.plan, self.a = planned, planned.analysis
        self.value: dict[int, int | None] = {}
        self.elected: set[int] = set()
        self.stores = self.left_over = 0
        self.clock = 1 << 20  # above all tags
        self.fresh: set[int] = set()  # clocks of the packet that is being made
        self.read: dict[int, int] = {}  # last clock read at each site
        self.newest: dict[int, int] = {}  # clock of each packet's last event
        self.islands: dict[int, list[tuple[PlacedSite, Packet]]] = {}
        for packet in planned.packets:
            for p in packet.everywhere:
                self.islands.setdefault(p.site.index, []).append((p, packet))

    def run(self, rng: random.Random) -> None:
        i = 0
        for _ in range(200):
            if i == 0:
                self.value |= {k.tag_register: k.tag for k in self.plan.packets if k.preset and k.tag_register}
            for p, packet in self.islands.get(i, ()):
                self._island(p, packet)
            written = self.a.instructions[i].writes
            self.value = {r: v for r, v in self.value.items() if not written >> r & 1}
            self.elected -= {n for n in self.elected if written & predicate_bit(self.a, n)}
            if not self.a.cfg.successors[i]:
                return
            i = rng.choice(self.a.cfg.successors[i])

    def _island(self, p: PlacedSite, packet: Packet) -> None:
        if p.capture is not None:
            self.clock += 7
            self.value[p.capture] = self.read[id(p)] = self.clock
            self.fresh.add(self.clock)
        if p.elect is not None:
            self.elected.add(p.elect)
        self.value |= dict(p.moves)
        self.value |= {register: None for step in p.transfers for register in step.general}
        for s in p.stores:
            if p.predicate is not None:
                assert p.predicate in self.elected, "stored by a lane that the kernel chose"
            if s.fill is None and packet.tag_register in range(s.data, s.data + s.words):
                assert self.value.get(packet.tag_register) == packet.tag, (
                    "the word that names the packet is another one"
                )
                self.stores += 1
            for event in packet.records if s.fill is None and not packet.parked else ():
                if event.capture in range(s.data, s.data + s.words):
                    self._stored(event, packet)
        if any(packet.tag_register in range(s.data, s.data + s.words) for s in p.stores if packet.tag_register):
            self.fresh -= {self.read.get(id(event)) for event in packet.records}
            self.newest[packet.tag] = self.clock

    def _stored(self, event: PlacedSite, packet: Packet) -> None:
        """Zero, the clock of this time around, or where that is planned for, the last one; older than other events."""
        held = self.value.get(event.capture or 0)
        assert held in (0, self.read.get(id(event)))
        if held and held not in self.fresh:
            assert event in packet.uncleared, "a clock is stored twice"
            assert held < max(self.newest.values())
            self.left_over += 1


@pytest.mark.parametrize("part", range(2))
def test_tags_and_lanes_are_there_on_every_way(part: int) -> None:
    stores = ahead = 0
    for seed in range(100 * part, 100 * part + 100):
        rng = random.Random(seed)
        a = random_loops(rng)
        sites = sorted(rng.sample(range(2, len(a.instructions) - 1), rng.randint(2, 8)))
        planned = plan_kernel(a, ",".join(f"pc:{16 * i:#x}" for i in sites), Options())
        ahead += sum(k.ahead is not None for k in planned.packets)
        for _ in range(6 if planned.packets else 0):
            walk = _Walk(planned)
            walk.run(rng)
            stores += walk.stores
    assert stores > 300
    assert ahead > 10


def test_clocks_that_are_left_over_are_those_of_uncleared_events() -> None:
    left_over = uncleared = cleared = 0
    for seed in range(160):
        rng = random.Random(seed)
        a, sites = skipping_loop(rng)
        planned = plan_kernel(a, ",".join(f"pc:{16 * i:#x}" for i in sites), Options())
        uncleared += sum(len(k.uncleared) for k in planned.packets)
        cleared += sum(len(k.optional) - len(k.uncleared) for k in planned.packets)
        for _ in range(4):
            walk = _Walk(planned)
            walk.run(rng)
            left_over += walk.left_over
    assert left_over > 200
    assert min(uncleared, cleared) > 40


@pytest.mark.golden
@pytest.mark.parametrize("name", ["warp_specialised", "tma_tile", "triton_gemm"])
def test_inner_loops_neither_elect_nor_name_packets_again(name: str) -> None:
    planned = plan(image(name), list(image(name).kernels), "pp").kernels[0]
    helped = [k for k in planned.packets if k.ahead is not None]
    assert any(k.ahead.elect is not None for k in helped if k.ahead)
    for packet in helped:
        assert packet.ahead is not None
        assert packet.ahead.elect is None or all(p.elect is None for p in packet.islands)
        assert not {move for p in packet.islands for move in p.moves} & set(packet.ahead.moves)
