"""What a comparison with G-Watch found, from the documents of its pairs and the raw samples. Needs no GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from workflow.scripts.common import read_json
from workflow.scripts.gwatch_pairs import Layout
from xtrace.errors import XtraceError
from xtrace.stats import CellSummary, Comparison, group, summarise

__all__ = ["SCHEMA", "collect", "pairs", "table"]

SCHEMA = "xtrace/gwatch-comparison/1"
TRACERS = ("xtrace", "gwatch")
PROVENANCE = ("device", "driver", "cuda", "torch", "clocks", "date", "git")


def pairs(layout: Layout, kernels: Sequence[str], groups: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Documents of the pairs that were built."""
    for workload in kernels:
        for name in groups:
            path = layout.pair(workload, f"{name}-matched")
            if path.is_file():
                yield read_json(path)


def collect(layout: Layout, kernels: Sequence[str], groups: Sequence[str]) -> dict[str, Any]:
    """All pairs with what was measured of them."""
    rows = []
    for document in pairs(layout, kernels, groups):
        measured = {tracer: _measured(layout.raw, document, tracer) for tracer in TRACERS}
        sites = _sites(layout, document)
        both = [(s["xtrace_records"], s["gwatch_records"]) for s in sites if s["xtrace"] is not None]
        known = bool(both) and all(a is not None and b is not None for a, b in both)
        agree = all(a == b for a, b in both) if known else None
        rows.append(document | {"measured": measured, "sites": sites, "records_agree": agree})
    return {"schema": SCHEMA, "pairs": rows}


def _files(raw: Path, document: dict[str, Any], tracer: str) -> list[Path]:
    return sorted(raw.glob(f"{document['workload']}.{tracer}.{document['probes']}.*.json"))


def _measured(raw: Path, document: dict[str, Any], tracer: str) -> dict[str, Any]:
    """Overhead with its interval, control, outputs and problems of one cell; ``reason`` if there are no samples."""
    documents = [read_json(path) for path in _files(raw, document, tracer)]
    sampled = [d for d in documents if d.get("blocks")]
    if not sampled:
        reasons = [str(d["unsupported"]) for d in documents if "unsupported" in d]
        name = f"{document['workload']}.{tracer}.{document['probes']}.*.json"
        reasons += [str(read_json(path).get("error", "")) for path in sorted((raw / "errors").glob(name))]
        return {"reason": (reasons or ["not measured"])[0][-2000:]}
    try:
        summary = summarise(group(sampled)[0])
    except XtraceError as error:
        return {"reason": str(error)}
    provenance = sampled[0]["provenance"]
    return {
        "overhead": _interval(summary.overhead),
        "control": _interval(summary.control),
        "control_holds": summary.control_test is not None and summary.control_test.holds,
        "original_us": _us(summary.median_a_ns),
        "traced_us": _us(summary.median_b_ns),
        "outputs_equal": summary.checks.get("bit_identical"),
        "changed_bytes": max((d["checks"].get("changed_bytes") or 0 for d in sampled), default=0),
        "voided": summary.voided,
        "problems": list(summary.problems),
        "provenance": {
            name: provenance.get(name) for name in ("device", "driver", "cuda", "torch", "clocks", "date", "git")
        },
        "records": _records(summary),
    }


def _records(summary: CellSummary) -> int | None:
    found = summary.cell.documents[0]["checks"].get("ring_records")
    return int(found) if found is not None else None


def _interval(comparison: Comparison | None) -> dict[str, Any] | None:
    if comparison is None:
        return None
    finite = comparison.student.finite
    return {
        "percent": round(comparison.percent, 4),
        "low_percent": round(comparison.low_percent, 4) if finite else None,
        "high_percent": round(comparison.high_percent, 4) if finite else None,
        "processes": comparison.processes,
        "blocks": comparison.blocks,
    }


def _us(ns: float) -> float | None:
    return round(ns / 1000, 3) if math.isfinite(ns) else None


def _sites(layout: Layout, document: dict[str, Any]) -> list[dict[str, Any]]:
    """Each common place with the number of records that either tool left there in one launch."""
    theirs = ((document.get("gwatch_trace") or {}).get("per_site")) or {}
    ours: dict[str, int] = {}
    for path in _files(layout.raw, document, "xtrace"):
        counts = read_json(path).get("checks", {}).get("records_per_site", {})
        ours = ours or dict(counts.get(document["kernel"], {}))
    return [
        site | {"gwatch_records": theirs.get(str(site["gwatch"])), "xtrace_records": ours.get(str(site["xtrace"]))}
        for site in document.get("sites", [])
    ]


def table(report: dict[str, Any]) -> str:
    """Lines for the terminal."""
    lines = [f"{'kernel':28} {'group':6} {'tool':7} {'placed':>9} {'registers':>9} {'strict':>7} {'ctl':>4} overhead"]
    for row in report["pairs"]:
        for tracer in TRACERS:
            lines.append(_line(row, tracer))
        if row["records_agree"] is not None:
            lines.append(f"    records per place: {'the same' if row['records_agree'] else 'DIFFERENT'} in both tools")
        lines += [f"    {f['step']}: {f['reason'][:150]}" for f in row["failures"]]
    return "\n".join(lines)


def _line(row: dict[str, Any], tracer: str) -> str:
    measured, kept = row["measured"][tracer], row.get("preservation", {}).get(tracer)
    head = f"{row['workload'][:28]:28} {row['group']:6} {tracer:7}"
    placed = f"{row.get(tracer, {}).get('placed', '-')} of {row.get('requested', '-')}"
    registers = row.get("registers", {})
    strict = f"{100 * kept['strict']:.2f}" if kept else "-"
    changed = kept["control_fields_changed"] if kept else "-"
    if "reason" in measured:
        last = (measured["reason"].strip().splitlines() or [""])[-1]
        what = f"no samples: {last[:100]}"
    else:
        overhead = measured["overhead"] or {}
        low, high = overhead.get("low_percent"), overhead.get("high_percent")
        what = f"{overhead.get('percent')} % [{low}, {high}], outputs {_same(measured['outputs_equal'])}"
    before, after = registers.get("original", "-"), registers.get(tracer, "-")
    return f"{head} {placed:>9} {f'{before}->{after}':>9} {strict:>7} {changed!s:>4} {what}"


def _same(equal: bool | None) -> str:
    return {True: "equal", False: "DIFFER", None: "not compared"}[equal]
