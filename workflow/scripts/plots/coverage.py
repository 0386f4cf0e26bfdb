"""Site coverage: sites placed and refused, one bar a workload and probe set."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from workflow.scripts.plots.style import placeholder, short

__all__ = ["COLUMNS", "draw"]

COLUMNS = ("workload", "probes", "kernel", "requested", "placed", "refused")
PLACED, REFUSED = "#0072B2", "#D55E00"


def draw(table: pd.DataFrame) -> Figure:
    """Bars in per cent of the requested sites, the counts written out."""
    if table.empty:
        figure, ax = plt.subplots(figsize=(6, 2))
        placeholder(ax, "no plans: nothing was asked for")
        return figure
    counts = table.astype({"requested": int, "placed": int, "refused": int})
    cells = counts.groupby(["workload", "probes"], sort=False, as_index=False).agg(
        requested=("requested", "sum"),
        placed=("placed", "sum"),
        refused=("refused", "sum"),
        kernels=("kernel", "nunique"),
    )
    figure, ax = plt.subplots(figsize=(8, 0.9 + 0.3 * len(cells)), layout="constrained")
    labels = []
    for y, cell in enumerate(cells.to_dict("records")):
        total = max(cell["requested"], 1)
        ax.barh(y, 100 * cell["placed"] / total, color=PLACED, height=0.7)
        ax.barh(
            y, 100 * cell["refused"] / total, left=100 * cell["placed"] / total, color=REFUSED, hatch="//", height=0.7
        )
        text = f"{cell['placed']} of {cell['requested']}" if cell["requested"] else "no such site in this kernel"
        ax.text(101, y, text, va="center", fontsize=8)
        kernels = f", {cell['kernels']} kernels" if cell["kernels"] > 1 else ""
        labels.append(f"{short(cell['workload'])} / {cell['probes']}{kernels}")
    ax.set_yticks(range(len(labels)), labels)
    ax.set_ylim(len(labels) - 0.5, -0.5)
    ax.set_xlim(0, 100)
    ax.set_xlabel("requested sites (%)")
    ax.set_title("Probe sites placed and refused")
    ax.grid(axis="y", visible=False)
    handles = [plt.Rectangle((0, 0), 1, 1, color=PLACED), plt.Rectangle((0, 0), 1, 1, facecolor=REFUSED, hatch="//")]
    figure.legend(handles, ["placed", "refused"], ncols=2, loc="outside lower center", frameon=False)
    return figure
