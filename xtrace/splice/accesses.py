"""Where and how the address of an access is read: behind the access if its registers live on, else before it.

Nothing is waited for that the kernel does not wait for there itself: a result that is still due is read where the
access has waited for it, or together with its own wait. Fixed latencies are kept by standing a little further on.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from xtrace.analysis import KernelAnalysis
from xtrace.isa.model import Access
from xtrace.isa.nvidia.emit import Address
from xtrace.probe import Site
from xtrace.probe.accesses import overwrites, sources

from .model import PlacedSite, RefusedSite
from .resources import FreeFinder

__all__ = ["access_of", "address", "latency", "place_accesses", "same_condition", "source_bits", "value"]

_HORIZON = 32  # cycles; longer than any fixed latency
_CYCLE, _NO_SCOREBOARD = 256, 64  # cost of a place, in instructions that it lies behind its access


@dataclass(frozen=True, slots=True)
class _Reading:
    """Reading an address before instruction ``index``: after so many cycles, behind a wait for these scoreboards."""

    index: int
    after: int
    wait: int
    cost: int


def access_of(a: KernelAnalysis, site: Site) -> Access:
    assert site.access is not None
    found = a.isa.global_access(a.instructions[site.access])
    assert isinstance(found, Access)
    return found


def source_bits(a: KernelAnalysis, site: Site) -> int:
    """Registers of the kernel that the island of a site reads."""
    if site.value is not None:
        return sum(written.bit for written in site.value if written is not None)
    return 0 if site.access is None else sources(a, access_of(a, site))


def place_accesses(
    a: KernelAnalysis, sites: Sequence[Site], free: FreeFinder, taken: set[int]
) -> tuple[list[PlacedSite], list[RefusedSite]]:
    """Accesses with the place where their address is read, in address order; ``taken`` gains these places."""
    placed: list[PlacedSite] = []
    refused = [RefusedSite(site, site.refusal) for site in sites if not site.wide]
    blocks = itertools.groupby(
        sorted((s for s in sites if s.wide), key=lambda s: s.index), lambda s: a.cfg.block_of[s.index]
    )
    for _, block in blocks:
        group = list(block)
        possible, reasons = zip(*(_readings(a, site, free, taken) for site in group), strict=True)
        for site, reading, why in zip(group, _choice(possible), reasons, strict=True):
            if reading is None:
                refused.append(RefusedSite(site, why or "other probes stand where its address could be read"))
                continue
            taken.add(reading.index)
            moved, steps = replace(site, index=reading.index), reading.index - site.index
            placed.append(PlacedSite(moved, moved=steps, after=reading.after, wait_access=reading.wait))
    return placed, refused


def _choice(possible: Sequence[Sequence[_Reading]]) -> list[_Reading | None]:
    """One reading of each access, in their order: as many as possible, then at the least cost."""
    best: dict[int, tuple[int, int, list[_Reading | None]]] = {-1: (0, 0, [])}  # by the last place taken
    for readings in possible:
        step = {last: (skipped + 1, cost, [*chosen, None]) for last, (skipped, cost, chosen) in best.items()}
        for r in readings:
            for last, (skipped, cost, chosen) in best.items():
                candidate = (skipped, cost + r.cost, [*chosen, r])
                if last < r.index and (r.index not in step or candidate[:2] < step[r.index][:2]):
                    step[r.index] = candidate
        best = step
    return min(best.values(), key=lambda found: found[:2])[2]


def _readings(a: KernelAnalysis, site: Site, free: FreeFinder, taken: Set[int]) -> tuple[list[_Reading], str]:
    """Where the address of an access can be read, or why nowhere."""
    found, why = [], ""
    for index in (site.index, *site.alternatives):
        if index in taken or index == 0:
            continue
        reading = _at(a, site, index, free)
        if reading is None:
            why = "its address is still on the way where it could be read, and the kernel does not wait for it there"
        elif not any(True for _ in free.at(index).groups(2)):
            why = f"no pair of general registers below R{free.limit(index)} is dead where its address could be read"
        else:
            found.append(reading)
    return found, "" if found else why


def _at(a: KernelAnalysis, at: Site, index: int, free: FreeFinder) -> _Reading | None:
    wanted = source_bits(a, at)
    wait = sum(1 << k for k, due in enumerate(a.inflight.due[index]) if due & wanted)
    behind = a.instructions[index]
    if wait & ~behind.control.wait_mask:
        return None
    late = latency(a, index, wanted)
    # A scoreboard is needed where the packet is stored, most often near: rather a place that has one.
    # An access soon, a value late: next to the accesses that are derived from it.
    away = index - at.index if at.value is None else (at.index, *at.alternatives)[-1] - index
    cost = _CYCLE * (late + bool(wait)) + _NO_SCOREBOARD * (not free.at(index).scoreboards) + away
    return _Reading(index, late, wait, cost)


def latency(a: KernelAnalysis, index: int, registers: int) -> int:
    """Cycles that a reader of ``registers`` at the start of an island before ``index`` comes too early."""
    behind, late = a.instructions[index], 0
    reader = replace(behind, opcode="MOV", guard="", reads=registers, writes=0, tags=frozenset(), opaque=False)
    best: dict[tuple[int, int], int] = {}
    stack = [(p, 0, reader.reads) for p in a.cfg.predecessors[index]]
    while stack:
        i, passed, wanted = stack.pop()
        ins = a.instructions[i]
        passed += a.issue_cycles[i]
        if passed >= _HORIZON or best.get((i, wanted), _HORIZON) <= passed:
            continue
        best[i, wanted] = passed
        if ins.writes & wanted:
            late = max(late, a.isa.required_distance(ins, replace(reader, reads=wanted)) - passed)
            wanted &= ~ins.kills
        if wanted:
            stack += [(p, passed, wanted) for p in a.cfg.predecessors[i]]
    return late


def same_condition(a: KernelAnalysis, first: Site, second: Site, *, made: bool = False) -> bool:
    """Whether a lane makes both accesses or neither: same predicates, which nothing writes between their readings (or,
    ``made``, between the accesses themselves), in one block.
    """
    start, end = (first.anchor, second.anchor) if made else (first.index, second.index)
    one, other = access_of(a, first), access_of(a, second)
    if one.conditions != other.conditions or a.cfg.block_of[start] != a.cfg.block_of[end]:
        return False
    predicates = sum(a.isa.layout["P"].bit(n) for n, _ in one.conditions)
    return not any(overwrites(a, a.instructions[i]) & predicates for i in range(start, end))


def address(a: KernelAnalysis, p: PlacedSite, register: int, *, certain: bool) -> Address:
    """How the address goes into ``register`` and the next one; ``certain``: without a look at the condition."""
    access = access_of(a, p.site)
    behind = a.instructions[p.site.index]
    settle = "memory" in behind.tags and bool(behind.writes & sources(a, access))
    conditions = () if certain else access.conditions
    return Address(register, access.base, access.uniform, conditions, p.after, p.wait_access, settle)


def value(a: KernelAnalysis, p: PlacedSite, register: int) -> Address:
    """How the registers of a value go into ``register`` and the next one."""
    assert p.site.value is not None
    low, high = (None if written is None else written.bit.bit_length() - 1 for written in p.site.value)
    assert low is not None
    behind = a.instructions[p.site.index]
    settle = "memory" in behind.tags and bool(behind.writes & source_bits(a, p.site))
    return Address(register, None, None, (), p.after, p.wait_access, settle, (low, high))
