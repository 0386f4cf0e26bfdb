"""Skeleton of figures with one row a cell: rows under headings, several pages, reasons in rows that have no figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from workflow.scripts.plots.style import MISSING_HATCH, ROWS, SMALL, WIDTH, clip, short

__all__ = ["Row", "missing", "pages", "paint"]

ROW = 0.235  # inches
LABEL_WIDTH, CHARACTER = 24, 0.068  # characters of a label, inches of one


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a figure: ``heading`` is shared by neighbours, ``record`` is what the figure draws."""

    heading: str
    label: str
    record: Mapping[str, Any]
    colour: str = "#222222"


def pages(rows: Sequence[Row], size: int = ROWS) -> list[list[Row]]:
    """Rows of each page, at most ``size`` of them, headings included; a group is split only if it exceeds a page.

    Pages are as few as possible, and then as equally long as possible.
    """
    greedy = _fill(rows, size)
    lines = len(rows) + len({r.heading for r in rows})
    for smaller in range(max(lines // max(len(greedy), 1), 2), size):
        if len(even := _fill(rows, smaller)) == len(greedy):
            return even
    return greedy


def _fill(rows: Sequence[Row], size: int) -> list[list[Row]]:
    out: list[list[Row]] = []
    room = 0
    for _, group in groupby(rows, key=lambda r: r.heading):
        members = list(group)
        while members:
            if room < min(len(members), size - 1) + 1:
                out.append([])
                room = size
            taken = members[: room - 1]
            members = members[len(taken) :]
            out[-1] += taken
            room -= len(taken) + 1
    return out


def paint(
    rows: Sequence[Row],
    draw: Callable[[Axes, float, Row], None],
    *,
    title: str,
    xlabel: str,
    side: float,
    foot: float,
    page: str = "",
) -> tuple[Figure, Axes]:
    """A page: ``draw(ax, y, row)`` once a row.

    Parameters
    ----------
    side
        Inches kept free right of the axis, for text.
    foot
        Inches kept free below the axis label, for a legend.
    page
        For instance ``"page 2 of 3"``.
    """
    labels = [clip(r.label, LABEL_WIDTH) for r in rows]
    left = 0.12 + CHARACTER * max(map(len, labels))
    lines = len(rows) + len({r.heading for r in rows})
    top, bottom = 0.36, foot + 0.44
    height = top + bottom + ROW * lines
    figure = Figure(figsize=(WIDTH, height))
    ax = figure.add_axes((left / WIDTH, bottom / height, 1 - (left + side) / WIDTH, ROW * lines / height))
    figure.text(0.02, 1 - 0.12 / height, title, fontsize=10, fontweight="bold", va="top")
    if page:
        figure.text(0.98, 1 - 0.13 / height, page, fontsize=SMALL, va="top", ha="right", color="#555555")
    y, heading, places = -1.0, None, []
    for row in rows:
        y += 1
        if row.heading != heading:
            heading = row.heading
            ax.axhline(y - 0.5, color="#BBBBBB", linewidth=0.8)
            ax.annotate(
                clip(short(heading), 60),
                (0, y),
                xycoords=("figure fraction", "data"),
                xytext=(6, 0),
                textcoords="offset points",
                fontsize=8.5,
                fontweight="bold",
                va="center",
                annotation_clip=False,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
            )
            y += 1
        places.append(y)
        draw(ax, y, row)
    ax.set_yticks(places, labels)
    for label, row in zip(ax.get_yticklabels(), rows, strict=True):
        label.set_color(row.colour)
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", length=0, pad=2)
    ax.set_ylim(lines - 0.5, -0.5)
    figure.text(0.5, (foot + 0.14) / height, xlabel, fontsize=9, ha="center", va="center")
    ax.grid(axis="y", visible=False)
    return figure, ax


def missing(ax: Axes, y: float, words: str) -> None:
    """A hatched row with the reason why it holds no figure, over the whole width of the axis and its right margin."""
    ax.axhspan(y - 0.42, y + 0.42, facecolor="#F3F3F3", edgecolor="#C8C8C8", hatch=MISSING_HATCH, linewidth=0, zorder=0)
    ax.annotate(
        clip(words, 52),
        (0, y),
        xycoords=ax.get_yaxis_transform(),
        xytext=(3, 0),
        textcoords="offset points",
        fontsize=SMALL,
        style="italic",
        color="#444444",
        va="center",
        annotation_clip=False,
        zorder=5,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.9},
    )
