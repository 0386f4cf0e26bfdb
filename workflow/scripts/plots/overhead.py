"""Overhead forest: one row a cell with interval, control, budget and verdict; cells without a figure say why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from workflow.scripts.plots.rows import Row, missing, pages, paint
from workflow.scripts.plots.style import (
    CONTROL,
    SMALL,
    legend,
    missing_page,
    tracer_colour,
    tracer_marker,
    tracer_name,
    tracer_order,
)
from workflow.scripts.report_view import no_figure
from workflow.scripts.values import number, places

__all__ = ["COLUMNS", "axis_words", "cell_label", "draw", "percent_axis", "rows"]

COLUMNS = (
    *("workload", "tracer", "probes", "source", "processes", "overhead_percent", "low_percent", "high_percent"),
    *("control_percent", "control_low_percent", "control_high_percent", "control_ok", "note", "problems"),
)
NUMBERS = ("overhead_percent", "low_percent", "high_percent", "control_low_percent", "control_high_percent")
LINEAR = 1.0  # percent; the axis is linear up to here and logarithmic beyond
TICKS = (-100, -10, -1, 0, 1, 3, 10, 30, 100, 300, 1000, 10000)
VERDICTS = {"PASS": "pass", "FAIL": "FAIL", "INCONCLUSIVE": "open", "INVALID-ENV": "invalid"}


def draw(table: pd.DataFrame) -> list[Figure]:
    """Pages for all cells of ``results/overhead.csv``; ``budget_percent`` and ``verdict`` are shown where they are."""
    if table.empty:
        return missing_page("no overhead cells: nothing was measured and nothing is recorded")
    sheets = pages(rows(table))
    limits = _limits(table.to_dict("records"))
    sources = sorted(set(table["source"]) & {"measured", "recorded"}) or ["no"]
    figures = []
    for count, sheet in enumerate(sheets, 1):
        page = f"{count} / {len(sheets)}" if len(sheets) > 1 else ""
        figure, ax = paint(
            sheet,
            _line,
            title=f"Overhead ({' and '.join(sources)} samples)",
            xlabel=axis_words("overhead", *limits),
            side=1.7,
            foot=0.56,
            page=page,
        )
        percent_axis(ax, *limits)
        _legend(figure)
        figures.append(figure)
    return figures


def rows(table: pd.DataFrame) -> list[Row]:
    """One row a cell: workload as heading, Xtrace first."""
    records = table.assign(place=places(table)).to_dict("records")
    records.sort(key=lambda r: (r["place"], tracer_order(r["tracer"]), r["probes"]))
    return [Row(r["place"], cell_label(r["tracer"], r["probes"]), r, tracer_colour(r["tracer"])) for r in records]


def cell_label(tracer: str, probes: str) -> str:
    return f"{tracer_name(tracer)} {probes}"


def _line(ax: Axes, y: float, row: Row) -> None:
    record, tracer = row.record, str(row.record["tracer"])
    value = number(record["overhead_percent"])
    if value is None:
        missing(ax, y, no_figure(record))
        return
    colour, doubtful = tracer_colour(tracer), bool(record["problems"])
    low, high = number(record["low_percent"]), number(record["high_percent"])
    if (control := number(record["control_percent"])) is not None:
        ends = number(record["control_low_percent"]), number(record["control_high_percent"])
        _interval(ax, y + 0.24, control, ends, color=CONTROL, marker="D", markersize=2.8, markerfacecolor="white")
    _interval(
        *(ax, y - 0.1, value, (low, high)),
        color=colour,
        marker=tracer_marker(tracer),
        markersize=5,
        markerfacecolor="white" if doubtful else colour,
    )
    if (budget := number(record.get("budget_percent", ""))) is not None:
        ax.plot([budget, budget], [y - 0.45, y + 0.45], color="#111111", linewidth=1.4, linestyle=(0, (1.5, 0.8)))
    text = f"{value:+.2f}"
    text += " (no interval)" if low is None or high is None else f" [{low:.2f}, {high:.2f}]"
    verdict = str(record.get("verdict", "") or "")
    text += f" {VERDICTS.get(verdict, verdict)}" if verdict else " !" if doubtful else ""
    bold = {"fontweight": "bold"} if verdict == "FAIL" else {}
    ax.text(1.02, y, text, transform=ax.get_yaxis_transform(), va="center", fontsize=SMALL, color="#222222", **bold)


def _interval(ax: Axes, y: float, value: float, ends: tuple[float | None, float | None], **look: Any) -> None:
    low, high = ends
    if low is not None and high is not None:
        ax.plot([low, high], [y, y], color=look["color"], linewidth=1.6, solid_capstyle="butt", zorder=2)
    ax.plot([value], [y], linestyle="none", zorder=3, **look)


def _limits(records: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Of all cells, so that pages can be compared."""
    values = [v for r in records for n in (*NUMBERS, "budget_percent") if (v := number(r.get(n, ""))) is not None]
    return min([-LINEAR / 2, *values]), max([LINEAR, *values])


def _wide(low: float, high: float) -> bool:
    return high > 4 * LINEAR or low < -4 * LINEAR


def axis_words(what: str, low: float, high: float) -> str:
    """Label of an axis that :func:`percent_axis` sets up with the same limits."""
    return f"{what} (%)" + (f", linear to {LINEAR:g} %, then logarithmic" if _wide(low, high) else "")


def percent_axis(ax: Axes, low: float, high: float) -> None:
    """An x axis in per cent that shows small figures and large ones; 0 is marked."""
    if _wide(low, high):
        ax.set_xscale("symlog", linthresh=LINEAR, linscale=1)
        ax.set_xlim(low * 1.3, high * 1.3)
        fitting = [t for t in TICKS if low * 1.3 <= t <= high * 1.3]
        if len(fitting) > 7:
            fitting = [t for t in fitting if not str(t).startswith("3")]
        ax.set_xticks(fitting, minor=False)
    else:
        room = 0.08 * (high - low)
        ax.set_xlim(low - room, high + room)
    ax.minorticks_off()
    ax.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    ax.axvline(0, color="#333333", linewidth=0.9)


def _legend(figure: Figure) -> None:
    dot: dict[str, Any] = {"marker": "o", "color": "#333333", "markersize": 5}
    handles = [
        Line2D([], [], **dot),
        Line2D([], [], marker="D", markerfacecolor="white", color=CONTROL, markersize=3),
        Line2D([], [], **dot, markerfacecolor="white", linestyle="none"),
        Line2D([], [], color="#111111", linewidth=1.4, linestyle=(0, (1.5, 0.8))),
    ]
    legend(figure, handles, ["overhead, 95 % interval", "A/A' control", "doubtful (!)", "budget"], 2, 0.5)
