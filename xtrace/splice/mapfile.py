"""The trace map: what a reader of the trace needs to know about a traced image (decision 0001)."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from xtrace import __version__
from xtrace.analysis import KernelAnalysis
from xtrace.isa.nvidia.emit import HEADER_BYTES

from .accesses import access_of
from .model import EVENT_BYTES, Derived, KernelPlan, Packet, PlacedSite, Plan, RefusedSite

if TYPE_CHECKING:
    from .apply import SplicedKernel

__all__ = ["SCHEMA", "kernel_map", "trace_map"]

SCHEMA = "xtrace/map/2"
SCHEMA_WITH_ADDRESSES = "xtrace/map/3"  # packets may hold addresses
SCHEMA_WITH_DERIVED = "xtrace/map/4"  # and registers that other addresses are made of
SCHEMA_WITH_STRIPES = "xtrace/map/5"  # and short clocks, and slots may interleave
SCHEMA_WITH_UNCLEARED = "xtrace/map/6"  # and clocks of optional events may be stale


def _site(k: KernelPlan, p: PlacedSite) -> dict[str, Any]:
    a = k.analysis
    ins = a.instructions[p.site.anchor]
    loop = a.loop_of(p.site.index)
    more: dict[str, Any] = {}
    if p.site.wide:
        more["at"] = a.instructions[p.site.index].pc
        more |= {"address": _address(a, p)} if p.site.value is None else {"value": _registers(a, p)}
    return {
        "id": p.id,
        "kind": p.site.kind,
        "pc": ins.pc,
        "op": ins.opcode,
        "phase": p.site.phase,
        "loop": None if loop is None else loop.id,
        "depth": 0 if loop is None else loop.depth,
        "probe": "time" if not p.site.wide else "address" if p.site.value is None else "value",
        "guard": ins.guard,
        "registers": p.registers,
        "scoreboard": p.scoreboard,
        "moved": p.moved,
        **more,
    }


def _address(a: KernelAnalysis, p: PlacedSite) -> dict[str, Any]:
    access = access_of(a, p.site)
    return {
        "size": access.size,
        "offset": access.offset,
        "conditional": bool(access.conditions),
        "made_with": None if p.witness is None else p.witness.id,
    }


def _registers(a: KernelAnalysis, p: PlacedSite) -> dict[str, Any]:
    """Registers of a value, low word first."""
    return {"registers": [a.isa.layout.names(w.bit)[0] for w in p.site.value or () if w is not None]}


def _derived(k: KernelPlan, d: Derived) -> dict[str, Any]:
    a, size = k.analysis, k.analysis.isa.word_bytes
    assert d.site.access is not None
    ins, access, loop = a.instructions[d.site.access], access_of(a, d.site), a.loop_of(d.site.access)
    leader = next(p for p in k.records if p.site.access == d.leader)
    number = {p.site.value: p.id for p in k.records if p.site.value is not None}
    return {
        "id": d.id,
        "pc": ins.pc,
        "op": ins.opcode,
        "phase": d.site.phase,
        "loop": None if loop is None else loop.id,
        "depth": 0 if loop is None else loop.depth,
        "guard": ins.guard,
        "at": d.at * size,
        "address": {"size": access.size, "offset": access.offset, "conditional": bool(access.conditions)},
        "from": leader.id,
        "offset": d.offset,
        "terms": [{"site": number[x.value], "part": x.part, "signed": x.signed, "times": x.times} for x in d.parts],
    }


def _refused(k: KernelPlan, r: RefusedSite) -> dict[str, Any]:
    ins = k.analysis.instructions[r.site.anchor]
    return {"kind": r.site.kind, "pc": ins.pc, "op": ins.opcode, "phase": r.site.phase, "reason": r.reason}


def _packet(k: KernelPlan, packet: Packet) -> dict[str, Any]:
    """A packet of clocks alone has the clock of each event."""
    entry: dict[str, Any] = {"tag": packet.tag, "sites": [p.id for p in packet.records]}
    if any(p.address for p in packet.records):
        entry["addresses"] = [p.id for p in packet.records if p.address]
        entry["clocks"] = [p.id for p in packet.records if p.capture is not None]
    if packet.short:
        entry["short_clocks"] = True
    if packet.uncleared:
        entry["uncleared"] = [p.id for p in packet.records if p in packet.uncleared]
    if packet.flush is not None:
        entry["flush"] = k.analysis.instructions[packet.flush.site.index].pc
    return entry


def kernel_map(k: KernelPlan, spliced: SplicedKernel | None, text_offset: int) -> dict[str, Any]:
    a = k.analysis
    size = a.isa.word_bytes
    entry: dict[str, Any] = {
        "name": a.kernel.name,
        "demangled": a.kernel.demangled,
        "registers": {"before": a.kernel.registers, "after": k.registers},
        "instructions": {"before": len(a.instructions), "after": len(a.instructions)},
        "islands": [],
        "sites": [],
        "loops": [
            {
                "id": x.id,
                "head": a.instructions[a.cfg.blocks[x.head].first].pc,
                "parent": x.parent,
                "depth": x.depth,
                "blocks": len(x.blocks),
            }
            for x in (a.loops if spliced else ())
        ],
        "refused": [_refused(k, r) for r in k.refused],
        "probe_registers": [],
        "slot": None,
        "packets": [],
        "patches": [],
    }
    if spliced is None or k.state is None or k.slot is None:
        return entry
    entry["instructions"]["after"] = len(spliced.text) // size
    entry["islands"] = [
        {"pc": i * size, "words": len(spliced.islands[i].words), "kind": spliced.kinds[i]}
        for i in sorted(spliced.islands)
    ]
    entry["sites"] = [_site(k, p) for p in k.placed]
    parked = {n for x in k.packets for n in x.parked}
    bits = sum(a.isa.layout["UR"].bit(n) for n in parked)
    entry["probe_registers"] = a.isa.layout.names(k.state.bits | bits)
    slot = k.slot
    entry["slot"] = {"stride": slot.stride, "ring": slot.ring, "record": EVENT_BYTES, "header_bytes": HEADER_BYTES}
    if slot.stripe is not None:
        entry["slot"]["stripe"] = slot.stripe
    entry["packets"] = [_packet(k, x) for x in k.packets]
    entry["patches"] = [{"offset": text_offset + at, "value": value} for at, value in spliced.patches]
    if k.derived:
        entry["derived"] = [_derived(k, d) for d in k.derived]
    if k.sample is not None and spliced.copy is not None:
        entry["sample"] = k.sample.document()
        entry["copy"] = {"pc": spliced.copy, "words": len(a.instructions)}
    return entry


def _schema(kernels: list[dict[str, Any]]) -> str:
    """The oldest one that has what these kernels need, so that older readers refuse just what they cannot read."""
    if any("uncleared" in packet for k in kernels for packet in k["packets"]):
        return SCHEMA_WITH_UNCLEARED
    if any("stripe" in (k["slot"] or {}) or any("short_clocks" in x for x in k["packets"]) for k in kernels):
        return SCHEMA_WITH_STRIPES
    addresses = any("addresses" in packet for k in kernels for packet in k["packets"])
    if any("derived" in k for k in kernels):
        return SCHEMA_WITH_DERIVED
    return SCHEMA_WITH_ADDRESSES if addresses else SCHEMA


def trace_map(plan: Plan, data: bytes, kernels: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "schema": _schema(kernels),
        "xtrace": __version__,
        "arch": plan.image.arch,
        "probes": plan.probes,
        "layout": plan.options.layout,
        "form": plan.options.form.name.lower(),
        "input": {"name": plan.image.name, "sha256": plan.image.sha256},
        "output": {"sha256": hashlib.sha256(data).hexdigest()},
        "kernels": kernels,
    }
