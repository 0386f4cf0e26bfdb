"""results/overhead.csv: one row a cell, from raw samples; cells without samples are rows that say "not measured".

A cell whose samples cannot be read is a row that says "broken", and why. With --blocks and --replicates also every
block and every process replicate, with --budgets the gate's verdict on every cell that has a budget.

    python -m workflow.scripts.overhead_table --source measured --expect softmax:xtrace:pp --out OUT.csv --raw RAW...

Analysis only: it can be repeated at any time and never touches a device.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workflow.scripts.common import read_json, run, write_table
from workflow.scripts.sample_tables import BLOCKS, CELL, REPLICATES, Gap, Samples, dose, read_samples
from workflow.scripts.values import rounded
from xtrace.config import load_yaml
from xtrace.errors import BadInput
from xtrace.stats import CellSummary, Comparison
from xtrace.stats.budgets import Budgets, parse_budgets
from xtrace.stats.gate import decide
from xtrace.stats.samples import CELL_KEYS
from xtrace.stats.verdicts import name_of

PROVENANCE = ("driver", "cuda", "torch", "triton", "clocks", "date", "git", "xtrace")
CHECKS = ("bit_identical", "records_expected", "records_emitted", "records_lost", "monotonic")
COLUMNS = (
    *CELL_KEYS,
    *("source", "interval", "processes", "blocks", "voided", "original_ns", "traced_ns"),
    *("overhead_percent", "low_percent", "high_percent", "exact_low_percent", "exact_high_percent"),
    *("control_percent", "control_low_percent", "control_high_percent", "control_ok"),
    *CHECKS,
    *("note", "problems"),
    *PROVENANCE,
    *("measured_at", "warps", "records_per_warp", "records_per_iteration"),
    *("budget_percent", "verdict", "reasons", "flags"),
)
NOT_MEASURED, BROKEN = "not measured", "broken"


def row(summary: CellSummary, source: str) -> dict[str, Any]:
    """The table row of one cell. ``source`` is ``measured`` or ``recorded``."""
    out: dict[str, Any] = {**summary.cell.names, "source": source, "voided": summary.voided}
    first = summary.cell.documents[0]
    out["interval"] = first.get("interval", "")
    out["original_ns"], out["traced_ns"] = rounded(summary.median_a_ns), rounded(summary.median_b_ns)
    if (overhead := summary.overhead) is not None:
        late = f"late samples: the first of each block left out in {summary.trimmed} of {overhead.processes} processes"
        note = "; ".join(filter(None, (overhead.note, late if summary.trimmed else "")))
        out |= {"processes": overhead.processes, "blocks": overhead.blocks, "note": note}
        out |= _interval(overhead, "overhead_percent", "low_percent", "high_percent")
        out["exact_low_percent"] = _percent(overhead.exact.low)
        out["exact_high_percent"] = _percent(overhead.exact.high)
    if (control := summary.control) is not None:
        out |= _interval(control, "control_percent", "control_low_percent", "control_high_percent")
        out["control_ok"] = summary.control_test is not None and summary.control_test.holds
    out |= {name: summary.checks.get(name) for name in CHECKS}
    out["problems"] = "; ".join(summary.problems)
    out |= dose(first.get("checks") or {})
    out["measured_at"] = str((first.get("provenance") or {}).get("date", ""))
    return out | _provenance(summary.cell.documents)


def _interval(comparison: Comparison, middle: str, low: str, high: str) -> dict[str, float | None]:
    return {
        middle: rounded(comparison.percent),
        low: rounded(comparison.low_percent) if comparison.student.finite else None,
        high: rounded(comparison.high_percent) if comparison.student.finite else None,
    }


def _percent(log_ratio: float) -> float | None:
    return rounded(100 * math.expm1(log_ratio)) if math.isfinite(log_ratio) else None


def _provenance(documents: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Each field once if all processes agree, otherwise every value that occurred."""
    out = {}
    for name in PROVENANCE:
        values = [str(d.get("provenance", {}).get(name, "")) for d in documents]
        if name == "date":  # processes of one cell run one after the other
            values = [v[:10] for v in values]
        out[name] = " | ".join(dict.fromkeys(v for v in values if v))
    return out


def merge_gaps(
    table: list[dict[str, Any]], gaps: Mapping[Gap, str], expect: Sequence[str], baselines: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Rows of the table and of every cell without samples.

    A gap in a cell that other processes measured makes that cell doubtful. Any other gap is a row with its reason. So
    is every expected cell ``workload:tracer:probes`` that is nowhere, with the reason that its baseline's result gives.
    """
    rows = [dict(r) for r in table]
    for gap, reason in gaps.items():
        same = [r for r in rows if tuple(r[k] for k in CELL) == gap[:3] and gap[3] in ("", r.get("device"))]
        for r in same:
            r["problems"] = "; ".join(filter(None, [r.get("problems"), f"some processes gave no samples: {reason}"]))
        if not same:
            names = dict(zip((*CELL, "device"), gap, strict=True))
            rows.append({**names, "source": NOT_MEASURED, "note": reason})
    have = {":".join(r[k] for k in CELL) for r in rows}
    for cell in expect:
        names = dict(zip(CELL, cell.split(":"), strict=False))
        if len(names) != len(CELL) or cell.count(":") != 2:
            raise BadInput("XT7410", f"{cell!r} is not WORKLOAD:TRACER:PROBES", where="--expect")
        if cell not in have:
            rows.append({**names, "source": NOT_MEASURED, "note": baselines.get(cell, "no samples")})
    return sorted(rows, key=_order)


def _order(r: Mapping[str, Any]) -> tuple[Any, ...]:
    return (r["workload"], r["tracer"] != "xtrace", r["tracer"], r["probes"], r.get("device", ""), r.get("shape", ""))


def judge(samples: Samples, source: str, budgets: Budgets | None) -> list[dict[str, Any]]:
    """Rows of the cells that have samples, with the gate's verdict on those that have a budget."""
    table = []
    for summary in samples.summaries:
        out = row(summary, source)
        budget = None if budgets is None else budgets.find(name_of(summary.cell.names))
        if budgets is not None and budget is not None:
            decision = decide(summary, budgets.rule_for(budget))
            out |= {"budget_percent": budget.percent, "verdict": str(decision.verdict)}
            out |= {"reasons": "; ".join(decision.reasons), "flags": " ".join(map(str, decision.flags))}
        table.append(out)
    return table + [{**names, "source": BROKEN, "problems": fault} for names, fault in samples.broken]


def baseline_reasons(paths: Sequence[Path]) -> dict[str, str]:
    """Why cells of baselines are missing, from the ``result.json`` files that say so."""
    reasons = {}
    for path in paths:
        result = read_json(path)
        if result.get("status") != "ok":
            key = ":".join(str(result.get(k)) for k in CELL)
            reasons[key] = f"{result.get('status')}: {result.get('reason')}"
    return reasons


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="overhead_table", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--source", choices=["measured", "recorded"], required=True)
    parser.add_argument("--expect", nargs="*", default=[], metavar="WORKLOAD:TRACER:PROBES")
    parser.add_argument(
        "--baseline-results", nargs="*", default=[], type=Path, help="result.json files: why cells are missing"
    )
    parser.add_argument("--budgets", type=Path, help="budgets file: adds the gate's verdicts")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--blocks", type=Path, help="table of every block")
    parser.add_argument("--replicates", type=Path, help="table of every process replicate")
    parser.add_argument("--raw", nargs="*", default=[], type=Path, help="raw sample files, or folders of them")
    given = parser.parse_args(arguments)
    budgets = None if given.budgets is None else parse_budgets(load_yaml(given.budgets), str(given.budgets))
    samples = read_samples(given.raw)
    table = judge(samples, given.source, budgets)
    table = merge_gaps(table, samples.gaps, given.expect, baseline_reasons(given.baseline_results))
    write_table(given.out, table, COLUMNS)
    if given.blocks:
        write_table(given.blocks, samples.blocks, BLOCKS)
    if given.replicates:
        write_table(given.replicates, samples.replicates, REPLICATES)


if __name__ == "__main__":
    run(main)
