"""One look for all figures: colour-blind safe, readable in print, reproducible bytes."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = ["LEVEL_COLOURS", "TRACERS", "placeholder", "save", "setup", "short", "tracer_colour"]

# Okabe and Ito: distinguishable with every common colour-vision deficiency and in grey.
TRACERS = {
    "xtrace": "#0072B2",
    "proton": "#D55E00",
    "proton-global": "#E69F00",
    "ptx-probe": "#009E73",
    "ptx-probe-charitable": "#56B4E9",
}
OTHER = "#7F7F7F"
LEVEL_COLOURS = dict(
    zip(("strict", "relocated", "operands", "form", "opcode"), sns.color_palette("cividis", 5).as_hex(), strict=True)
)
SUFFIXES = (".svg", ".png")


def setup() -> None:
    """Apply the theme. Call before making a figure."""
    sns.set_theme(
        context="paper",
        style="whitegrid",
        font="DejaVu Sans",
        rc={
            "svg.fonttype": "path",  # looks the same on machines without our font
            "svg.hashsalt": "xtrace",  # identical input gives identical files
            "axes.titlesize": 10,
            "axes.titleweight": "bold",
            "axes.labelsize": 9,
            "xtick.labelsize": 8,
            "ytick.labelsize": 8,
            "legend.fontsize": 8,
            "figure.dpi": 110,
            "savefig.dpi": 160,
            "axes.spines.top": False,
            "axes.spines.right": False,
        },
    )


def tracer_colour(tracer: str) -> str:
    return TRACERS.get(tracer, OTHER)


def short(workload: str) -> str:
    """A workload's name for an axis: words that all of them share add nothing."""
    return workload.replace("_triton", "").replace("_", " ").replace("hd128 ", "")


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write ``stem.svg`` and ``stem.png`` and close the figure."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    written = []
    for suffix in SUFFIXES:
        path = stem.with_name(stem.name + suffix)
        metadata = {"Date": None, "Creator": "xtrace"} if suffix == ".svg" else {"Software": "xtrace"}
        figure.savefig(path, bbox_inches="tight", metadata=metadata)
        written.append(path)
    plt.close(figure)
    return written


def placeholder(ax: Axes, words: str) -> None:
    """Say in the middle of an otherwise empty panel why there is nothing to see."""
    ax.set_axis_off()
    ax.text(
        0.5,
        0.5,
        words,
        ha="center",
        va="center",
        wrap=True,
        fontsize=9,
        color="#444444",
        transform=ax.transAxes,
        bbox={"boxstyle": "round,pad=0.6", "facecolor": "#F2F2F2", "edgecolor": "#BBBBBB"},
    )
