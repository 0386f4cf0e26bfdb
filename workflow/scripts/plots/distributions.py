"""What lies behind each overhead figure: the spread of single blocks (ECDF) and of process replicates (strip)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from workflow.scripts.plots import panels
from workflow.scripts.plots.overhead import axis_words, cell_label, percent_axis
from workflow.scripts.plots.rows import Row, missing, pages, paint
from workflow.scripts.plots.style import (
    CONTROL,
    SMALL,
    legend,
    missing_page,
    short,
    tracer_colour,
    tracer_marker,
    tracer_name,
    tracer_order,
)
from workflow.scripts.report_view import no_figure
from workflow.scripts.values import number, places

__all__ = ["BLOCKS", "REPLICATES", "ecdf", "strip"]

BLOCKS = ("workload", "tracer", "probes", "process", "kind", "log_ratio_percent", "voided")
CELL = ("place", "tracer", "probes")
REPLICATES = ("workload", "tracer", "probes", "process", "overhead_percent", "control_percent", "problem")
STYLES = {"xtrace": "-", "proton": "--", "proton-global": (0, (1, 1)), "ptx-probe": "-.", "ptx-probe-charitable": ":"}
TAIL = 0.01  # share of blocks on either side that may lie outside a panel


def _placed(table: pd.DataFrame, cells: pd.DataFrame | None) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """Both tables with a column of names that tell workloads, devices and shapes apart, equally in both."""
    both = pd.concat([t for t in (table, cells) if t is not None], ignore_index=True)
    names = places(both)
    first = table.assign(place=names.iloc[: len(table)].to_numpy())
    return first, None if cells is None else cells.assign(place=names.iloc[len(table) :].to_numpy())


def ecdf(table: pd.DataFrame, cells: pd.DataFrame | None = None) -> list[Figure]:
    """One panel a workload and probe set, one curve a tracer; the control blocks of all its cells in grey.

    ``cells``: the overhead table, so that cells without any block are named too, in panels that have other cells.
    """
    if table.empty:
        return missing_page("no blocks: nothing was measured and nothing is recorded")
    table, cells = _placed(table, cells)
    blocks = table.assign(value=pd.to_numeric(table["log_ratio_percent"], errors="coerce"))
    kept = blocks[(blocks["voided"] != "True") & np.isfinite(blocks["value"])]
    tracers = sorted(set(table["tracer"]), key=tracer_order)
    expected = pd.concat([t[list(CELL)] for t in (table, cells) if t is not None]).drop_duplicates()
    every = list(expected.groupby(["place", "probes"]))
    good = dict(list(kept.groupby(["place", "probes"])))
    return panels.paint(
        [(key, sorted(set(group["tracer"]), key=tracer_order), good.get(key)) for key, group in every],
        _curves,
        title="Blocks: distribution of log ratios",
        names=lambda p: f"{short(p[0][0])}, {p[0][1]}",
        remarks=_absent,
        xlabel="100 ln(traced / original) of a block",
        ylabel="share of blocks",
        handles=[
            *(Line2D([], [], color=tracer_colour(t), linestyle=STYLES.get(t, "-"), linewidth=1.6) for t in tracers),
            Line2D([], [], color=CONTROL, linewidth=1.0),
        ],
        labels=[*tracers, "A/A' control"],
        lines=4,
    )


def _absent(panel: tuple[tuple[str, str], list[str], pd.DataFrame | None]) -> str:
    _, tracers, blocks = panel
    have = set() if blocks is None else set(blocks[blocks["kind"] == "AB"]["tracer"])
    lost = [t for t in tracers if t not in have]
    return f"no block: {', '.join(map(tracer_name, lost))}" if lost else ""


def _curves(ax: Axes, panel: tuple[tuple[str, str], list[str], pd.DataFrame | None]) -> None:
    _, tracers, blocks = panel
    if blocks is not None:
        control = blocks[blocks["kind"] == "AA"]["value"]
        if len(control):
            ax.ecdf(control, color=CONTROL, linewidth=1.0)
        for tracer in tracers:
            values = blocks[(blocks["tracer"] == tracer) & (blocks["kind"] == "AB")]["value"]
            if len(values):
                look = {"color": tracer_colour(tracer), "linestyle": STYLES.get(tracer, "-"), "linewidth": 1.6}
                ax.ecdf(values, **look)
        low, high = np.quantile(blocks["value"], [TAIL, 1 - TAIL])
        room = max(0.1 * (high - low), 0.2)
        ax.set_xlim(min(low, 0) - room, max(high, 0) + room)
    else:
        panels.note(ax, "no usable block")
    ax.axvline(0, color="#333333", linewidth=0.8)
    ax.set_ylim(0, 1)
    ax.set_yticks([0, 0.5, 1], ["0", "½", "1"])
    ax.set(xlabel="", ylabel="")
    ax.locator_params(axis="x", nbins=4)


def strip(table: pd.DataFrame, cells: pd.DataFrame | None = None) -> list[Figure]:
    """One row a cell, one dot a process: the estimate of its A/B blocks, and below it that of its A/A' blocks.

    ``cells``: the overhead table, so that cells without any replicate are rows too.
    """
    if table.empty and (cells is None or cells.empty):
        return missing_page("no process replicates: nothing was measured and nothing is recorded")
    table, cells = _placed(table, cells)
    rows = []
    have = set(table[list(CELL)].itertuples(index=False, name=None))
    for (place, tracer, probes), group in table.groupby(list(CELL)):
        records = group.to_dict("records")
        about = {"tracer": tracer, "all": records}
        rows.append(Row(place, cell_label(tracer, probes), about, tracer_colour(tracer)))
    for record in [] if cells is None else cells.to_dict("records"):
        if tuple(record[k] for k in CELL) not in have:
            about = {"tracer": record["tracer"], "all": [], "reason": no_figure(record)}
            label = cell_label(record["tracer"], record["probes"])
            rows.append(Row(record["place"], label, about, tracer_colour(record["tracer"])))
    rows.sort(key=lambda r: (r.heading, tracer_order(r.record["tracer"]), r.label))
    every = [*table["overhead_percent"], *table["control_percent"]]
    known = [v for text in every if (v := number(text)) is not None]
    limits = min([-0.5, *known]), max([1.0, *known])
    sheets = pages(rows)
    figures = []
    for count, sheet in enumerate(sheets, 1):
        page = f"{count} / {len(sheets)}" if len(sheets) > 1 else ""
        figure, ax = paint(
            sheet,
            _dots,
            title="Process replicates, one dot each",
            xlabel=axis_words("estimate of one process", *limits),
            side=0.62,
            foot=0.4,
            page=page,
        )
        percent_axis(ax, *limits)
        handles = [
            Line2D([], [], marker="o", linestyle="none", color="#333333", markersize=4.5),
            Line2D([], [], marker="D", linestyle="none", color=CONTROL, markerfacecolor="white", markersize=3.2),
        ]
        legend(figure, handles, ["A/B: overhead", "A/A': control"], 2, 0.3)
        figures.append(figure)
    return figures


def _dots(ax: Axes, y: float, row: Row) -> None:
    tracer, records = row.record["tracer"], row.record["all"]
    overhead = _numbers(records, "overhead_percent")
    control = _numbers(records, "control_percent")
    if not overhead:
        problems = [str(r["problem"]) for r in records if r["problem"]]
        missing(ax, y, row.record.get("reason") or "; ".join(dict.fromkeys(problems)) or "no process gave an estimate")
        return
    look: dict[str, Any] = {"linestyle": "none", "alpha": 0.8}
    grey = {"marker": "D", "color": CONTROL, "markerfacecolor": "white", "markersize": 2.8}
    ax.plot(control, y + np.linspace(0.12, 0.36, len(control)), **grey, **look)
    mark = {"marker": tracer_marker(tracer), "color": tracer_colour(tracer), "markersize": 3.6}
    ax.plot(overhead, y + np.linspace(-0.36, -0.02, len(overhead)), **mark, **look)
    lost = len(records) - len(overhead)
    text = f"S={len(overhead)}" + (f" −{lost}" if lost else "")
    ax.text(1.02, y, text, transform=ax.get_yaxis_transform(), va="center", fontsize=SMALL)


def _numbers(records: Sequence[dict[str, Any]], name: str) -> list[float]:
    return [v for r in records if (v := number(r[name])) is not None]
