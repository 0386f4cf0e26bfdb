"""The planner: every site becomes placed, with its resources, or refused, with a reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xtrace.analysis import KernelAnalysis, analyse_all
from xtrace.errors import BadInput, Refused
from xtrace.image import Image, Kernel
from xtrace.isa.model import Flow
from xtrace.isa.nvidia.emit import PrologueRegisters, UniformState
from xtrace.probe import Site, select, validate

from .commit import commit_records
from .model import KernelPlan, Options, PlacedSite, Plan, RefusedSite
from .resources import FreeFinder

__all__ = ["plan", "plan_kernel"]

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
        reason = "the trace state needs eight uniform registers, two pairs among them, that the kernel never uses"
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
    commit_records(result, free)
    top = max((_highest_register(p) for p in result.placed), default=0)
    if not a.moves_registers:
        result.registers = max(a.kernel.registers, top + 1 + a.isa.reserved_registers)
    result.placed.sort(key=lambda p: p.site.index)
    return result


def _highest_register(p: PlacedSite) -> int:
    return max(p.general, default=0)


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
        if "pinned" in ins.tags or ins.base == "LEPC":
            return f"the program counter itself is used as data ({at})"
        if ins.target == 0 and not ins.never:
            return f"the kernel branches back to its first instruction ({at})"
    return None


def _uniform_state(a: KernelAnalysis) -> UniformState | None:
    free = set(a.free_uniform)
    pairs = [n for n in sorted(free, reverse=True) if n % 2 == 0 and n + 1 in free][:2]
    if len(pairs) < 2 or len(free) < UniformState.COUNT:
        return None
    address, header = pairs
    offset, timer, clock, smid = sorted(free - {address, address + 1, header, header + 1}, reverse=True)[:4]
    return UniformState(address, offset, header, timer, clock, smid)


def _place_entry(result: KernelPlan, sites: Sequence[Site], free: FreeFinder) -> None:
    here = free.at(0)
    entry = next(s for s in sites if s.kind == "entry")
    needed = PrologueRegisters.needed(result.analysis.kernel.required_threads)
    scratch = tuple(r for r in (here.take(1) for _ in range(needed)) if r is not None)
    if len(scratch) < needed or not here.scoreboards:
        result.refused.append(RefusedSite(entry, f"fewer than {needed} registers are dead at the kernel's entry"))
        return
    result.placed.append(PlacedSite(entry, None, scoreboard=here.scoreboards[0], predicate=None, scratch=scratch))


def _place_records(result: KernelPlan, sites: Sequence[Site], free: FreeFinder) -> None:
    next_id = 1
    for site in sites:
        if site.kind != "record":
            continue
        if not result.analysis.reachable(site.index):
            result.refused.append(RefusedSite(site, "control never gets here"))
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
    return PlacedSite(site, number, data, (), predicate, here.scoreboards[0], split=width == 1)


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
        quads = tuple(q for q in (here.take(4, named_first=True), here.take(4, named_first=True)) if q is not None)
        pair = None if quads else here.take(2, named_first=True)
        scoreboard = next(iter(here.scoreboards), None)
        if scoreboard is None and len(quads) == 2 and not goes_on:
            scoreboard = 0  # nobody waits for a store behind which the warp ends, so any scoreboard will do
        if (not quads and pair is None) or scoreboard is None:
            why = "no scoreboard is free" if scoreboard is None else "no aligned pair of registers is dead"
            result.refused.append(RefusedSite(site, f"{why} at this exit"))
            continue
        predicate = here.predicates[0] if here.predicates else None
        result.placed.append(PlacedSite(site, None, pair or 0, quads, predicate, scoreboard, wait_last=goes_on))
