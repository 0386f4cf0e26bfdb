"""Ablation: overhead from step to step as a waterfall, the controls below it, one panel a workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from workflow.scripts.plots import panels
from workflow.scripts.plots.style import CONTROL, SMALL, clip, missing_page, short
from workflow.scripts.values import number

__all__ = ["COLUMNS", "draw"]

COLUMNS = (
    *("workload", "arm", "kind", "overhead_percent", "low_percent", "high_percent"),
    *("gain_percent", "gain_low_percent", "gain_high_percent", "note"),
)
FIRST, FASTER, SLOWER = "#DDDDDD", "#56B4E9", "#E69F00"
HATCH = "////"  # of a step that costs time: colour is not all that tells it
NAMES = {"AA": "original", "nops": "NOPs"}
ROOM = 1.75  # width of a panel over that of its bars: room for the gains


def draw(table: pd.DataFrame) -> list[Figure]:
    """The pages. A bar reaches from the overhead of the step before to that of the step; a dot has its interval."""
    if table.empty:
        return missing_page("no workload of the ablation is part of this run")
    handles = [
        Patch(facecolor=FASTER, edgecolor="#555555"),
        Patch(facecolor=SLOWER, edgecolor="#555555", hatch=HATCH),
        Line2D([], [], color="black", marker="o", markersize=4),
        Line2D([], [], color=CONTROL, marker="s", markersize=4),
    ]
    return panels.paint(
        [group.to_dict("records") for _, group in table.groupby("workload", sort=False)],
        _panel,
        title="Ablation: what each step is worth",
        names=lambda rows: short(rows[0]["workload"]),
        remarks=_total,
        xlabel="overhead (%); right: gain of the step (%) with interval",
        ylabel="",
        handles=handles,
        labels=["step gains", "step costs", "step, 95 % interval", "control, 95 % interval"],
        columns=1,
        lines=3,
        height=2.1,
        legend_columns=2,
    )


def _total(rows: list[Mapping[str, Any]]) -> str:
    words = [_gain(row) for row in rows if row["kind"] == "total"]
    return f"all steps together gain {words[0]} %" if words and words[0] else ""


def _panel(ax: Axes, all_rows: list[Mapping[str, Any]]) -> None:
    rows = [row for row in all_rows if row["kind"] != "total"]
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_yticks(range(len(rows)), [NAMES.get(row["arm"], row["arm"]) for row in rows])
    ax.grid(axis="y", visible=False)
    if all(number(row["overhead_percent"]) is None for row in rows):
        ax.set_xticks([])
        panels.note(ax, clip(rows[0]["note"], 50))
        return
    before, edges = 0.0, [0.0]
    for y, row in enumerate(rows):
        value = number(row["overhead_percent"])
        if value is None:
            ax.annotate(clip(row["note"], 50), (0, y), xytext=(4, 0), textcoords="offset points", **_TEXT)
            continue
        step = row["kind"] == "step"
        low, high = number(row["low_percent"]), number(row["high_percent"])
        colour = "black" if step else CONTROL
        if step:
            slower = value > before and y > 0
            look = {"facecolor": FIRST if not y else SLOWER if slower else FASTER, "hatch": HATCH if slower else ""}
            ax.barh(y, value - before, left=before, height=0.62, edgecolor="#555555", linewidth=0.6, **look)
            before = value
        if low is not None and high is not None:
            ax.plot([low, high], [y, y], color=colour, linewidth=1.4, zorder=4)
        ax.plot([value], [y], marker="o" if step else "s", color=colour, markersize=4, zorder=5)
        edges += [value, *(v for v in (low, high) if v is not None)]
    least, most = min(edges), max(*edges, 0.1)
    width = most - least
    for y, row in enumerate(rows):
        if words := _gain(row):
            ax.annotate(words, (most + 0.06 * width, y), **_TEXT)
    ax.axvline(0, color="#333333", linewidth=0.8)
    ax.set_xlim(least - 0.05 * width, least + ROOM * width)
    ax.locator_params(axis="x", nbins=6)


_TEXT: dict[str, Any] = {"fontsize": SMALL, "va": "center", "ha": "left", "color": "#333333"}


def _gain(row: Mapping[str, Any]) -> str:
    value, low, high = (number(row[f"gain_{k}percent"]) for k in ("", "low_", "high_"))
    if value is None:
        return ""
    return f"{value:+.2f}" + ("" if low is None or high is None else f" [{low:+.2f}, {high:+.2f}]")
