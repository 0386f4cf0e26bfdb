"""Architecture matrix: how far each tracer got on each architecture, from what this run's tables hold."""

from __future__ import annotations

import textwrap

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from workflow.scripts.plots.style import MISSING_HATCH, SMALL, WIDTH, legend, missing_page, tracer_order

__all__ = ["COLUMNS", "draw"]

COLUMNS = ("arch", "tracer", "state", "detail")
LOOKS = {
    "measured": ("#0072B2", "", "white"),
    "verified": ("#56B4E9", "", "black"),
    "built": ("#BFE3F5", "", "black"),
    "modelled": ("#E8F4FB", "----", "black"),
    "failed": ("#D55E00", "xxxx", "black"),
    "unsupported": ("#F3F3F3", MISSING_HATCH, "#444444"),
    "no data": ("#FFFFFF", "", "#444444"),
}
MEANING = {
    "measured": "measured: overhead too",
    "verified": "verified: every promise holds",
    "built": "built: traced images exist",
    "modelled": "modelled: nothing built here",
    "failed": "failed: a promise is broken",
    "unsupported": "unsupported",
    "no data": "no data here",
}


def draw(table: pd.DataFrame) -> list[Figure]:
    """One page: a field for each pair, with its state in words."""
    if table.empty:
        return missing_page("no architecture is known")
    archs = list(dict.fromkeys(table["arch"]))
    tracers = sorted(set(table["tracer"]), key=tracer_order)
    cells = {(r["arch"], r["tracer"]): r for r in table.to_dict("records")}
    used = [s for s in LOOKS if s in set(table["state"])]
    lines = -(-len(used) // 2)
    foot, step, top = 0.14 + 0.17 * lines, 0.38, 0.62
    height = top + foot + step * len(archs)
    figure = Figure(figsize=(WIDTH, height))
    left = 0.75
    ax = figure.add_axes((left / WIDTH, foot / height, 1 - (left + 0.1) / WIDTH, step * len(archs) / height))
    for y, arch in enumerate(archs):
        for x, tracer in enumerate(tracers):
            cell = cells.get((arch, tracer), {"state": "no data", "detail": ""})
            colour, hatch, ink = LOOKS.get(cell["state"], LOOKS["no data"])
            box = {"facecolor": colour, "hatch": hatch, "edgecolor": "#BBBBBB", "linewidth": 0.8}
            ax.add_patch(Rectangle((x + 0.02, y + 0.04), 0.96, 0.92, **box))
            plain = {"facecolor": colour, "edgecolor": "none", "pad": 1.0} if hatch else None
            words = cell["state"] + (f"\n{cell['detail']}" if cell["detail"] and len(tracers) <= 4 else "")
            if len(tracers) > 4:
                words = words.replace("unsupported", "unsup-\nported")
            ax.text(x + 0.5, y + 0.5, words, ha="center", va="center", fontsize=SMALL, color=ink, bbox=plain)
    ax.set_xlim(0, len(tracers))
    ax.set_ylim(len(archs), 0)
    names = [textwrap.fill(t, 12, break_on_hyphens=True) for t in tracers]
    ax.set_xticks([x + 0.5 for x in range(len(tracers))], names)
    ax.set_yticks([y + 0.5 for y in range(len(archs))], archs)
    ax.xaxis.tick_top()
    ax.tick_params(length=0, pad=2)
    ax.grid(visible=False)
    for spine in ax.spines.values():
        spine.set_visible(False)
    figure.text(0.02, 1 - 0.1 / height, "Architectures and tracers", fontsize=10, fontweight="bold", va="top")
    handles = [Patch(facecolor=LOOKS[s][0], hatch=LOOKS[s][1], edgecolor="#999999") for s in used]
    legend(figure, handles, [MEANING[s] for s in used], 2, foot - 0.08)
    return [figure]
