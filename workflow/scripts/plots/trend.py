"""Trend: overhead of Xtrace over the revisions that were measured, one panel a workload, one line a probe set."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from workflow.scripts.plots import panels
from workflow.scripts.plots.style import SERIES_MARKERS, missing_page, short
from workflow.scripts.values import number, places

__all__ = ["COLUMNS", "draw"]

COLUMNS = ("workload", "tracer", "probes", "revision", "measured_at", "overhead_percent", "low_percent", "high_percent")
# 7 colours and 8 markers have no common factor: two probe sets look the same only if there are more than 56.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#333333")
DASHES = ("-", "--", "-.", ":")
REVISIONS = 8  # newest revisions shown


def draw(table: pd.DataFrame, tracer: str = "xtrace") -> list[Figure]:
    """The pages. Revisions stand in the order in which they were first measured, the newest eight."""
    own = table[table["tracer"] == tracer]
    own = own.assign(place=places(own))
    if own.empty:
        return missing_page(f"no measured cell of {tracer}, now or earlier")
    order = list(own.sort_values("measured_at", kind="stable")["revision"].drop_duplicates())[-REVISIONS:]
    own = own[own["revision"].isin(order)]
    sets = sorted(set(own["probes"]))
    looks = dict(zip(sets, zip(*map(cycle, (COLOURS, SERIES_MARKERS, DASHES)), strict=False), strict=False))
    columns = {revision: i for i, revision in enumerate(order)}
    count = "a single revision: no trend yet" if len(order) == 1 else f"{len(order)} revisions"
    return panels.paint(
        [group for _, group in own.groupby("place", sort=True)],
        lambda ax, group: _panel(ax, group, columns, looks),
        title=f"Overhead, {count}",
        names=lambda group: short(group.iloc[0]["place"]),
        xlabel="revision of Xtrace, oldest measurement first",
        ylabel="overhead (%)",
        handles=[Line2D([], [], color=c, marker=m, linestyle=s, markersize=4.5) for c, m, s in looks.values()],
        labels=[f"probe set {s}" for s in sets],
        ticks=0.52,
        lines=4,
    )


def _panel(ax: Axes, group: pd.DataFrame, places: Mapping[str, int], looks: Mapping[str, Any]) -> None:
    empty = True
    for shift, (probes, (colour, marker, style)) in enumerate(looks.items()):
        rows = group[group["probes"] == probes].to_dict("records")
        points = sorted(
            (places[r["revision"]] + 0.09 * (shift - (len(looks) - 1) / 2), v, r)
            for r in rows
            if (v := number(r["overhead_percent"])) is not None
        )
        if not points:
            continue
        empty = False
        ax.plot([x for x, *_ in points], [v for _, v, _ in points], color=colour, linestyle=style, linewidth=1.0)
        for x, value, row in points:
            low, high = number(row["low_percent"]), number(row["high_percent"])
            if low is not None and high is not None:
                ax.plot([x, x], [low, high], color=colour, linewidth=1.5)
            ax.plot([x], [value], marker=marker, color=colour, markersize=4.5)
    ax.axhline(0, color="#333333", linewidth=0.8)
    ax.set_xlim(-0.5, len(places) - 0.5)
    if len(places) <= 4:
        ax.set_xticks(range(len(places)), list(places), rotation=20)
    else:
        ax.set_xticks(range(len(places)), [p[:7] for p in places], rotation=60)
    ax.grid(axis="x", visible=False)
    ax.locator_params(axis="y", nbins=4)
    if empty:
        panels.note(ax, "no figure of any\nrevision")
