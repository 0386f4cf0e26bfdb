"""Islands in front of EXITs, which write the warp's header.

A kernel with many short warps pays for the traffic of their headers: 32 bytes each, 0.4 % of what an RMSNorm moves.
Where a kernel is bound by memory they are stored with a *descriptor* that asks L2 to keep these lines longest; whether
it does is decided when the image is loaded, by the size of the table (:mod:`xtrace.runtime.buffers`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from xtrace.analysis import KernelAnalysis
from xtrace.isa.nvidia.emit import UniformState
from xtrace.isa.nvidia.exits import Guard
from xtrace.probe import Site

from .accesses import latency
from .model import MAX_EVENTS, KernelPlan, PlacedSite, RefusedSite
from .resources import FreeFinder
from .stripes import bound_by_memory, free_pair

__all__ = ["place_exits", "with_descriptor"]

_GUARD = re.compile(r"@(!?)P(\d)")
_SPARE = 2 + MAX_EVENTS  # uniform registers that packets may want: a base, and clocks to be parked


def with_descriptor(a: KernelAnalysis, state: UniformState) -> UniformState:
    """The state with a pair of uniform registers for the descriptor of header stores, if wanted and to spare."""
    if not bound_by_memory(a) or len(a.free_uniform) < UniformState.COUNT + 2 + _SPARE:
        return state
    return replace(state, descriptor=free_pair(a, state))


def place_exits(result: KernelPlan, sites: Sequence[Site], free: FreeFinder) -> None:
    """Registers and scoreboards for the exits among ``sites``; those that cannot be had are refused."""
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
        described = result.state is not None and result.state.descriptor is not None
        result.placed.append(
            PlacedSite(
                site,
                quads=quads,
                pair=pair,
                header=here.take(2, named_first=True) if described else None,
                guard=_guard(a, site.index),
                predicate=here.predicates[0] if here.predicates else None,
                scoreboard=scoreboard,
                wait_last=goes_on,
            )
        )


def _guard(a: KernelAnalysis, index: int) -> Guard | None:
    """What lets lanes pass an exit; None where none can, or where it comes too late to ask."""
    ins = a.instructions[index]
    match = _GUARD.fullmatch(ins.guard)
    if match is None:
        return None
    predicate = int(match[2])
    bit = a.isa.layout["P"].bit(predicate)
    if any(due & bit for due in a.inflight.due[index]):
        return None
    return Guard(predicate, bool(match[1]), latency(a, index, bit))
