"""Preservation bars: one panel a workload, one group of bars a tracer, one bar a level, sites under each group."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from workflow.scripts.plots import panels
from workflow.scripts.plots.style import (
    LEVEL_COLOURS,
    LEVEL_HATCHES,
    MISSING_HATCH,
    SMALL,
    clip,
    missing_page,
    short,
    tracer_order,
)
from workflow.scripts.preservation_table import aggregate

__all__ = ["COLUMNS", "draw"]

LEVELS = tuple(LEVEL_COLOURS)
COLUMNS = ("workload", "kernel", "tracer", "probes", "status", "reason", "sites", "instructions", *LEVELS)
WRITTEN = 4  # tracers up to which every bar can carry its figure


def draw(table: pd.DataFrame, probes: str) -> list[Figure]:
    """The pages for one probe set. Workloads without any row of it do not get a panel."""
    cells = aggregate(table[table["probes"] == probes])
    workloads = list(dict.fromkeys(c["workload"] for c in cells))
    if not workloads:
        return missing_page(f"no preservation results for the probe set {probes!r}")
    look = {"edgecolor": "white", "linewidth": 0}
    return panels.paint(
        [[c for c in cells if c["workload"] == w] for w in workloads],
        _panel,
        title=clip(f"Instructions preserved, {probes}", 42),
        names=_name,
        xlabel="tracer, and its probe sites",
        ylabel="instructions preserved (%)",
        handles=[Patch(facecolor=LEVEL_COLOURS[n], hatch=LEVEL_HATCHES[n], **look) for n in LEVELS],
        labels=LEVELS,
        columns=1,
        lines=4,
        height=1.35,
        ticks=0.36 if len({c["tracer"] for c in cells}) <= WRITTEN else 0.62,
        legend_columns=5,
    )


def _name(cells: list[dict[str, Any]]) -> str:
    kernels = max((c.get("kernels", 1) for c in cells), default=1)
    return short(cells[0]["workload"]) + (f" ({kernels} kernels)" if kernels > 1 else "")


def _panel(ax: Axes, cells: list[dict[str, Any]]) -> None:
    cells = sorted(cells, key=lambda c: tracer_order(c["tracer"]))
    width = 0.84 / len(LEVELS)
    labels = []
    for position, cell in enumerate(cells):
        if cell["status"] != "ok":
            _missing(ax, position, cell, len(cells))
            labels.append(f"{_tracer(cell['tracer'], len(cells))}\n{cell['status']}")
            continue
        for i, level in enumerate(LEVELS):
            share = 100 * cell[level]
            x = position + (i - (len(LEVELS) - 1) / 2) * width
            look = {"color": LEVEL_COLOURS[level], "hatch": LEVEL_HATCHES[level], "edgecolor": "white"}
            ax.bar(x, share, width * 0.92, linewidth=0, **look)
            if len(cells) <= WRITTEN:
                ax.text(x, share + 2, _share(cell[level]), rotation=90, ha="center", va="bottom", fontsize=SMALL)
        sites = "sites unknown" if cell["sites"] is None else f"{cell['sites']} sites"
        labels.append(f"{_tracer(cell['tracer'], len(cells))}\n{sites}")
    ax.set_xticks(np.arange(len(cells)), labels)
    ax.tick_params(axis="x", length=0, pad=2)
    ax.set_xlim(-0.5, max(len(cells) - 0.5, 0.5))
    ax.set_ylim(0, 140 if len(cells) <= WRITTEN else 105)
    ax.set_yticks([0, 25, 50, 75, 100])
    ax.grid(axis="x", visible=False)


def _tracer(name: str, cells: int) -> str:
    return name if cells <= WRITTEN else textwrap.fill(name, 10)


def _missing(ax: Axes, position: int, cell: dict[str, Any], cells: int) -> None:
    """A hatched column in place of the bars, with the reason."""
    box = {"facecolor": "#F3F3F3", "edgecolor": "#C8C8C8", "hatch": MISSING_HATCH, "linewidth": 0}
    ax.add_patch(Rectangle((position - 0.42, 0), 0.84, 100, zorder=0, gid="missing", **box))
    width = max(int(46 / cells), 8)
    words = clip(cell["reason"] or "no reason given", 500)
    reason = "\n".join(textwrap.wrap(words, width, max_lines=5, placeholder="\N{HORIZONTAL ELLIPSIS}"))
    plain = {"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.9}
    ax.text(position, 50, reason, ha="center", va="center", fontsize=SMALL, style="italic", color="#444444", bbox=plain)


def _share(share: float) -> str:
    """Never "100" for something that is not whole."""
    return "100" if share == 1 else f"{min(100 * share, 99.9):.1f}"
