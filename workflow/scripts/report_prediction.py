"""The table of predictions as the report shows it. Pure: a data frame in, plain text out."""

from __future__ import annotations

from typing import Any

import pandas as pd

from workflow.scripts.prediction_table import NOT_MEASURED, correlation
from workflow.scripts.values import number, places

__all__ = ["TITLES", "prediction"]

TITLES = {
    "place": "workload",
    "probes": "probes",
    "hot": "hot loop",
    "added": "added cycles",
    "own": "kernel's own",
    "predicted": "predicted (%)",
    "overhead": "measured (%)",
    "each": "B an iteration",
    "launch": "MB a launch",
    "rate": "GB/s",
    "note": "note",
}


def prediction(table: pd.DataFrame) -> dict[str, Any]:
    """Rows, and a sentence on how well predictions rank measurements."""
    rows: list[dict[str, Any]] = []
    names = list(places(table)) if len(table) else []
    for place, r in zip(names, table.to_dict("records"), strict=True):
        waits = number(r["wait_cycles"])
        row = {"place": place, "probes": r["probes"], "hot": r["hot"], "own": r["own_cycles"], "each": r["bytes"]}
        row["added"] = r["added_cycles"] + (f" ({waits:g} waits)" if waits else "")
        row["predicted"] = _figure(r["predicted_percent"], 1)
        row["overhead"] = _interval(r)
        size, rate = number(r["bytes_per_launch"]), number(r["bytes_per_second"])
        row["launch"] = NOT_MEASURED if size is None else f"{size / 1e6:.3g}"
        row["rate"] = NOT_MEASURED if rate is None else f"{rate / 1e9:.3g}"
        note = (r["note"], r["bytes_note"] if r["bytes_note"] != NOT_MEASURED else "")
        row["note"] = "; ".join(dict.fromkeys(filter(None, note)))
        rows.append(row | {"first": not rows or rows[-1]["place"] != place})
    return {"rows": rows, "columns": list(TITLES), "titles": list(TITLES.values()), "summary": _summary(table)}


def _summary(table: pd.DataFrame) -> str:
    found = [("all cells", correlation(table))]
    found += [(f"probe set {name}", correlation(group)) for name, group in table.groupby("probes", sort=False)]
    words = [f"{name} {'none' if c.rho is None else f'{c.rho:.2f}'} (n = {c.pairs})" for name, c in found if c.pairs]
    if not words:
        return "No cell has both a prediction and a measurement."
    return f"Spearman's rank correlation of predicted share and measured overhead: {', '.join(words)}."


def _figure(value: object, digits: int) -> str:
    found = number(value)
    return "" if found is None else f"{found:.{digits}f}"


def _interval(r: dict[str, Any]) -> str:
    value, low, high = (number(r[k]) for k in ("overhead_percent", "low_percent", "high_percent"))
    if value is None:
        return NOT_MEASURED
    return f"{value:+.2f}" + ("" if low is None or high is None else f" [{low:+.2f}, {high:+.2f}]")
