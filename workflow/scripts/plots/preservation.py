"""Preservation bars: one panel a workload, one group of bars a tracer, one bar a level, sites under each group."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from workflow.scripts.plots.style import LEVEL_COLOURS, placeholder, short
from workflow.scripts.preservation_table import aggregate

__all__ = ["COLUMNS", "draw"]

LEVELS = tuple(LEVEL_COLOURS)
COLUMNS = ("workload", "kernel", "tracer", "probes", "status", "reason", "sites", "instructions", *LEVELS)
ORDER = ("xtrace", "proton", "proton-global", "ptx-probe", "ptx-probe-charitable")


def draw(table: pd.DataFrame, probes: str) -> Figure:
    """The figure for one probe set. Workloads without any row of it do not get a panel."""
    cells = [c for c in aggregate(table) if c["probes"] == probes]
    workloads = list(dict.fromkeys(c["workload"] for c in cells))
    if not workloads:
        figure, ax = plt.subplots(figsize=(6, 2))
        placeholder(ax, f"no preservation results for the probe set {probes!r}")
        return figure
    columns = min(len(workloads), 3)
    lines = -(-len(workloads) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(4.3 * columns, 2.75 * lines + 0.5), squeeze=False, sharey=True, layout="constrained"
    )
    for ax, workload in zip(axes.flat, workloads, strict=False):
        _panel(ax, workload, [c for c in cells if c["workload"] == workload])
    for ax in axes.flat[len(workloads) :]:
        ax.set_visible(False)
    for ax in axes[:, 0]:
        ax.set_ylabel("instructions preserved (%)")
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in LEVEL_COLOURS.values()]
    figure.legend(handles, LEVELS, ncols=len(LEVELS), loc="outside lower center", frameon=False)
    figure.suptitle(f"Original instructions preserved, probe set {probes}", fontsize=11)
    return figure


def _panel(ax: Axes, workload: str, cells: list[dict[str, Any]]) -> None:
    cells = sorted(cells, key=lambda c: ORDER.index(c["tracer"]) if c["tracer"] in ORDER else len(ORDER))
    width = 0.8 / len(LEVELS)
    labels = []
    for position, cell in enumerate(cells):
        if cell["status"] != "ok":
            ax.text(
                position,
                50,
                _wrap(f"{cell['status']}: {cell['reason']}"),
                ha="center",
                va="center",
                fontsize=6.5,
                color="#444444",
            )
            labels.append(f"{cell['tracer']}\n{cell['status']}")
            continue
        for i, level in enumerate(LEVELS):
            share = 100 * cell[level]
            x = position + (i - (len(LEVELS) - 1) / 2) * width
            ax.bar(x, share, width * 0.92, color=LEVEL_COLOURS[level], linewidth=0)
            ax.text(x, share + 1.5, _share(cell[level]), rotation=90, ha="center", va="bottom", fontsize=6.5)
        sites = "sites unknown" if cell["sites"] is None else f"{cell['sites']} sites"
        labels.append(f"{cell['tracer']}\n{sites}")
    kernels = max((c.get("kernels", 1) for c in cells), default=1)
    ax.set_title(short(workload) + (f" ({kernels} kernels)" if kernels > 1 else ""))
    ax.set_xticks(np.arange(len(cells)), labels)
    ax.set_xlim(-0.55, max(len(cells) - 0.45, 0.55))
    ax.set_ylim(0, 125)
    ax.set_yticks([0, 25, 50, 75, 100])
    ax.grid(axis="x", visible=False)


def _share(share: float) -> str:
    """Never "100" for something that is not whole."""
    return "100" if share == 1 else f"{min(100 * share, 99.9):.1f}"


def _wrap(text: str, width: int = 22, lines: int = 6) -> str:
    out, line = [], ""
    for word in text.split():
        if len(line) + len(word) + 1 > width and line:
            out.append(line)
            line = ""
        line = f"{line} {word}".strip()
    out.append(line)
    return "\n".join(out[:lines]) + (" ..." if len(out) > lines else "")
