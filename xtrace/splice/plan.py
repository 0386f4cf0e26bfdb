"""The planner: every site becomes placed, with its resources, or refused, with a reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xtrace.analysis import KernelAnalysis, analyse_all
from xtrace.errors import BadInput, Refused
from xtrace.image import Image, Kernel
from xtrace.isa.model import Flow
from xtrace.isa.nvidia.emit import UniformState
from xtrace.probe import Site, select, validate

from .deferral import next_islands
from .model import KernelPlan, Options, PlacedSite, Plan, RefusedSite
from .resources import FreeFinder

__all__ = ["plan", "plan_kernel"]

_MAX_GROUP = 32
_MAX_RECORDS = 1 << 20


def plan(image: Image, kernels: Sequence[Kernel], probes: str, options: Options | None = None) -> Plan:
    """Plan probes for several kernels of one image.

    Raises
    ------
    BadInput
        Bad selection or options.
    Unsupported, MissingTool
        The architecture or its disassembler is not available.
    """
    options = options or Options()
    if options.records < 16 or options.records > _MAX_RECORDS or options.records & (options.records - 1):
        raise BadInput(
            "XT3020",
            f"records per warp must be a power of two from 16 to {_MAX_RECORDS}, not {options.records}",
            where="--records",
        )
    validate(probes)
    plans = [plan_kernel(a, probes, options) for a in analyse_all(image, kernels)]
    return Plan(image, probes, options, plans)


def plan_kernel(a: KernelAnalysis, probes: str, options: Options) -> KernelPlan:
    """Plan one kernel. A kernel that cannot be traced at all has every site refused for the same reason."""
    result = KernelPlan(a, options.slot, registers=a.kernel.registers)
    try:
        sites = select(a, probes)
    except Refused as why:  # control flow cannot be known
        result.refused.append(RefusedSite(Site(0, "entry", "entry"), why.what))
        return result
    reason = _kernel_refusal(a)
    state = _uniform_state(a)
    if reason is None and state is None:
        reason = "fewer than four uniform registers are unused in the whole kernel (the trace cursor needs them)"
    if reason is not None or state is None:
        result.refused += [RefusedSite(s, str(reason)) for s in sites]
        return result
    result.state = state
    free = FreeFinder(a)
    _place_entry(result, sites, free)
    if not result.placed:
        result.state = None
        result.refused += [RefusedSite(s, result.refused[0].reason) for s in sites if s.kind != "entry"]
        return result
    _place_records(result, sites, free)
    _place_exits(result, sites, free)
    _group_records(result, free)
    _defer_waits(result, free)
    top = max((_highest_register(p) for p in result.placed), default=0)
    if not a.moves_registers:
        result.registers = max(a.kernel.registers, top + 1 + a.isa.reserved_registers)
    result.placed.sort(key=lambda p: p.site.index)
    return result


def _highest_register(p: PlacedSite) -> int:
    quad = -1 if p.quad is None else p.quad + 3
    return max(quad, p.data + (0 if p.split else 1), *p.scratch)


def _kernel_refusal(a: KernelAnalysis) -> str | None:
    if a.kernel.has_text_relocations:
        return "the image still has link-time relocations in this kernel's code"
    if not a.instructions:
        return "the kernel has no code"
    for ins in a.instructions:
        at = f"{ins.text} at pc 0x{ins.pc:x}"
        if ins.opaque:
            return f"the instruction set model does not know {at}, so what it reads and writes is uncertain"
        if ins.flow in (Flow.CALL, Flow.RETURN):
            return f"calls keep return addresses in registers, which this version does not relocate ({at})"
        if ins.base in ("LEPC", "JMP", "JMX", "RPCMOV", "ULEPC"):
            return f"the program counter itself is used as data ({at})"
        if ins.target == 0 and not ins.never:
            return f"the kernel branches back to its first instruction ({at})"
    return None


def _uniform_state(a: KernelAnalysis) -> UniformState | None:
    free = set(a.free_uniform)
    pair = next((n for n in sorted(free, reverse=True) if n % 2 == 0 and n + 1 in free), None)
    if pair is None:
        return None
    rest = sorted(free - {pair, pair + 1}, reverse=True)
    return UniformState(pair, rest[0], rest[1]) if len(rest) >= 2 else None


def _place_entry(result: KernelPlan, sites: Sequence[Site], free: FreeFinder) -> None:
    here = free.at(0)
    quad = here.take(4)
    pair = here.take(2)
    scratch = [here.take(1) for _ in range(3)]
    entry = next(s for s in sites if s.kind == "entry")
    if quad is None or pair is None or None in scratch or not here.predicates or not here.scoreboards:
        result.refused.append(RefusedSite(entry, "no dead registers at the kernel's entry"))
        return
    singles = tuple(r for r in scratch if r is not None)
    result.placed.append(PlacedSite(entry, None, pair, quad, here.predicates[0], here.scoreboards[0], scratch=singles))


def _place_records(result: KernelPlan, sites: Sequence[Site], free: FreeFinder) -> None:
    next_id = 1
    for site in sites:
        if site.kind != "record":
            continue
        for index in (site.index, *site.alternatives):
            placed = _try_record(replace(site, index=index), next_id, free)
            if placed is not None:
                placed.moved = index - site.index
                result.placed.append(placed)
                next_id += 1
                break
        else:
            result.refused.append(RefusedSite(site, _why_not(site, free)))


def _try_record(site: Site, number: int, free: FreeFinder) -> PlacedSite | None:
    here = free.at(site.index)
    width = next((w for w in (2, 1) if any(True for _ in here.groups(w))), None)
    if width is None or not here.scoreboards:
        return None
    predicate = here.predicates[0] if here.predicates else None
    data = next(here.groups(width))
    return PlacedSite(site, number, data, None, predicate, here.scoreboards[0], split=width == 1)


def _why_not(site: Site, free: FreeFinder) -> str:
    if not free.at(site.index).scoreboards:
        return "the kernel may have claims outstanding on all six scoreboards"
    return f"no general register below R{free.limit(site.index)} is dead"


def _place_exits(result: KernelPlan, sites: Sequence[Site], free: FreeFinder) -> None:
    a = result.analysis
    for site in sites:
        if site.kind != "exit":
            continue
        here = free.at(site.index)
        goes_on = bool(a.instructions[site.index].guard)
        quad = here.take(4)
        pair = here.take(2)
        if pair is None and quad is not None:  # one quad and nothing else: use half of it for everything
            pair, quad = quad, None
        scoreboard = next(iter(here.scoreboards), None)
        if scoreboard is None and quad is not None and not goes_on:
            scoreboard = 0  # nobody waits for a store behind which the warp ends, so any scoreboard will do
        if pair is None or not here.predicates or scoreboard is None:
            result.refused.append(RefusedSite(site, "no dead registers or free scoreboard at this exit"))
            continue
        result.placed.append(PlacedSite(site, None, pair, quad, here.predicates[0], scoreboard, wait_last=goes_on))


def _group_records(result: KernelPlan, free: FreeFinder) -> None:
    """Records of one block share one cursor move and, where a predicate lasts, one elected lane."""
    a = result.analysis
    by_block: dict[int, list[PlacedSite]] = {}
    for p in result.records:
        by_block.setdefault(a.cfg.block_of[p.site.index], []).append(p)
    for members in by_block.values():
        for k in range(0, len(members), _MAX_GROUP):
            group = members[k : k + _MAX_GROUP]
            for n, p in enumerate(group):
                p.slot_in_group = n
                p.group_size = len(group) if n == 0 else None
            _share_elected_lane(a, group, free)


def _share_elected_lane(a: KernelAnalysis, group: list[PlacedSite], free: FreeFinder) -> None:
    predicates = a.isa.layout["P"]
    k = 0
    while k < len(group):
        start = group[k].site.index
        if group[k].predicate is None:
            k += 1
            continue
        best = (0, 0)
        for pred in free.at(start).predicates:
            bit = predicates.bit(pred)
            n = k + 1
            while n < len(group) and all(
                not (ins.reads | ins.writes) & bit and "converge" not in ins.tags
                for ins in a.instructions[group[n - 1].site.index : group[n].site.index]
            ):
                n += 1
            best = max(best, (n - k, pred))
        for p in group[k : k + best[0]]:
            p.predicate = best[1]
            p.elect = p is group[k]
        k += best[0]


def _defer_waits(result: KernelPlan, free: FreeFinder) -> None:
    """Leave each record's wait to the next islands where that is provably unnoticed; else wait at the end."""
    a = result.analysis
    by_index = {p.site.index: p for p in result.placed if p.site.kind != "entry"}
    islands = frozenset(by_index)
    waits: dict[int, int] = dict.fromkeys(islands, 0)
    for p in result.records:
        choice = _deferral(a, p, free, islands)
        if choice is not None:
            p.scoreboard, p.data, targets = choice
            p.wait_last = False
            for t in targets:
                waits[t] |= 1 << p.scoreboard
    for index, mask in waits.items():
        by_index[index].wait_first = mask


_CANDIDATES = 12  # register pairs tried per scoreboard: bounds the time per site


def _deferral(
    a: KernelAnalysis, p: PlacedSite, free: FreeFinder, islands: frozenset[int]
) -> tuple[int, int, frozenset[int]] | None:
    here = free.at(p.site.index)
    for scoreboard in here.scoreboards:
        if next_islands(a, p.site.index, scoreboard, 0, islands) is None:
            continue
        width = 1 if p.split else 2
        for n, data in enumerate(here.groups(width)):
            targets = next_islands(a, p.site.index, scoreboard, ((1 << width) - 1) << data, islands)
            if targets is not None:
                return scoreboard, data, targets
            if n >= _CANDIDATES:
                break
    return None
