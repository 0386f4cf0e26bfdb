"""One look for all figures: colour-blind safe, readable in grey print and on a phone, reproducible bytes.

Every figure is one narrow column (:data:`WIDTH`): the report flows them side by side on a wide screen, one below the
other on a phone and in print, and no text is ever scaled below a readable size. What does not fit one page of that
column goes on further pages.
"""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from workflow.scripts.values import plain_reason
from xtrace.files import write_atomic

__all__ = [
    *("CONTROL", "HATCHES", "LEVEL_COLOURS", "LEVEL_HATCHES", "MARKERS", "MISSING_HATCH", "ROWS", "SERIES_MARKERS"),
    *("SMALL", "TRACERS", "WIDTH", "clip", "legend", "missing_page", "placeholder", "save", "setup", "short"),
    *("tracer_colour", "tracer_marker", "tracer_name", "tracer_order"),
]

WIDTH = 4.3  # inches: 413 CSS pixels, so that a phone shows the text at about nine tenths of its size
ROWS = 44  # rows of one page
SMALL = 8.0  # points: the smallest text of any figure

# Okabe and Ito: distinguishable with every common colour-vision deficiency and in grey. Shape says the same again.
TRACERS = {
    "xtrace": "#0072B2",
    "proton": "#D55E00",
    "proton-global": "#E69F00",
    "ptx-probe": "#009E73",
    "ptx-probe-charitable": "#56B4E9",
}
MARKERS = {"xtrace": "o", "proton": "s", "proton-global": "P", "ptx-probe": "^", "ptx-probe-charitable": "v"}
OTHER, OTHER_MARKER = "#7F7F7F", "X"
SERIES_MARKERS = "osD^vPX*"  # of what has no marker of its own, in turn
CONTROL = "#8A8A8A"
HATCHES = ("", "////", "----", "xxxx", "\\\\\\\\", "++++", "||||")  # lines: dots make drawings ten times as large
MISSING_HATCH = "////"
LEVEL_COLOURS = dict(
    zip(("strict", "relocated", "operands", "form", "opcode"), sns.color_palette("cividis", 5).as_hex(), strict=True)
)
LEVEL_HATCHES = dict(zip(LEVEL_COLOURS, ("", "////", "----", "\\\\\\\\", "xxxx"), strict=True))
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
            "axes.titlesize": 9.5,
            "axes.titleweight": "bold",
            "axes.labelsize": 9,
            "xtick.labelsize": SMALL,
            "ytick.labelsize": SMALL,
            "legend.fontsize": SMALL,
            "figure.titlesize": 10,
            "figure.titleweight": "bold",
            "hatch.linewidth": 0.6,
            "figure.dpi": 110,
            "savefig.dpi": 200,
            "axes.spines.top": False,
            "axes.spines.right": False,
        },
    )


def tracer_colour(tracer: str) -> str:
    return TRACERS.get(tracer, OTHER)


def tracer_marker(tracer: str) -> str:
    return MARKERS.get(tracer, OTHER_MARKER)


def tracer_name(tracer: str) -> str:
    """A tracer's name for a label with little room."""
    return tracer.replace("-charitable", " ch.")


def tracer_order(tracer: str) -> tuple[int, str]:
    """Sort key: Xtrace first, then the others as they are declared, then unknown ones by name."""
    names = list(TRACERS)
    return (names.index(tracer) if tracer in names else len(names), tracer)


def short(workload: str) -> str:
    """A workload's name for an axis: words that all of them share add nothing."""
    return workload.replace("_triton", "").replace("_", " ").replace("hd128 ", "")


def clip(text: str, limit: int) -> str:
    """One plain line of at most ``limit`` characters."""
    line = plain_reason(text)
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "\N{HORIZONTAL ELLIPSIS}"


def save(figures: Figure | Sequence[Figure], stem: Path, more: Path | None = None) -> list[Path]:
    """Write the first page as ``stem.svg`` and ``stem.png``, further pages as ``more/2.svg`` and so on.

    ``more`` is made anew, also when there is one page only: pages of an earlier run do not stay.
    """
    pages = [figures] if isinstance(figures, Figure) else list(figures)
    stem.parent.mkdir(parents=True, exist_ok=True)
    written = [_write(pages[0], stem.with_name(stem.name + suffix)) for suffix in SUFFIXES]
    if more is not None:
        shutil.rmtree(more, ignore_errors=True)
        more.mkdir(parents=True)
        written += [_write(page, more / f"{count}.svg") for count, page in enumerate(pages[1:], 2)]
    return written


def _write(figure: Figure, path: Path) -> Path:
    if path.suffix == ".svg":
        drawing = io.StringIO()
        figure.savefig(drawing, format="svg", metadata={"Date": None, "Creator": "xtrace"})
        write_atomic(path, _smaller(drawing.getvalue()))
    else:
        figure.savefig(path, metadata={"Software": "xtrace"})
    return path


def _smaller(drawing: str) -> str:
    """The same drawing in two thirds of the bytes: a hundredth of a point is enough, and indentation says nothing."""
    rounded = re.sub(r"scale\([^)]*\)|(\.\d\d)\d+", lambda m: m.group(1) or m.group(0), drawing)
    return re.sub(r"\s*\n\s*", "\n", rounded)


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
        bbox={"boxstyle": "round,pad=0.6", "facecolor": "#F2F2F2", "edgecolor": "#BBBBBB", "hatch": ""},
    )


def missing_page(words: str) -> list[Figure]:
    """A figure of one page that says why there is nothing to draw."""
    figure = Figure(figsize=(WIDTH, 1.4))
    placeholder(figure.add_axes((0.02, 0.05, 0.96, 0.9)), words)
    return [figure]


def legend(figure: Figure, handles: Sequence[object], labels: Sequence[str], columns: int, inches: float) -> None:
    """A legend of ``columns`` columns whose upper edge is ``inches`` above the lower edge of the figure."""
    y = inches / figure.get_figheight()
    figure.legend(
        handles,
        labels,
        ncols=columns,
        loc="upper center",
        bbox_to_anchor=(0.5, y),
        frameon=False,
        handlelength=1.8,
        columnspacing=1.2,
        borderaxespad=0,
    )
