"""Skeleton of figures with one small panel a group: two columns, several pages, one legend a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from workflow.scripts.plots.style import SMALL, WIDTH, clip, legend

__all__ = ["note", "paint"]

T = TypeVar("T")
TITLE, REMARK = 0.22, 0.15  # inches above each panel


def paint(
    panels: Sequence[T],
    draw: Callable[[Axes, T], None],
    *,
    title: str,
    names: Callable[[T], str],
    xlabel: str,
    ylabel: str,
    handles: Sequence[object],
    labels: Sequence[str],
    remarks: Callable[[T], str] | None = None,
    columns: int = 2,
    lines: int = 4,
    height: float = 1.35,
    ticks: float = 0.26,
    legend_columns: int = 3,
) -> list[Figure]:
    """Pages of ``lines`` x ``columns`` panels: ``draw(ax, panel)`` once each.

    Parameters
    ----------
    names
        Title of a panel, cut to the panel's width.
    remarks
        A second, smaller line under the title, for what the panel lacks.
    height
        Inches of one panel's axis.
    ticks
        Inches below each axis for its tick labels.
    """
    size = columns * lines
    sheets = [panels[i : i + size] for i in range(0, len(panels), size)]
    figures = []
    for count, sheet in enumerate(sheets, 1):
        deep = -(-len(sheet) // columns)
        legend_lines = -(-len(labels) // legend_columns)
        bottom = 0.3 + 0.17 * legend_lines + 0.08
        top = 0.34
        head = TITLE + (REMARK if remarks else 0)
        step = head + height + ticks
        total = top + step * deep + bottom
        figure = Figure(figsize=(WIDTH, total))
        left, gap, right = 0.62, 0.4, 0.12
        width = (WIDTH - left - right - gap * (columns - 1)) / columns
        for i, panel in enumerate(sheet):
            column, line = i % columns, i // columns
            x, y = left + column * (width + gap), total - top - line * step - head - height
            ax = figure.add_axes((x / WIDTH, y / total, width / WIDTH, height / total))
            draw(ax, panel)
            ax.tick_params(length=0, pad=2)
            ax.set_title(clip(names(panel), int(width / 0.072)), loc="left", fontsize=8.5, pad=3 + 72 * (head - TITLE))
            if remarks and (words := remarks(panel)):
                place = {"xytext": (0, 3), "textcoords": "offset points", "xycoords": "axes fraction"}
                look = {"fontsize": SMALL, "style": "italic", "color": "#444444", "annotation_clip": False}
                ax.annotate(clip(words, int(width / 0.056)), (0, 1), **place, **look)
        figure.text(0.02, 1 - 0.1 / total, title, fontsize=10, fontweight="bold", va="top")
        if len(sheets) > 1:
            page = f"{count} / {len(sheets)}"
            figure.text(0.98, 1 - 0.11 / total, page, fontsize=SMALL, va="top", ha="right", color="#555555")
        figure.text(0.5, bottom / total, xlabel, fontsize=9, ha="center", va="top")
        middle = (bottom + step * deep / 2) / total
        figure.text(0.1 / WIDTH, middle, ylabel, fontsize=9, ha="left", va="center", rotation=90)
        if labels:
            legend(figure, handles, labels, legend_columns, bottom - 0.24)
        figures.append(figure)
    return figures


def note(ax: Axes, words: str, y: float = 0.5) -> None:
    """Words inside a panel: what is missing there, and why."""
    ax.text(
        *(0.5, y, words),
        transform=ax.transAxes,
        ha="center",
        va="center",
        fontsize=SMALL,
        style="italic",
        color="#444444",
        bbox={"facecolor": "#F3F3F3", "edgecolor": "#C8C8C8", "pad": 2.5, "alpha": 0.9},
        zorder=6,
    )
