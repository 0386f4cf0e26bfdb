"""A plan as a plain document: the JSON of ``xtrace plan`` and the source of its tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xtrace.analysis import KernelAnalysis
from xtrace.isa.nvidia.emit import HEADER_BYTES
from xtrace.probe import Site

from .apply import splice_kernel
from .cost import Cost, KernelCost, Way, kernel_cost
from .model import EVENT_BYTES, KernelPlan, Plan

__all__ = ["plan_document"]


def _cost(cost: Cost) -> dict[str, int]:
    return {
        "words": cost.words,
        "cycles": cost.issue,
        "wait_cycles": cost.wait,
        "added_cycles": cost.cycles,
        "memory_slots": cost.slots,
    }


def _way(way: Way) -> dict[str, Any]:
    """One iteration, or one run: docs/cost-model.md."""
    return {
        **_cost(way.cost),
        "own_cycles": way.own,
        "added_share": way.share,
        "events": way.cost.events,
        "bytes": way.cost.emitted,
    }


def _sites(k: KernelPlan, costs: Mapping[int, Cost]) -> list[dict[str, Any]]:
    a = k.analysis
    rows: list[dict[str, Any]] = []
    for p in k.placed:
        if p.site.value is not None:
            continue  # no site that anybody asked for: its cost is among those of the islands
        rows.append(
            {
                **_row(a, p.site, p.site.kind, "address" if p.site.wide else "time"),
                **_depth(a, p.site.index),
                "registers": p.registers,
                "scoreboard": p.scoreboard,
                "moved": p.moved,
                "wait": "at once" if p.wait_last else "deferred",
                **_cost(costs[p.site.index]),
            }
        )
    nothing: dict[str, Any] = {"registers": [], "scoreboard": None, "moved": 0, "wait": "none", **_cost(Cost())}
    for d in k.derived:
        rows.append(_row(a, d.site, "derived", "address") | _depth(a, d.site.anchor) | nothing)
    for r in k.refused:
        probe = "time" if r.site.access is None and not r.site.refusal else "address"
        rows.append(_row(a, r.site, r.site.kind, probe) | {"status": "refused", "reason": r.reason})
    return sorted(rows, key=lambda row: int(row["pc"], 16))


def _row(a: KernelAnalysis, site: Site, kind: str, probe: str) -> dict[str, Any]:
    ins = a.instructions[site.anchor]
    return {
        "kernel": a.kernel.name,
        "pc": f"0x{ins.pc:x}",
        "op": ins.opcode,
        "phase": site.phase,
        "kind": kind,
        "probe": probe,
        "status": "placed",
        "reason": "",
    }


def _depth(a: KernelAnalysis, index: int) -> dict[str, Any]:
    loop = a.loop_of(index)
    return {"loop": None if loop is None else loop.id, "depth": 0 if loop is None else loop.depth}


def _kernel(
    k: KernelPlan, sites: list[dict[str, Any]], cost: KernelCost | None, kinds: Mapping[int, str]
) -> dict[str, Any]:
    a = k.analysis
    costs = {} if cost is None else cost.islands
    ways = {} if cost is None else {way.loop: way for way in cost.loops}
    placed = [s for s in sites if s["status"] == "placed"]
    return {
        "name": a.kernel.name,
        "demangled": a.kernel.demangled,
        "instructions": len(a.instructions),
        "registers": {"before": a.kernel.registers, "after": k.registers},
        "occupancy": "unchanged",
        "placed": k.shown,
        "refused": len(k.refused),
        "records": len(k.records),
        "derived": len(k.derived),
        "added_words": sum(c.words for c in costs.values()),
        "uniform_registers": [] if k.state is None else a.isa.layout.names(k.state.bits),
        "ring_bytes_per_warp": 0 if k.slot is None else k.slot.ring,
        "slot_bytes_per_warp": 0 if k.slot is None else k.slot.stride,
        "stripe_bytes": None if k.slot is None else k.slot.stripe,
        "event_bytes": EVENT_BYTES,
        **({} if k.sample is None else {"sample": str(k.sample), "copied_words": len(a.instructions)}),
        "header_bytes": HEADER_BYTES,
        "packets": [
            {"tag": x.tag, "sites": [p.id for p in x.records], "bytes": x.size, "short_clocks": x.short}
            for x in k.packets
        ],
        "islands": [{"pc": f"0x{a.instructions[i].pc:x}", "kind": kinds[i], **_cost(costs[i])} for i in sorted(costs)],
        "hot": None if cost is None else {"loop": cost.hot.loop, **_way(cost.hot)},
        "once": None if cost is None else _way(cost.once),
        "loops": [
            {
                "id": x.id,
                "depth": x.depth,
                "head": f"0x{a.instructions[a.cfg.blocks[x.head].first].pc:x}",
                "records_per_trip": sum(1 for s in placed if s["loop"] == x.id and s["kind"] == "record"),
                "trip": _way(ways[x.id]),
            }
            for x in (a.loops if k.state is not None else ())
        ],
    }


def plan_document(plan: Plan) -> dict[str, Any]:
    """Keys that outside checks read: ``sites`` (pc, op, probe, status, reason), ``placed``, ``refused``; those of costs
    are in docs/cost-model.md.
    """
    sites: list[dict[str, Any]] = []
    kernels = []
    for k in plan.kernels:
        spliced = splice_kernel(k) if k.state is not None else None
        words = {} if spliced is None else {i: island.words for i, island in spliced.islands.items()}
        cost = None if spliced is None else kernel_cost(k.analysis, words, k.state)
        rows = _sites(k, {} if cost is None else cost.islands)
        sites += rows
        kernels.append(_kernel(k, rows, cost, {} if spliced is None else spliced.kinds))
    return {
        "schema": "xtrace/plan/1",
        "image": plan.image.name,
        "sha256": plan.image.sha256,
        "arch": plan.image.arch,
        "probes": plan.probes,
        "placed": plan.placed,
        "refused": plan.refused,
        "kernels": kernels,
        "sites": sites,
    }
