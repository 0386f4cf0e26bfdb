"""A plan as a plain document: the JSON of ``xtrace plan`` and the source of its tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xtrace.isa.nvidia.schedule import Island

from .apply import splice_kernel
from .model import EVENT_BYTES, KernelPlan, Plan

__all__ = ["plan_document"]


def _issue_cycles(words: tuple[int, ...]) -> int:
    """Cycles that the island's own stall counts take if nothing else hides them."""
    total = 0
    for word in words:
        code = word >> 105 & 0x1F
        total += max(code - 16 if code > 16 else code, 1)
    return total


def _sites(k: KernelPlan, islands: Mapping[int, Island]) -> list[dict[str, Any]]:
    a = k.analysis
    rows: list[dict[str, Any]] = []
    for p in k.placed:
        ins = a.instructions[p.site.index]
        loop = a.loop_of(p.site.index)
        island = islands[p.site.index]
        rows.append(
            {
                "kernel": a.kernel.name,
                "pc": f"0x{ins.pc:x}",
                "op": ins.opcode,
                "phase": p.site.phase,
                "kind": p.site.kind,
                "probe": "time",
                "status": "placed",
                "reason": "",
                "loop": None if loop is None else loop.id,
                "depth": 0 if loop is None else loop.depth,
                "registers": p.registers,
                "scoreboard": p.scoreboard,
                "moved": p.moved,
                "wait": "at once" if p.wait_last else "deferred",
                "words": len(island.words),
                "cycles": _issue_cycles(island.words),
            }
        )
    for r in k.refused:
        ins = a.instructions[r.site.index]
        rows.append(
            {
                "kernel": a.kernel.name,
                "pc": f"0x{ins.pc:x}",
                "op": ins.opcode,
                "phase": r.site.phase,
                "kind": r.site.kind,
                "probe": "time",
                "status": "refused",
                "reason": r.reason,
            }
        )
    return sorted(rows, key=lambda row: int(row["pc"], 16))


def _kernel(k: KernelPlan, sites: list[dict[str, Any]], islands: Mapping[int, Island]) -> dict[str, Any]:
    a = k.analysis
    cycles: dict[int, int] = {}  # by loop, islands without a record (prepare, commit, wait) included
    for index, island in islands.items():
        loop = a.loop_of(index)
        if loop is not None:
            cycles[loop.id] = cycles.get(loop.id, 0) + _issue_cycles(island.words)
    placed = [s for s in sites if s["status"] == "placed"]
    return {
        "name": a.kernel.name,
        "demangled": a.kernel.demangled,
        "instructions": len(a.instructions),
        "registers": {"before": a.kernel.registers, "after": k.registers},
        "occupancy": "unchanged",
        "placed": len(k.placed),
        "refused": len(k.refused),
        "records": len(k.records),
        "added_words": sum(len(island.words) for island in islands.values()),
        "uniform_registers": [] if k.state is None else a.isa.layout.names(k.state.bits),
        "ring_bytes_per_warp": 0 if k.slot is None else k.slot.ring,
        "slot_bytes_per_warp": 0 if k.slot is None else k.slot.stride,
        "event_bytes": EVENT_BYTES,
        "loops": [
            {
                "id": x.id,
                "depth": x.depth,
                "head": f"0x{a.instructions[a.cfg.blocks[x.head].first].pc:x}",
                "records_per_trip": sum(1 for s in placed if s["loop"] == x.id and s["kind"] == "record"),
                "probe_cycles_per_trip": cycles.get(x.id, 0),
            }
            for x in (a.loops if k.state is not None else ())
        ],
    }


def plan_document(plan: Plan) -> dict[str, Any]:
    """Keys that outside checks read: ``sites`` (pc, op, probe, status, reason), ``placed``, ``refused``."""
    sites: list[dict[str, Any]] = []
    kernels = []
    for k in plan.kernels:
        islands = splice_kernel(k).islands if k.state is not None else {}
        rows = _sites(k, islands)
        sites += rows
        kernels.append(_kernel(k, rows, islands))
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
