"""Raw sample files -> cells, every block (blocks.csv), and every process replicate (replicates.csv).

Nothing is left out: voided blocks and processes without an estimate are rows that say so.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workflow.scripts.common import read_json
from workflow.scripts.values import rounded
from xtrace.errors import BadInput, XtraceError
from xtrace.stats import Cell, CellSummary, group, hodges_lehmann, percent, summarise
from xtrace.stats.samples import CELL_KEYS, block_ratio, skipped, voided

__all__ = ["BLOCKS", "CELL", "REPLICATES", "Gap", "Samples", "block_rows", "dose", "read_samples", "replicate_rows"]

CELL = ("workload", "tracer", "probes")
Gap = tuple[str, str, str, str]  # CELL and device; device empty: not known
BLOCKS = (*CELL_KEYS, "process", "block", "kind", "order", "log_ratio_percent", "voided")
REPLICATES = (
    *CELL_KEYS,
    *("process", "date", "git", "device_uuid", "launches_per_sample", "blocks", "control_blocks", "voided"),
    *("overhead_percent", "control_percent", "pad_percent", "older_percent", "problem"),
)
KINDS = {"AB": "overhead_percent", "AA": "control_percent", "AP": "pad_percent", "AO": "older_percent"}


@dataclass
class Samples:
    """Everything that raw sample files hold, and everything that is wrong with them."""

    summaries: list[CellSummary] = field(default_factory=list)
    blocks: list[dict[str, Any]] = field(default_factory=list)
    replicates: list[dict[str, Any]] = field(default_factory=list)
    broken: list[tuple[dict[str, str], str]] = field(default_factory=list)  # cells that cannot be analysed, and why
    gaps: dict[Gap, str] = field(default_factory=dict)  # cells of which a process, or all, gave no samples


def read_samples(paths: Sequence[Path]) -> Samples:
    """Read files, and the ``*.json`` files of folders. What is broken is kept apart, with its reason.

    A file that cannot be read belongs to the cell in its name, ``<workload>.<tracer>.<probes>.<process>.json``. One
    whose name says nothing is an error of its own, so that it cannot be overlooked.

    Raises
    ------
    BadInput
        XT7201, XT7403: such a file; the same process twice.
    """
    out = Samples()
    documents: list[dict[str, Any]] = []
    faults: dict[tuple[str, ...], str] = {}
    for path in [f for p in paths for f in (sorted(p.glob("*.json")) if p.is_dir() else [p])]:
        try:
            document = {"file": str(path), **read_json(path)}
            if "unsupported" in document:
                cell = document.get("cell") or {}
                gap = tuple(str(cell.get(k) or "") for k in (*CELL, "device"))
                out.gaps[gap] = str(document["unsupported"])  # type: ignore[index]
                continue
            group([document])
            documents.append(document)
        except XtraceError as error:
            parts = path.name.removesuffix(".json").split(".")
            if len(parts) != 4:
                raise
            print(error, file=sys.stderr)
            faults.setdefault(tuple(parts[:3]), f"{path.name}: {error.what}")
    for cell in group(documents):
        try:
            summary, blocks = summarise(cell), block_rows(cell)
        except XtraceError as error:
            print(error, file=sys.stderr)
            out.broken.append((cell.names, f"{error.where}: {error.what}"))
            continue
        out.summaries.append(summary)
        out.blocks += blocks
        out.replicates += replicate_rows(cell, blocks)
    have = {tuple(s.cell.names[k] for k in CELL) for s in out.summaries}
    for key, fault in faults.items():
        if key in have:
            out.gaps[(key[0], key[1], key[2], "")] = fault
        else:
            out.broken.append((dict(zip(CELL, key, strict=True)), fault))
    return out


def block_rows(cell: Cell) -> list[dict[str, Any]]:
    """One row a block. ``log_ratio_percent`` is ``100 ln(B/A)``, of an ``AA`` block the control's.

    Raises
    ------
    BadInput
        XT7202: a block that is not one.
    """
    out = []
    for document in cell.documents:
        skip = skipped(document)
        for index, block in enumerate(document["blocks"]):
            try:
                value = 100 * block_ratio(block, skip)
                row = {"block": index, "kind": block["kind"], "order": block["order"], "voided": bool(voided(block))}
            except (KeyError, TypeError, ValueError) as error:
                where = f"{' / '.join(cell.key)}, process {document['process']}, block {index}"
                raise BadInput("XT7202", f"bad block: {error}", where=where) from error
            out.append({**cell.names, "process": document["process"], **row, "log_ratio_percent": round(value, 5)})
    return out


def replicate_rows(cell: Cell, blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a process: the Hodges-Lehmann estimate of its blocks (:func:`block_rows`) and of its control blocks."""
    out = []
    for document in cell.documents:
        own = [b for b in blocks if b["process"] == document["process"]]
        usable = [b for b in own if not b["voided"]]
        kept = {kind: [b["log_ratio_percent"] / 100 for b in usable if b["kind"] == kind] for kind in KINDS}
        provenance = document.get("provenance") or {}
        row: dict[str, Any] = {
            **cell.names,
            "process": document["process"],
            **{name: provenance.get(name, "") for name in ("date", "git")},
            "device_uuid": provenance.get("uuid", ""),
            "launches_per_sample": document.get("launches_per_sample", 1),
            "blocks": len(kept["AB"]),
            "control_blocks": len(kept["AA"]),
            "voided": sum(b["voided"] for b in own),
            "problem": "" if kept["AB"] else "no usable block",
        }
        for kind, name in KINDS.items():
            row[name] = rounded(percent(hodges_lehmann(kept[kind]))) if kept[kind] else None
        out.append(row)
    return out


def dose(checks: Mapping[str, Any]) -> dict[str, float | int | None]:
    """How much a traced launch records, from the checks of one process; None for what nobody counted.

    ``records_per_warp`` counts everything that was emitted, the two of a warp's entry and exit included.
    ``records_per_iteration`` is the number of sites that run at least half as often as the busiest site, which is the
    number in the hottest loop; 0 if no site runs more than once a warp.
    """
    warps, emitted = checks.get("warps_seen"), checks.get("records_emitted")
    counted = isinstance(warps, int) and isinstance(emitted, int) and warps > 0
    out: dict[str, float | int | None] = {
        "warps": warps if isinstance(warps, int) else None,
        "records_per_warp": round(emitted / warps, 3) if counted else None,  # type: ignore[operator]
        "records_per_iteration": None,
    }
    sites = checks.get("records_per_site")
    if counted and isinstance(sites, Mapping):
        counts = [int(n) for kernel in sites.values() for n in dict(kernel).values()]
        busiest = max(counts, default=0)
        loops = busiest > warps and math.isfinite(busiest)
        out["records_per_iteration"] = sum(2 * n >= busiest for n in counts) if loops else 0
    return out
