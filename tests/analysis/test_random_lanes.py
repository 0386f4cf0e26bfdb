"""Lane groups of made-up kernels, run step by step in any order, against what the analyses say about them."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field

import pytest

from tests.analysis.programs import ins, program
from tests.analysis.test_lanes import LAYOUT, P, R, branch, elect, meets, opens
from xtrace.analysis.divergence import Lanes, lanes
from xtrace.isa.model import Flow, Instruction
from xtrace.verify import lanes as verified
from xtrace.verify.program import build

LANES = frozenset(range(4))
STEPS = 120
AHEAD = 24  # steps that the others are run ahead


def _guarded_exit(i: int) -> Instruction:
    return ins(i, opcode="EXIT", flow=Flow.EXIT, guard="@P2", reads=P(2), text="@P2 EXIT")


class Writer:
    """A random program of nested regions, loops and jumps; targets are patched when they are known."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.items, self.budget = rng, [ins(0, opcode="LDC", writes=R(1), text="LDC R1, c[0x0][0x28]")], 26

    def add(self, make: object, *arguments: object) -> int:
        self.items.append(make(len(self.items), *arguments))  # type: ignore[operator]
        self.budget -= 1
        return len(self.items) - 1

    def plain(self) -> None:
        rng, i = self.rng, len(self.items)
        a, b, d, p = rng.randrange(4, 8), rng.randrange(4, 8), rng.randrange(4, 8), rng.randrange(3)
        guard = rng.choice(["", "", "", f"@P{rng.randrange(3)}"])
        held = P(int(guard[2])) if guard else 0
        kinds = {
            "S2R": ins(i, opcode="S2R", writes=R(d), text=f"S2R R{d}, SR_TID.X"),
            "MOV": ins(i, opcode="MOV", writes=R(d), text=f"{guard} MOV R{d}, 0x1".strip(), guard=guard, reads=held),
            "IADD3": ins(i, opcode="IADD3", writes=R(d), reads=R(a) | R(b), text=f"IADD3 R{d}, R{a}, R{b}, RZ"),
            "ISETP": ins(i, opcode="ISETP", writes=P(p), reads=R(a), text=f"ISETP.NE.AND P{p}, PT, R{a}, RZ, PT"),
            "SHFL": ins(i, opcode="SHFL.IDX", writes=R(d), reads=R(a), text=f"SHFL.IDX PT, R{d}, R{a}, RZ, 0x1f"),
            "STL": ins(i, opcode="STL", reads=R(a) | R(1), tags=["local_store"], text=f"STL [R1+0x4], R{a}"),
            "LDL": ins(i, opcode="LDL", reads=R(1), writes=R(d), tags=["local_load"], text=f"LDL R{d}, [R1+0x4]"),
            "VOTE": ins(i, opcode="VOTE.ANY", reads=P(p), writes=R(d), text=f"VOTE.ANY R{d}, PT, P{p}"),
            "ELECT": elect(i, p),
        }
        self.items.append(kinds[rng.choice(list(kinds))])
        self.budget -= 1

    def block(self, depth: int) -> None:
        rng = self.rng
        for _ in range(rng.randint(1, 4)):
            if self.budget <= 0:
                return
            draw = rng.random()
            if draw < 0.5 or depth == 3:
                self.plain()
            elif draw < 0.8:
                self.region(depth)
            elif draw < 0.9:
                head = len(self.items)
                self.block(depth + 1)
                self.add(branch, head, rng.choice(["@P0", "@!P1"]))
            elif draw < 0.95:
                self.add(lambda i: ins(i, opcode="WARPSYNC.ALL", tags=["converge"], text="WARPSYNC.ALL"))
            else:
                self.add(_guarded_exit)

    def region(self, depth: int) -> None:
        rng, predicate = self.rng, self.rng.randrange(3)
        barrier = depth if rng.random() < 0.8 else None
        if rng.random() < 0.5:
            self.add(elect, predicate)
        start = self.add(opens, 0, barrier) if barrier is not None and rng.random() < 0.9 else None
        guard = rng.choice(["@!", "@!", "@"]) + f"P{predicate}"
        jump = self.add(branch, 0, guard)
        self.block(depth + 1)
        if rng.random() < 0.2:  # code on the way to the meeting point
            self.items[jump] = branch(jump, len(self.items), guard)
            self.plain()
        else:
            self.items[jump] = branch(jump, len(self.items), guard)
        end = len(self.items)
        if barrier is not None:
            self.add(meets, barrier)
            if start is not None:
                self.items[start] = opens(start, end, barrier)
        elif rng.random() < 0.7:
            self.add(lambda i: ins(i, opcode="WARPSYNC.ALL", tags=["converge"], text="WARPSYNC.ALL"))


@dataclass
class Lane:
    registers: dict[str, int] = field(default_factory=dict)
    barriers: dict[str, frozenset[int]] = field(default_factory=dict)


@dataclass
class Warp:
    """Groups of lanes with a common place; blocked ones stand at a BSYNC or WARPSYNC."""

    items: list[Instruction]
    rng: random.Random
    groups: list[tuple[frozenset[int], int]] = field(default_factory=lambda: [(LANES, 0)])
    lanes: dict[int, Lane] = field(default_factory=lambda: {n: Lane() for n in LANES})

    def blocked(self, place: int) -> bool:
        return self.items[place].base in ("BSYNC", "WARPSYNC")

    def get(self, lane: int, name: str) -> int:
        return self.lanes[lane].registers.get(name, 0)

    def meet(self) -> None:
        """Let those go on for whom nobody is left to wait."""
        alive = frozenset(n for members, _ in self.groups for n in members)
        for members, place in list(self.groups):
            if not self.blocked(place):
                continue
            here = frozenset(n for m, p in self.groups if p == place for n in m)
            name = self.items[place].text.split()[-1]
            awaited = alive
            if self.items[place].base == "BSYNC":
                awaited = self.lanes[min(members)].barriers.get(name, members) & alive
            if awaited <= here:
                joined = awaited | members
                self.groups = [(m - joined, p) for m, p in self.groups if m - joined] + [(joined, place + 1)]
                return self.meet()
        return None

    def step(self, k: int) -> None:
        members, place = self.groups.pop(k)
        x = self.items[place]
        name = x.text.split("@")[-1].split(" ", 1)[-1] if x.guard else x.text
        active = frozenset(n for n in members if not x.guard or self.holds(n, x.guard))
        if x.base == "BRA":
            target = (x.target or 0) // 16
            self.groups += [(m, p) for m, p in ((active, target), (members - active, place + 1)) if m]
        elif x.base == "EXIT":
            if members - active:
                self.groups.append((members - active, place + 1))
        else:
            self.execute(x, name, active)
            self.groups.append((members, place + 1))
        self.meet()

    def holds(self, lane: int, guard: str) -> bool:
        return bool(self.get(lane, guard.lstrip("@!"))) != guard.startswith("@!")

    def execute(self, x: Instruction, text: str, active: frozenset[int]) -> None:
        operands = [o.strip() for o in text.split(" ", 1)[1].split(",")] if " " in text else []
        elected = self.rng.choice(sorted(active)) if active else 0
        anyone = any(self.get(n, operands[-1]) for n in active) if x.base == "VOTE" else False
        gone = not any(0 in members for members, _ in self.groups) and 0 not in active
        common = self.rng.randrange(3)
        first = {n: self.lanes[n].registers.get(operands[2], 0) for n in active} if x.base == "SHFL" else {}
        for n in active:
            lane = self.lanes[n]
            match x.base:
                case "BSSY":
                    lane.barriers[operands[0]] = active
                case "S2R":
                    lane.registers[operands[0]] = n
                case "MOV":
                    lane.registers[operands[0]] = 1
                case "IADD3":
                    lane.registers[operands[0]] = self.get(n, operands[1]) + self.get(n, operands[2])
                case "ISETP":
                    lane.registers[operands[0]] = int(self.get(n, operands[2]) % 3 != 0)
                case "SHFL":
                    lane.registers[operands[1]] = first.get(0, common if gone else self.rng.randrange(3))
                case "STL":
                    lane.registers["slot"] = self.get(n, operands[1])
                case "LDL":
                    lane.registers[operands[0]] = self.get(n, "slot")
                case "VOTE":
                    lane.registers[operands[0]] = int(anyone)
                case "ELECT":
                    lane.registers[operands[0]] = int(n == elected)

    def runnable(self) -> list[int]:
        return [k for k, (_, place) in enumerate(self.groups) if not self.blocked(place)]


def check(items: list[Instruction], found: Lanes, busy: frozenset[int], rng: random.Random) -> int:
    """Run a warp; wherever one group is said to be undisturbed, no other may come to a record before it moves."""
    warp, tested = Warp(items, rng), 0
    for _ in range(STEPS):
        able = warp.runnable()
        if not able:
            return tested
        k = rng.choice(able)
        members, place = warp.groups[k]
        assert not found.sole[place] or len(members) == 1, f"{len(members)} lanes at {place}"
        if not found.apart[place] and len(warp.groups) > 1:
            tested += 1
            others = copy.copy(warp)
            others.lanes, others.rng = copy.deepcopy(warp.lanes), random.Random(0)
            others.groups = list(warp.groups)
            for _ in range(AHEAD):
                rest = [n for n in others.runnable() if others.groups[n][0] != members]
                if not rest:
                    break
                n = rng.choice(rest)
                assert others.groups[n][1] not in busy, f"another group comes to {others.groups[n][1]} while at {place}"
                others.step(n)
        warp.step(k)
    return tested


@pytest.mark.parametrize("seed", range(8))
def test_no_second_group_passes_a_record_where_there_is_said_to_be_none(seed: int) -> None:
    tested = single = 0
    for number in range(60):
        rng = random.Random(f"{seed} {number}")
        writer = Writer(rng)
        while writer.budget > 0:
            writer.block(0)
        items = [*writer.items, ins(len(writer.items), opcode="EXIT", flow=Flow.EXIT, text="EXIT")]
        if any(x.target is not None and x.target // 16 >= len(items) for x in items):
            continue
        busy = frozenset(rng.sample(range(1, len(items)), rng.randint(0, 4)))
        cfg = program(*items)
        found = lanes(cfg, LAYOUT, busy)
        reached = [cfg.block_of[x.index] in cfg.reachable for x in items]
        second = verified.parted(build(items, LAYOUT), busy)
        for i, here in enumerate(reached):
            assert not here or found.apart[i] == second[i], f"planner and verifier do not agree at {i}"
        single += sum(found.sole)
        for _ in range(4):
            tested += check(items, found, busy, rng)
    assert tested > 50
    assert single > 10
