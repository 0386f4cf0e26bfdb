"""results/prediction.csv: for every cell of Xtrace what `xtrace plan` predicts, beside what was measured.

    python -m workflow.scripts.prediction_table --results results --overhead results/overhead.csv --raw RAW...
        --out results/prediction.csv

Predicted is the share of added issue cycles in an iteration of the hot loop (docs/cost-model.md). Bytes of a launch are
counted from the records of each site in the raw samples, if the timed image is the one that the plan is about.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from workflow.scripts.common import read_json, read_table, run, write_table
from workflow.scripts.overhead_table import NOT_MEASURED
from workflow.scripts.values import number, plain_reason, rounded
from xtrace.errors import XtraceError
from xtrace.stats.rank import RankCorrelation, rank_correlation

__all__ = ["COLUMNS", "correlation", "measured_bytes", "rows"]

CELL = ("workload", "probes", "device", "shape")
OVERHEAD = (
    *CELL,
    *("tracer", "kernel", "source", "overhead_percent", "low_percent", "high_percent", "traced_ns", "note", "problems"),
)
FIGURES = ("overhead_percent", "low_percent", "high_percent")
COLUMNS = (
    *CELL,
    *("kernel", "source", "hot", "added_cycles", "wait_cycles", "own_cycles", "predicted_percent", *FIGURES),
    *("events", "bytes", "memory_slots", "event_bytes", "bytes_per_launch", "bytes_per_second", "bytes_note", "note"),
)


def rows(
    overhead: pd.DataFrame,
    plans: Mapping[tuple[str, str], Mapping[str, Any] | str],
    traced: Mapping[tuple[str, str], str],
    samples: Iterable[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """One row a cell of Xtrace.

    Parameters
    ----------
    overhead
        ``results/overhead.csv`` as text.
    plans
        Plan of the kernel by workload and probe set (one of ``kernels`` of the document), or why there is none.
    traced
        SHA-256 of the traced image that belongs to the plan.
    samples
        Raw sample documents; the first of each cell counts.
    """
    raw: dict[tuple[str, ...], Mapping[str, Any]] = {}
    for document in samples:
        cell = document.get("cell") or {}
        if cell.get("tracer") == "xtrace" and document.get("blocks"):
            raw.setdefault(tuple(str(cell.get(k, "")) for k in ("workload", "probes", "device")), document)
    out = []
    for r in overhead[overhead["tracer"] == "xtrace"].to_dict("records"):
        key = (r["workload"], r["probes"])
        kernel = plans.get(key, "no plan")
        row = {k: r[k] for k in (*CELL, "kernel", "source", *FIGURES)}
        if number(r["overhead_percent"]) is None:
            row |= {"note": plain_reason(r["note"] or r["problems"] or NOT_MEASURED)}
        if isinstance(kernel, str):
            out.append(row | {"note": kernel, "bytes_note": kernel})
            continue
        row |= predicted(kernel)
        document = raw.get((*key, r["device"]))
        out.append(row | rate(kernel, document, traced.get(key, ""), number(r["traced_ns"])))
    return out


def predicted(kernel: Mapping[str, Any]) -> dict[str, Any]:
    """Columns from the plan of one kernel."""
    hot = kernel.get("hot")
    if hot is None:
        return {"note": "the kernel is refused as a whole"}
    heads = {loop["id"]: f"loop {loop['id']} at {loop['head']}" for loop in kernel["loops"]}
    share = hot["added_share"]
    return {
        "kernel": kernel["name"],
        "hot": heads.get(hot["loop"], "outside loops"),
        **{
            name: hot[name] for name in ("added_cycles", "wait_cycles", "own_cycles", "events", "bytes", "memory_slots")
        },
        "event_bytes": kernel["event_bytes"],
        "predicted_percent": None if share is None else rounded(100 * share),
    }


def rate(
    kernel: Mapping[str, Any], document: Mapping[str, Any] | None, image: str, launch_ns: float | None
) -> dict[str, Any]:
    """Measured bytes of a launch and per second, or why they are not known."""
    if document is None or launch_ns is None:
        return {"bytes_note": NOT_MEASURED}
    timed = (document.get("images") or {}).get("instrumented")
    if not image or timed != image:
        return {"bytes_note": "another image was timed: its packets are not known here"}
    count = measured_bytes(kernel, document.get("checks") or {})
    if count is None:
        return {"bytes_note": "records of each site were not counted"}
    return {"bytes_per_launch": count, "bytes_per_second": round(count / (launch_ns * 1e-9)), "bytes_note": ""}


def measured_bytes(kernel: Mapping[str, Any], checks: Mapping[str, Any]) -> int | None:
    """Bytes that a launch emitted: a header for each warp, and each packet as often as the busiest of its sites ran."""
    warps, sites = checks.get("warps_seen"), (checks.get("records_per_site") or {}).get(kernel["name"])
    if not isinstance(warps, int) or (sites is None and kernel["packets"]):
        return None
    counts = {int(site): int(n) for site, n in (sites or {}).items()}
    if any(site not in counts for packet in kernel["packets"] for site in packet["sites"]):
        return None
    emitted = sum(p["bytes"] * max(counts[site] for site in p["sites"]) for p in kernel["packets"])
    return int(kernel["header_bytes"] * warps + emitted)


def correlation(table: pd.DataFrame) -> RankCorrelation:
    """Of predicted share and measured overhead, over the rows of the table that have both."""
    pairs = [(number(r["predicted_percent"]), number(r["overhead_percent"])) for r in table.to_dict("records")]
    both = [(x, y) for x, y in pairs if x is not None and y is not None]
    return rank_correlation([x for x, _ in both], [y for _, y in both])


def kernel_plan(results: Path, workload: str, probes: str) -> Mapping[str, Any] | str:
    """The plan of the workload's kernel, or why there is none."""
    try:
        name = read_json(results / "corpus" / workload / "meta.json").get("kernel")
        document = read_json(results / "traced" / workload / f"{probes}.plan.json")
    except XtraceError as error:
        return plain_reason(error)
    named = [k for k in document.get("kernels", []) if k.get("name") == name]
    return named[0] if named else f"the plan has no kernel {name}"


def traced_image(results: Path, workload: str, probes: str) -> str:
    """SHA-256 of the traced image, "" without one."""
    try:
        trace_map = read_json(results / "traced" / workload / f"{probes}.cubin.map.json")
    except XtraceError:
        return ""
    return str((trace_map.get("output") or {}).get("sha256", ""))


def _samples(paths: Sequence[Path]) -> Iterable[dict[str, Any]]:
    for path in paths:
        for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
            try:
                yield read_json(file)
            except XtraceError:  # the overhead table says so
                continue


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="prediction_table", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--overhead", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--raw", nargs="*", default=[], type=Path, help="raw sample files, or folders of them")
    given = parser.parse_args(arguments)
    overhead = read_table(given.overhead, OVERHEAD)
    cells = {(r["workload"], r["probes"]) for r in overhead.to_dict("records") if r["tracer"] == "xtrace"}
    plans = {cell: kernel_plan(given.results, *cell) for cell in sorted(cells)}
    traced = {cell: traced_image(given.results, *cell) for cell in sorted(cells)}
    write_table(given.out, rows(overhead, plans, traced, _samples(given.raw)), COLUMNS)


if __name__ == "__main__":
    run(main)
