"""Warp timeline of one CTA from a trace file: the whole CTA, and a window in which single phases can be read."""

from __future__ import annotations

from pathlib import Path

from workflow.scripts.plots.style import SUFFIXES
from xtrace.errors import BadInput
from xtrace.trace import load
from xtrace.trace.tables import TraceTables
from xtrace.trace.timeline import cta_spans, plot_cta

__all__ = ["draw", "zoom_window"]

READABLE = 24  # phases a warp that one picture can label


def zoom_window(tables: TraceTables) -> tuple[float, float] | None:
    """A window in the middle of the busiest CTA's life that holds about ``READABLE`` phases a warp.

    None when the whole CTA is already readable.
    """
    _, _, spans = cta_spans(tables, None)
    per_warp = int(spans.groupby("warp").size().max())
    if per_warp <= READABLE:
        return None
    end = float(spans["end_us"].max())
    width = end * READABLE / per_warp
    return (end - width) / 2, (end + width) / 2


def draw(trace: Path, stem: Path, title: str) -> list[Path]:
    """Write ``stem.{svg,png}`` and ``stem-zoom.{svg,png}`` (the same again for a CTA that needs no zoom)."""
    launches = load(trace).launches
    if not launches:
        raise BadInput("XT7412", "the trace holds no launch", where=str(trace))
    stem.parent.mkdir(parents=True, exist_ok=True)
    written = []
    for name, window in ((stem.name, None), (f"{stem.name}-zoom", zoom_window(launches[0]))):
        paths = [stem.with_name(name + suffix) for suffix in SUFFIXES]
        plot_cta(launches[0], paths, window_us=window, title=title + (", detail" if window else ""))
        written += paths
    return written
