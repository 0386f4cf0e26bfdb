"""Groups of records, and the lanes that store them.

The records of one basic block form a group: one move of the cursor, and one elected lane where a predicate lasts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from xtrace.analysis import KernelAnalysis
from xtrace.isa.nvidia.schedule import Gap
from xtrace.probe import Site

from .model import KernelPlan, PlacedSite
from .resources import FreeFinder

__all__ = ["group_gaps", "groups", "prepared", "share_elected_lane", "untouched"]

_MAX_GROUP = 32
_PREPARATION = 14  # cycles from electing a lane to a store that it guards
_WORTH_PREPARING = 4


def groups(plan: KernelPlan) -> Iterator[list[PlacedSite]]:
    """The plan's records by basic block, in address order, at most 32 a group.

    A group ends where lanes may join (they would move the cursor twice and store once behind it). Where lanes may be
    apart each record is a group of its own, done within its island: another lane group may run at any kernel
    instruction. So is a record at the entry, because the prologue's island leaves nothing half done.
    """
    a = plan.analysis
    group: list[PlacedSite] = []
    for p in plan.records:
        if group and (
            len(group) == _MAX_GROUP
            or group[0].site.index == 0
            or a.cfg.block_of[p.site.index] != a.cfg.block_of[group[0].site.index]
            or _lanes_may_join(a, group[-1], p)
            or a.divergent[p.site.index]
        ):
            yield group
            group = []
        group.append(p)
    if group:
        yield group


def _lanes_may_join(a: KernelAnalysis, p: PlacedSite, q: PlacedSite) -> bool:
    return any("converge" in ins.tags for ins in a.instructions[p.site.index : q.site.index])


def group_gaps(plan: KernelPlan, group: list[PlacedSite]) -> list[Gap]:
    """What stands between neighbouring islands of a group."""
    gaps = []
    for p, q in itertools.pairwise(group):
        between = range(p.site.index, q.site.index)
        cycles = sum(max(plan.analysis.instructions[i].control.stall, 1) for i in between)
        waited = 0
        for i in between:
            waited |= plan.waits.get(i, 0)
        gaps.append(Gap(cycles, waited))
    return gaps


def prepared(
    a: KernelAnalysis, group: list[PlacedSite], free: FreeFinder, islands: dict[int, PlacedSite]
) -> list[PlacedSite]:
    """The group's islands: if possible one in front that elects the lane and moves the cursor while there is time.

    Both take a dozen cycles until a store can use them; the kernel's own instructions pass them.
    """
    for n, p in enumerate(group):
        p.slot_in_group = n
        p.group_size = len(group) if n == 0 else None
    first = group[0].site.index
    predicates = a.isa.layout["P"]
    if a.divergent[first]:
        return group
    best: int | None = None
    cycles = 0
    for i in range(first - 1, a.cfg.blocks[a.cfg.block_of[first]].first - 1, -1):
        ins = a.instructions[i]
        if "converge" in ins.tags or ins.opaque or a.isa.max_registers(ins) is not None or i in islands or i == 0:
            break
        cycles += max(ins.control.stall, 1)
        usable = [
            pred
            for pred in free.at(i).predicates
            if all(not (x.reads | x.writes) & predicates.bit(pred) for x in a.instructions[i:first])
        ]
        if not usable or not free.at(i).scoreboards:
            break
        best = i
        if cycles >= _PREPARATION:
            break
    if best is None or cycles < _WORTH_PREPARING:
        return group
    site = Site(best, group[0].site.phase, "prepare")
    group[0].group_size = None
    prepare = PlacedSite(site, None, predicate=0, scoreboard=None, group_size=len(group), wait_last=False)
    return [prepare, *group]


def share_elected_lane(a: KernelAnalysis, group: list[PlacedSite], free: FreeFinder) -> None:
    predicates = a.isa.layout["P"]
    k = 0
    while k < len(group):
        if group[k].predicate is None:
            k += 1
            continue
        best = (0, 0)
        for pred in free.at(group[k].site.index).predicates:
            n = k + 1
            while n < len(group) and untouched(a, group[n - 1], group[n], predicates.bit(pred)):
                n += 1
            best = max(best, (n - k, pred))
        for p in group[k : k + best[0]]:
            p.predicate = best[1]
            p.elect = p is group[k]
        k += best[0]


def untouched(a: KernelAnalysis, p: PlacedSite, q: PlacedSite, registers: int) -> bool:
    """No kernel instruction from one island to the next touches the registers or changes the active lanes."""
    return all(
        not (ins.reads | ins.writes) & registers
        and "converge" not in ins.tags
        and a.isa.max_registers(ins) is None
        and not ins.opaque
        for ins in a.instructions[p.site.index : q.site.index]
    )
