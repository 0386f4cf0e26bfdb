"""results/overhead.csv: one row a cell, from raw samples; cells without samples are rows that say "not measured".

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
from xtrace.errors import BadInput
from xtrace.stats import CellSummary, Comparison, group, summarise
from xtrace.stats.samples import CELL_KEYS

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
)
NOT_MEASURED = "not measured"


def row(summary: CellSummary, source: str) -> dict[str, Any]:
    """The table row of one cell. ``source`` is ``measured`` or ``recorded``."""
    out: dict[str, Any] = {**summary.cell.names, "source": source, "voided": summary.voided}
    first = summary.cell.documents[0]
    out["interval"] = first.get("interval", "")
    out["original_ns"], out["traced_ns"] = _number(summary.median_a_ns), _number(summary.median_b_ns)
    if (overhead := summary.overhead) is not None:
        out |= {"processes": overhead.processes, "blocks": overhead.blocks, "note": overhead.note}
        out |= _interval(overhead, "overhead_percent", "low_percent", "high_percent")
        out["exact_low_percent"] = _percent(overhead.exact.low)
        out["exact_high_percent"] = _percent(overhead.exact.high)
    if (control := summary.control) is not None:
        out |= _interval(control, "control_percent", "control_low_percent", "control_high_percent")
        out["control_ok"] = summary.control_test is not None and summary.control_test.holds
    out |= {name: summary.checks.get(name) for name in CHECKS}
    out["problems"] = "; ".join(summary.problems)
    return out | _provenance(summary.cell.documents)


def _interval(comparison: Comparison, middle: str, low: str, high: str) -> dict[str, float | None]:
    return {
        middle: _number(comparison.percent),
        low: _number(comparison.low_percent) if comparison.student.finite else None,
        high: _number(comparison.high_percent) if comparison.student.finite else None,
    }


def _percent(log_ratio: float) -> float | None:
    return _number(100 * math.expm1(log_ratio)) if math.isfinite(log_ratio) else None


def _number(value: float) -> float | None:
    """Four decimals are far below the noise and keep the table readable."""
    return round(value, 4) if math.isfinite(value) else None


def _provenance(documents: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Each field once if all processes agree, otherwise every value that occurred."""
    out = {}
    for name in PROVENANCE:
        values = [str(d.get("provenance", {}).get(name, "")) for d in documents]
        if name == "date":  # processes of one cell run one after the other
            values = [v[:10] for v in values]
        out[name] = " | ".join(dict.fromkeys(v for v in values if v))
    return out


def unsupported(documents: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Why cells were not measured, from documents that say so instead of holding samples."""
    found = {}
    for document in documents:
        if "unsupported" in document:
            cell = document.get("cell", {})
            found[":".join(str(cell.get(k)) for k in ("workload", "tracer", "probes"))] = str(document["unsupported"])
    return found


def expected(
    cells: Sequence[str], rows: Sequence[Mapping[str, Any]], reasons: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Rows for the cells ``workload:tracer:probes`` that have no samples."""
    have = {(r["workload"], r["tracer"], r["probes"]) for r in rows}
    missing = []
    for cell in cells:
        try:
            workload, tracer, probes = cell.split(":")
        except ValueError:
            raise BadInput("XT7410", f"{cell!r} is not WORKLOAD:TRACER:PROBES", where="--expect") from None
        if (workload, tracer, probes) not in have:
            note = reasons.get(cell, "no samples")
            names = {"workload": workload, "tracer": tracer, "probes": probes}
            missing.append({**names, "source": NOT_MEASURED, "note": note})
    return missing


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="overhead_table", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--source", choices=["measured", "recorded"], required=True)
    parser.add_argument("--expect", nargs="*", default=[], metavar="WORKLOAD:TRACER:PROBES")
    parser.add_argument(
        "--baseline-results", nargs="*", default=[], type=Path, help="result.json files: why cells are missing"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--raw", nargs="*", default=[], type=Path, help="raw sample files, or folders of them")
    given = parser.parse_args(arguments)
    files = [f for path in given.raw for f in (sorted(path.glob("*.json")) if path.is_dir() else [path])]
    documents = [{"file": str(path), **read_json(path)} for path in files]
    reasons = unsupported(documents)
    documents = [d for d in documents if "unsupported" not in d]
    table = [row(summarise(cell), given.source) for cell in group(documents)]
    for measured in table:
        lost = reasons.get(":".join(measured[k] for k in ("workload", "tracer", "probes")))
        if lost:
            measured["problems"] = "; ".join(
                filter(None, [measured["problems"], f"some processes gave no samples: {lost}"])
            )
    for path in given.baseline_results:
        result = read_json(path)
        if result.get("status") != "ok":
            key = f"{result.get('workload')}:{result.get('tracer')}:{result.get('probes')}"
            reasons[key] = f"{result.get('status')}: {result.get('reason')}"
    table += expected(given.expect, table, reasons)
    table.sort(key=lambda r: (r["workload"], r["tracer"] != "xtrace", r["tracer"], r["probes"]))
    write_table(given.out, table, COLUMNS)


if __name__ == "__main__":
    run(main)
