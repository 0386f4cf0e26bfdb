"""results/ablation.csv: what each step of the ablation costs, and what it gains over the step before.

    python -m workflow.scripts.ablation_table --samples results/recorded/ablation/steps.json --out results/ablation.csv

One row an image. Overhead: mean over processes of the Hodges-Lehmann estimate of a process, with its 95 % t interval,
as in the overhead table. Gain: how much longer a launch takes with the step before, from differences within processes,
with the interval of the same kind. Without samples every row says "not measured".
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workflow.scripts.ablation_images import ARMS, STEPS
from workflow.scripts.common import read_json, run, write_table
from workflow.scripts.values import rounded
from xtrace.errors import BadInput
from xtrace.stats import compare, hodges_lehmann
from xtrace.stats.samples import ratios_by_kind

__all__ = ["COLUMNS", "SCHEMA", "rows", "text"]

SCHEMA = "xtrace/ablation-steps/1"
FACTS = ("events", "packets", "words", "registers")
FIGURES = ("overhead_percent", "low_percent", "high_percent", "gain_percent", "gain_low_percent", "gain_high_percent")
PROVENANCE = ("device", "driver", "cuda", "torch", "clocks", "date", "git", "xtrace")
COLUMNS = (
    "workload",
    "arm",
    "kind",
    "what",
    *FACTS,
    *FIGURES,
    "processes",
    "blocks",
    "original_ns",
    *PROVENANCE,
    "note",
)
ALL_STEPS = "all steps"
KINDS = {
    **{arm.name: ("step" if arm.step else "control", arm.what) for arm in ARMS},
    ALL_STEPS: ("total", f"from {STEPS[0]} to {STEPS[-1]}"),
    "AA": ("control", "the original, loaded a second time"),
}
NOT_MEASURED = "not measured"


def rows(document: Mapping[str, Any] | None, workloads: Sequence[str]) -> list[dict[str, Any]]:
    """A row for every image of every workload; ``document`` is None where there are no samples at all."""
    if document is not None and document.get("schema") != SCHEMA:
        raise BadInput("XT7464", f"schema is {document.get('schema')!r}, expected {SCHEMA!r}")
    out = []
    for workload in workloads:
        measured = [] if document is None else [p for p in document["processes"] if workload in p["workloads"]]
        facts = {} if document is None else document["images"].get(workload, {}).get("arms", {})
        thetas = [_thetas(p["workloads"][workload]) for p in measured]
        for arm, (kind, what) in KINDS.items():
            row = dict.fromkeys(COLUMNS, "") | {"workload": workload, "arm": arm, "kind": kind, "what": what}
            row |= {name: facts[arm][name] for name in FACTS if arm in facts}
            out.append(row | _figures(arm, thetas) | _where(measured, workload, arm))
    return out


def _thetas(measured: Mapping[str, Any]) -> dict[str, list[float]]:
    """Log ratios of the blocks of one process, by image."""
    return ratios_by_kind(measured.get("blocks", ()), int(measured.get("late_samples") or 0))


def _figures(arm: str, thetas: Sequence[Mapping[str, list[float]]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    first, second = _compared(arm)
    mine = [p[second] for p in thetas if second in p]
    if arm != ALL_STEPS and mine:
        found = compare(mine)
        out |= _interval("", found.percent, found.low_percent, found.high_percent)
        out |= {"processes": found.processes, "blocks": found.blocks}
    pairs = [p for p in thetas if first in p and second in p]
    if first and pairs:
        gain = compare([[hodges_lehmann(p[first]) - hodges_lehmann(p[second])] for p in pairs])
        out |= _interval("gain_", gain.percent, gain.low_percent, gain.high_percent)
        out.setdefault("processes", gain.processes)
    return out


def _compared(arm: str) -> tuple[str, str]:
    """The image that ``arm`` is compared with (none for the first step and for controls), and its own."""
    if arm == ALL_STEPS:
        return STEPS[0], STEPS[-1]
    at = STEPS.index(arm) if arm in STEPS else 0
    return (STEPS[at - 1], arm) if at else ("", arm)


def _interval(prefix: str, value: float, low: float, high: float) -> dict[str, Any]:
    names = [prefix + name for name in ("percent", "low_percent", "high_percent")]
    names[0] = names[0] if prefix else "overhead_percent"
    values = [rounded(v) for v in (value, low, high)]
    return {name: "" if v is None else v for name, v in zip(names, values, strict=True)}


def _where(measured: Sequence[Mapping[str, Any]], workload: str, arm: str) -> dict[str, Any]:
    """Provenance of the row, and why it has no figure."""
    entries = [p["workloads"][workload] for p in measured]
    if not any(entry.get("blocks") for entry in entries):
        reasons = [str(entry["not_timed"]) for entry in entries if entry.get("not_timed")]
        return {"note": f"{NOT_MEASURED}: {reasons[0]}" if reasons else NOT_MEASURED}
    known = {name: " | ".join(sorted({str(p["provenance"].get(name, "")) for p in measured})) for name in PROVENANCE}
    known["date"] = min(str(p["provenance"].get("date", "")) for p in measured)
    reasons = [e["arms"][arm]["not_timed"] for e in entries if e.get("arms", {}).get(arm, {}).get("not_timed")]
    seen = arm == ALL_STEPS or any(block["kind"] == arm for entry in entries for block in entry.get("blocks", ()))
    note = f"{len(reasons)} of {len(entries)} processes: {reasons[0]}" if reasons else "" if seen else NOT_MEASURED
    original = statistics.median(entry["original_ns"] for entry in entries if entry.get("blocks"))
    return known | {"original_ns": round(original, 1), "note": note}


def text(table: Sequence[Mapping[str, Any]]) -> str:
    """The table for the eye."""
    lines = []
    for row in table:
        figures = f"{_shown(row, 'overhead_percent', 'low_percent', 'high_percent'):>28}"
        gain = f"{_shown(row, 'gain_percent', 'gain_low_percent', 'gain_high_percent'):>28}"
        lines.append(f"{row['workload']:28} {row['arm']:10} {figures} {gain}  S={row['processes'] or 0} {row['note']}")
    return "\n".join([f"{'workload':28} {'image':10} {'overhead (%)':>28} {'gain of the step (%)':>28}", *lines])


def _shown(row: Mapping[str, Any], value: str, low: str, high: str) -> str:
    if row[value] == "":
        return "-"
    interval = "no interval" if row[low] == "" else f"[{row[low]:+.2f}, {row[high]:+.2f}]"
    return f"{row[value]:+.2f} {interval}"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="ablation_table", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--samples", type=Path, help="raw samples of ablation.py; without them nothing is measured")
    parser.add_argument("--workloads", nargs="*", help="default: those that have samples")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    document = None if given.samples is None else read_json(given.samples)
    try:
        workloads = list((document or {}).get("images", {})) if given.workloads is None else given.workloads
        table = rows(document, workloads)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise BadInput("XT7464", f"not samples of the ablation: {error!r}", where=str(given.samples)) from error
    write_table(given.out, table, COLUMNS)


if __name__ == "__main__":
    run(main)
