"""Prediction and measurement: one point a cell, predicted added issue cycles of the hot loop against overhead."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from workflow.scripts.plots import panels
from workflow.scripts.plots.style import SERIES_MARKERS, SMALL, missing_page, short
from workflow.scripts.prediction_table import correlation
from workflow.scripts.values import number

__all__ = ["COLUMNS", "draw"]

COLUMNS = ("workload", "probes", "device", "predicted_percent", "overhead_percent", "low_percent", "high_percent")


def draw(table: pd.DataFrame) -> list[Figure]:
    """The pages, one panel a device; ``table`` is ``results/prediction.csv``."""
    points = _points(table)
    if points.empty:
        return missing_page("no cell has both a prediction and a measurement")
    workloads, probes = (list(dict.fromkeys(points[k])) for k in ("workload", "probes"))
    colours = dict(zip(workloads, sns.color_palette("colorblind", len(workloads)).as_hex(), strict=True))
    markers = dict(zip(probes, cycle(SERIES_MARKERS), strict=False))
    by_colour = [Line2D([], [], color=c, marker="o", linestyle="", markersize=5) for c in colours.values()]
    by_marker = [Line2D([], [], color="#555555", marker=m, linestyle="", markersize=5) for m in markers.values()]
    diagonal = Line2D([], [], color="#8A8A8A", linestyle="--", linewidth=1)
    return panels.paint(
        [group for _, group in points.groupby("device", sort=True)],
        lambda ax, group: _panel(ax, group, colours, markers),
        title="Predicted and measured cost",
        names=lambda group: str(group["device"].iloc[0]),
        remarks=lambda group: _remark(group, table),
        xlabel="predicted: added share of the hot loop's issue cycles (%)",
        ylabel="measured overhead (%)",
        handles=[*by_colour, *by_marker, diagonal],
        labels=[*map(short, colours), *(f"probe set {p}" for p in markers), "as much as predicted"],
        columns=1,
        lines=2,
        height=2.9,
        legend_columns=2,
    )


def _points(table: pd.DataFrame) -> pd.DataFrame:
    values = {name: table[name].map(number) for name in COLUMNS[3:]}
    shown = table.assign(**values)
    return shown[shown["predicted_percent"].notna() & shown["overhead_percent"].notna()]


def _remark(group: pd.DataFrame, table: pd.DataFrame) -> str:
    device = str(group["device"].iloc[0])
    without = int((table["device"].isin([device, ""])).sum()) - len(group)
    found = correlation(group)
    words = "no rank correlation" if found.rho is None else f"Spearman's rho {found.rho:.2f}"
    return f"{words}, n = {found.pairs}" + (f"; {without} cells not measured" if without else "")


def _panel(ax: Axes, group: pd.DataFrame, colours: Mapping[str, str], markers: Mapping[str, str]) -> None:
    rows: list[dict[str, Any]] = group.to_dict("records")
    most = max(max(r["predicted_percent"], r["high_percent"] or r["overhead_percent"]) for r in rows)
    top = max(r["high_percent"] or r["overhead_percent"] for r in rows)
    ax.plot([0, most], [0, most], color="#8A8A8A", linestyle="--", linewidth=1, zorder=1)
    for r in sorted(rows, key=lambda r: r["predicted_percent"]):
        x, y, colour = r["predicted_percent"], r["overhead_percent"], colours[r["workload"]]
        if pd.notna(r["low_percent"]) and pd.notna(r["high_percent"]):
            ax.plot([x, x], [r["low_percent"], r["high_percent"]], color=colour, linewidth=1.4, zorder=3)
        ax.plot([x], [y], marker=markers[r["probes"]], color=colour, markersize=5.5, markeredgecolor="white", zorder=4)
    ax.axhline(0, color="#333333", linewidth=0.8)
    ax.set_xlim(-0.03 * most, 1.06 * most)
    ax.set_ylim(min(-0.1 * top, *(r["low_percent"] or 0.0 for r in rows)), 1.15 * top)
    ax.annotate(
        "right of the line: cycles that\nthe kernel's own waits hide",
        (0.98, 0.98),
        xycoords="axes fraction",
        va="top",
        ha="right",
        fontsize=SMALL,
        color="#555555",
        style="italic",
    )
