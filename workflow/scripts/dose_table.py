"""results/dose.csv: overhead against records, one row a measured cell; results/dose_fit.csv: the lines through them.

    python -m workflow.scripts.dose_table --overhead results/overhead.csv --replicates results/replicates.csv
        --out results/dose.csv --fit results/dose_fit.csv

A line is fitted in each process replicate through the cells of one workload, tracer and device; slope, intercept and
band are the mean over processes with Student's interval. One dose gives no line, one process no interval.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workflow.scripts.common import read_table, run, write_table
from workflow.scripts.values import number, rounded
from xtrace.stats.dose import dose_response
from xtrace.stats.intervals import Interval

GROUP = ("workload", "tracer", "device", "shape")
OVERHEAD = (
    *(*GROUP, "probes", "source", "overhead_percent", "low_percent", "high_percent"),
    *("records_per_warp", "records_per_iteration", "note", "problems"),
)
REPLICATES = (*GROUP, "probes", "process", "overhead_percent")
POINTS = ("probes", "records_per_warp", "records_per_iteration", "overhead_percent", "low_percent", "high_percent")
COLUMNS = (*GROUP, *POINTS, "note")
LINE = ("slope_percent", "slope_low", "slope_high", "intercept_percent", "r_squared", "worst_residual_percent")
FIT_COLUMNS = (*GROUP, "processes", *LINE, "dose", "fit_percent", "fit_low", "fit_high")
STEPS = 25  # doses at which the band is written


def rows(overhead: pd.DataFrame, replicates: pd.DataFrame) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of both tables. A workload of which Xtrace has no counted dose keeps one row that says so."""
    points: list[dict[str, Any]] = []
    lines: list[dict[str, Any]] = []
    replicates = replicates.assign(value=pd.to_numeric(replicates["overhead_percent"], errors="coerce"))
    own = dict(list(replicates.groupby(list(GROUP))))
    for key, cells in overhead.groupby(list(GROUP), sort=True):
        names = dict(zip(GROUP, key, strict=True))
        records = cells.to_dict("records")
        good = [r for r in records if number(r["records_per_warp"]) and number(r["overhead_percent"]) is not None]
        points += [{**names, **{k: r[k] for k in POINTS}, "note": ""} for r in good]
        if key in own:
            lines += [{**names, **r} for r in fit({r["probes"]: float(r["records_per_warp"]) for r in good}, own[key])]
        if not good and names["tracer"] == "xtrace":
            reasons = dict.fromkeys(str(r["note"] or r["problems"] or "records were not counted") for r in records)
            points.append({**names, "note": "; ".join(reasons)})
    return points, lines


def fit(doses: Mapping[str, float], replicates: pd.DataFrame) -> list[dict[str, Any]]:
    """The line and its band at :data:`STEPS` doses, from the processes that measured all probe sets; [] without one.

    The interval of the line at a dose is the interval of the intercept when doses are counted from there.
    """
    if len(set(doses.values())) < 2:
        return []
    wide = replicates.pivot_table(index="process", columns="probes", values="value", aggfunc="mean")
    if not set(doses) <= set(wide.columns):
        return []
    wide = wide[list(doses)].dropna()
    if wide.empty:
        return []
    x = np.array(list(doses.values()))
    thetas = np.log1p(wide.to_numpy(dtype=float) / 100).tolist()
    line = dose_response(x.tolist(), thetas)
    low, high = _ends(line.slope_interval)
    about = {
        "processes": line.processes,
        "slope_percent": _figure(100 * line.slope),
        "slope_low": low,
        "slope_high": high,
        "intercept_percent": rounded(100 * line.intercept),
        "r_squared": rounded(line.r_squared),
        "worst_residual_percent": rounded(100 * line.worst_residual),
    }
    out = []
    for dose in np.linspace(0, x.max(), STEPS):
        at = dose_response((x - dose).tolist(), thetas)
        low, high = _ends(at.intercept_interval)
        place = {"dose": _figure(float(dose)), "fit_percent": rounded(100 * at.intercept)}
        out.append({**about, **place, "fit_low": low, "fit_high": high})
    return out


def _figure(value: float) -> float:
    return float(f"{value:.6g}")


def _ends(interval: Interval) -> tuple[float | None, float | None]:
    """In per cent; None for a side without a bound."""
    low, high = (_figure(100 * v) if math.isfinite(v) else None for v in (interval.low, interval.high))
    return low, high


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="dose_table", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--overhead", type=Path, required=True)
    parser.add_argument("--replicates", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--fit", type=Path, required=True)
    given = parser.parse_args(arguments)
    points, lines = rows(read_table(given.overhead, OVERHEAD), read_table(given.replicates, REPLICATES))
    write_table(given.out, points, COLUMNS)
    write_table(given.fit, lines, FIT_COLUMNS)


if __name__ == "__main__":
    run(main)
