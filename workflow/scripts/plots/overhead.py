"""Overhead forest: one line a cell with its interval, the A/A' control under it, and cells that were not measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from workflow.scripts.plots.style import placeholder, short, tracer_colour

__all__ = ["COLUMNS", "draw"]

COLUMNS = (
    *("workload", "tracer", "probes", "source", "processes", "overhead_percent", "low_percent", "high_percent"),
    *("control_percent", "control_low_percent", "control_high_percent", "control_ok", "note", "problems"),
)
LINEAR = 1.0  # percent; the axis is linear up to here and logarithmic beyond
TICKS = (-10, -1, -0.5, 0, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def draw(table: pd.DataFrame) -> Figure:
    """One figure for all cells of ``results/overhead.csv``."""
    if table.empty:
        figure, ax = plt.subplots(figsize=(6, 2))
        placeholder(ax, "no overhead cells: nothing was measured and nothing is recorded")
        return figure
    rows = table.to_dict("records")
    figure, ax = plt.subplots(figsize=(9.5, 0.9 + 0.34 * len(rows)), layout="constrained")
    previous = None
    for y, row in enumerate(rows):
        if row["workload"] != previous and y:
            ax.axhline(y - 0.5, color="#CCCCCC", linewidth=0.8)
        previous = row["workload"]
        _line(ax, y, row)
    _axis(ax, rows)
    figure.legend(
        handles=[
            Line2D([], [], marker="o", color="#333333", label="overhead, 95 % t interval over processes"),
            Line2D(
                [], [], marker="D", markerfacecolor="white", color="#999999", label="A/A' control (same bytes twice)"
            ),
        ],
        loc="outside lower left",
        ncols=2,
        frameon=False,
    )
    sources = sorted({str(r["source"]) for r in rows} - {"not measured"}) or ["none"]
    ax.set_title(f"Overhead of a traced launch ({' and '.join(sources)} samples)")
    return figure


def _line(ax: Axes, y: float, row: Mapping[str, Any]) -> None:
    colour = tracer_colour(str(row["tracer"]))
    value = _number(row["overhead_percent"])
    side = {"transform": ax.get_yaxis_transform(), "va": "center", "fontsize": 7.5}
    if value is None:
        ax.text(
            1.01, y, _clip(f"not measured: {row['note'] or row['problems']}"), color="#777777", style="italic", **side
        )
        ax.axhspan(y - 0.5, y + 0.5, color="#F5F5F5", zorder=0)
        return
    low, high = _number(row["low_percent"]), _number(row["high_percent"])
    _interval(ax, y - 0.12, value, low, high, color=colour, marker="o", markersize=4.5, zorder=3)
    if (control := _number(row["control_percent"])) is not None:
        limits = _number(row["control_low_percent"]), _number(row["control_high_percent"])
        _interval(ax, y + 0.22, control, *limits, color="#999999", marker="D", markersize=3.2, markerfacecolor="white")
    text = f"{value:+.2f} %"
    text += "  (no interval)" if low is None else f"  [{low:+.2f}, {high:+.2f}]"
    text += f"  S={row['processes']}"
    ax.text(1.01, y - (0.12 if row["problems"] else 0), text, color="#222222", **side)
    if row["problems"]:
        ax.text(1.01, y + 0.25, _clip(f"doubtful: {row['problems']}"), color="#A00000", **(side | {"fontsize": 6.5}))


def _interval(ax: Axes, y: float, value: float, low: float | None, high: float | None, **look: Any) -> None:
    if low is not None and high is not None:
        ax.plot([low, high], [y, y], color=look["color"], linewidth=1.6, solid_capstyle="butt", zorder=2)
    ax.plot([value], [y], linestyle="none", **look)


def _axis(ax: Axes, rows: list[dict[str, Any]]) -> None:
    names = ("overhead_percent", "low_percent", "high_percent", "control_low_percent", "control_high_percent")
    values = [v for r in rows for n in names if (v := _number(r[n])) is not None]
    low, high = min([-LINEAR / 2, *values]), max([LINEAR, *values])
    if high > 4 * LINEAR or low < -4 * LINEAR:
        ax.set_xscale("symlog", linthresh=LINEAR, linscale=1)
        ax.set_xlim(low * 1.3, high * 1.3)
        ax.set_xticks([t for t in TICKS if low * 1.3 <= t <= high * 1.3], minor=False)
        ax.set_xlabel(f"overhead (%), linear to {LINEAR:g} %, logarithmic beyond")
    else:
        room = 0.08 * (high - low)
        ax.set_xlim(low - room, high + room)
        ax.set_xlabel("overhead (%)")
    ax.minorticks_off()
    ax.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    ax.axvline(0, color="#333333", linewidth=0.9)
    ax.set_yticks(range(len(rows)), [f"{short(str(r['workload']))}   {r['tracer']} / {r['probes']}" for r in rows])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.grid(axis="y", visible=False)
    for label, row in zip(ax.get_yticklabels(), rows, strict=True):
        label.set_color(tracer_colour(str(row["tracer"])))


def _number(value: object) -> float | None:
    """Tables are read as text: an empty field is no number."""
    return None if value in ("", None) else float(str(value))


def _clip(text: str, limit: int = 70) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."
