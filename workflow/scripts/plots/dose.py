"""Dose-response: overhead against records, one panel a workload, with a straight line fitted through all probe sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from workflow.scripts.dose_table import COLUMNS, FIT_COLUMNS, GROUP
from workflow.scripts.plots import panels
from workflow.scripts.plots.style import SMALL, clip, missing_page, short, tracer_colour, tracer_marker
from workflow.scripts.values import number, places

__all__ = ["COLUMNS", "FIT_COLUMNS", "draw"]


def draw(table: pd.DataFrame, fits: pd.DataFrame) -> list[Figure]:
    """The pages: for each workload overhead against records per warp; the label of a point is its probe set.

    ``table`` and ``fits`` are ``results/dose.csv`` and ``results/dose_fit.csv``.
    """
    if table.empty:
        return missing_page("no dose: no tracer counted its records in any measured cell")
    lines = dict(list(fits.groupby(list(GROUP))))
    shown = list(dict.fromkeys(table["tracer"]))
    return panels.paint(
        [group.to_dict("records") for _, group in table.assign(place=places(table)).groupby("place", sort=True)],
        lambda ax, rows: _panel(ax, rows, lines),
        title="Dose and response",
        names=lambda rows: short(rows[0]["place"]),
        xlabel="records per warp (in brackets: per iteration of the busiest loop)",
        ylabel="overhead (%)",
        handles=[Line2D([], [], color=tracer_colour(t), marker=tracer_marker(t), markersize=4.5) for t in shown],
        labels=[f"{t}: figure, 95 % interval, linear fit with band" for t in shown],
        lines=4,
        height=1.5,
        legend_columns=1,
    )


def _panel(ax: Axes, rows: Sequence[Mapping[str, Any]], lines: Mapping[tuple[str, ...], pd.DataFrame]) -> None:
    reasons = []
    for tracer in dict.fromkeys(r["tracer"] for r in rows):
        own = [r for r in rows if r["tracer"] == tracer]
        points = [p for r in own if (p := _point(r)) is not None]
        for x, y, low, high, label in points:
            if low is not None and high is not None:
                ax.plot([x, x], [low, high], color=tracer_colour(tracer), linewidth=1.4)
            ax.plot([x], [y], marker=tracer_marker(tracer), color=tracer_colour(tracer), markersize=4.5, zorder=4)
            last = x == max(p[0] for p in points) and len(points) > 1
            side = {"xytext": (-4, 3), "ha": "right", "va": "bottom"} if last else {"xytext": (4, -3), "va": "top"}
            ax.annotate(label, (x, y), textcoords="offset points", fontsize=SMALL, color="#333333", zorder=5, **side)
        for key in dict.fromkeys(tuple(r[k] for k in GROUP) for r in own):
            if key in lines:
                _fit(ax, lines[key], tracer)
        reasons += [str(r["note"]) for r in own if _point(r) is None]
    ax.axhline(0, color="#333333", linewidth=0.8)
    ax.margins(x=0.04, y=0.22)
    if ax.lines[:-1]:
        ax.set_xlim(0, ax.get_xlim()[1] * 1.05)
        ax.locator_params(nbins=4)
    else:
        ax.set_xticks([])
        panels.note(ax, "\n".join(clip(r, 24) for r in dict.fromkeys(reasons)) or "no figure")


def _point(row: Mapping[str, Any]) -> tuple[float, float, float | None, float | None, str] | None:
    x, y = number(row["records_per_warp"]), number(row["overhead_percent"])
    if x is None or y is None:
        return None
    per_iteration = number(row["records_per_iteration"])
    label = str(row["probes"]) + (f" ({per_iteration:g})" if per_iteration else "")
    return x, y, number(row["low_percent"]), number(row["high_percent"]), label


def _fit(ax: Axes, line: pd.DataFrame, tracer: str) -> None:
    x, middle, low, high = (pd.to_numeric(line[k]) for k in ("dose", "fit_percent", "fit_low", "fit_high"))
    ax.plot(x, middle, color=tracer_colour(tracer), linewidth=1.0, linestyle="--")
    if low.notna().all() and high.notna().all():
        ax.fill_between(x, low, high, color=tracer_colour(tracer), alpha=0.15, linewidth=0)
