"""Images with a part of the probes of a plan: what the prologue costs alone, and what the clock reads cost.

They are spliced like a traced image, and what they insert is proved harmless like its probes, but they trace nothing
(:func:`prologue_only`) or only when each warp starts and ends (:func:`clocks_only`). Arms of a measurement, like the
pad image (:mod:`.pad`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from .apply import SpliceResult, apply
from .model import KernelPlan, Packet, PlacedSite, Plan
from .resources import FreeFinder

__all__ = ["clocks_only", "prologue_only"]


def prologue_only(plan: Plan) -> SpliceResult:
    """The prologue of every kernel and nothing else: it computes the warp's addresses and stores nothing.

    Neither has it a slot or anything to patch. Raises the errors of :func:`xtrace.splice.apply`.
    """
    kernels = [_without_packets(k, [p for p in k.placed if p.site.kind == "entry"]) for k in plan.kernels]
    return _applied(plan, kernels, "prologue only", {"slot": None, "patches": []})


def clocks_only(plan: Plan) -> SpliceResult:
    """The prologue, the headers at the exits, and one word for each event: its clock is read into a dead register.

    No clock is stored, no cursor set up or moved, no lane elected for it. ``clock_reads`` of a kernel in the map says
    how many events have their word. Raises the errors of :func:`xtrace.splice.apply`.
    """
    kernels = []
    for k in plan.kernels:
        free = FreeFinder(k.analysis)
        reads = [PlacedSite(p.site, p.id, register, moved=p.moved) for p, register in _reads(k, free)]
        ends = [_alone(k, p) for p in k.placed if p.site.kind != "record"]
        kernel = _without_packets(k, sorted([*reads, *ends], key=lambda p: p.site.index))
        kernel.emits = False
        kernel.packets = [Packet(0, [p], [p], [], []) for p in reads]
        kernels.append(kernel)
    result = _applied(plan, kernels, "clocks only", {"packets": []})
    for entry, kernel in zip(result.map["kernels"], kernels, strict=True):
        entry["clock_reads"] = len(kernel.packets)
    return result


def _without_packets(k: KernelPlan, placed: list[PlacedSite]) -> KernelPlan:
    return replace(k, placed=placed, packets=[], waits={}, layout=0)


def _reads(k: KernelPlan, free: FreeFinder) -> Iterator[tuple[PlacedSite, int]]:
    """Events with a register each that the next instruction does not write: nothing in the island waits for the clock,
    and it could still be on its way. The plan's own register if it will do. An event without any is left out.
    """
    for p in k.records:
        written = k.analysis.instructions[p.site.index].writes
        registers = [*([] if p.capture is None else [p.capture]), *free.at(p.site.index).groups(1)]
        register = next((n for n in registers if not written >> n & 1), None)
        if register is not None:
            yield p, register


def _alone(k: KernelPlan, p: PlacedSite) -> PlacedSite:
    """Entry or exit where no packet has left anything to wait for, and none will wait for an exit that lanes pass."""
    if p.site.kind != "exit":
        return p
    return replace(p, wait_first=0, wait_last=bool(k.analysis.instructions[p.site.index].guard))


def _applied(plan: Plan, kernels: list[KernelPlan], what: str, entries: dict[str, Any]) -> SpliceResult:
    result = apply(replace(plan, probes=f"{what}, of {plan.probes}", kernels=kernels))
    for entry in result.map["kernels"]:
        entry |= {key: value for key, value in entries.items() if entry["slot"] is not None}
        entry["sites"] = [s for s in entry["sites"] if s["kind"] != "record"]
    return result
