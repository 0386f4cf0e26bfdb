"""A picture of one CTA: a row per warp, phases in colours, time in microseconds."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from xtrace.errors import BadInput
from xtrace.files import write_atomic
from xtrace.image.names import short_name
from xtrace.trace.palette import Look, looks
from xtrace.trace.spans import roles, spans
from xtrace.trace.tables import TraceTables

__all__ = ["cta_spans", "plot_cta"]

FORMATS = {".svg", ".png", ".pdf"}
_RASTER_FROM = 20_000  # spans: beyond this an SVG of single boxes no longer opens quickly
_LEGEND_CHARACTERS = 120  # that fit side by side


def cta_spans(
    tables: TraceTables, cta: int | None, window_us: tuple[float, float] | None = None
) -> tuple[int, float, pd.DataFrame]:
    """Spans of one CTA with columns ``start_us`` and ``end_us`` since the CTA's first warp entered.

    ``cta`` None picks the first CTA with the most records. Gives the CTA, its entry in ns on the trace's time
    axis, and the spans that touch the window.

    Raises
    ------
    BadInput
        XT8501 no such CTA, XT8502 an empty window or one in which nothing happened.
    """
    if cta is None:
        written = tables.warps.groupby("cta")["written"].sum()
        cta = int(written.index[int(written.to_numpy().argmax())])
    mine = tables.warps[tables.warps["cta"] == cta]
    if not len(mine):
        known = tables.warps["cta"].unique()
        raise BadInput("XT8501", f"CTA {cta} left no trace", hint=f"CTAs {known.min()} to {known.max()} did")
    begin = float(mine["t_entry_ns"].min())
    part = TraceTables(tables.events[tables.events["cta"] == cta], mine, tables.summary)
    table = spans(part)
    table["start_us"] = (table["start_ns"] - begin) / 1000
    table["end_us"] = (table["end_ns"] - begin) / 1000
    if window_us is not None:
        low, high = window_us
        if not low < high:
            raise BadInput("XT8502", f"the window from {low:g} to {high:g} us is empty")
        table = table[(table["end_us"] > low) & (table["start_us"] < high)]
        if not len(table):
            raise BadInput("XT8502", f"nothing happened in CTA {cta} between {low:g} and {high:g} us")
    return cta, begin, table


def plot_cta(
    tables: TraceTables,
    paths: str | Path | Sequence[str | Path],
    *,
    cta: int | None = None,
    window_us: tuple[float, float] | None = None,
    title: str | None = None,
    size: tuple[int, int] = (1200, 600),
) -> int:
    """Draw the warps of one CTA and write the picture to each of ``paths`` (.svg, .png, .pdf).

    Parameters
    ----------
    cta
        CTA number; None picks the first of those with the most records.
    window_us
        Zoom: start and end in microseconds after the CTA's entry.
    size
        Width and height in pixels at 100 dots per inch; PNG files get twice the resolution.

    Returns
    -------
    int
        The CTA drawn.

    Raises
    ------
    BadInput
        XT8501, XT8502 (see :func:`cta_spans`), XT8503 unknown file type, XT7xxx not writable.
    """
    targets = [Path(p) for p in ([paths] if isinstance(paths, str | Path) else paths)]
    for target in targets:
        if target.suffix.lower() not in FORMATS:
            raise BadInput("XT8503", "a timeline is written as .svg, .png or .pdf", where=str(target))
    cta, begin, table = cta_spans(tables, cta, window_us)

    import matplotlib as mpl
    from matplotlib.figure import Figure  # not pyplot: no display, no global state

    style: Any = {
        "font.family": "sans-serif",
        "svg.fonttype": "none",
        "svg.hashsalt": "xtrace",
        "hatch.linewidth": 0.5,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "font.size": 11,
    }
    with mpl.rc_context(style):
        figure = Figure(figsize=(size[0] / 100, size[1] / 100), dpi=100, layout="constrained")
        axes = figure.add_subplot()
        warps = tables.warps[tables.warps["cta"] == cta]
        # Looks go by all phases of the kernel, so that a zoomed picture has the colours of the whole one.
        look = looks(str(p) for p in table["phase"].cat.categories)
        _draw(axes, warps, table, look, begin)
        _label(figure, axes, tables, warps, table, look, cta, window_us, title)
        for target in targets:
            out = io.BytesIO()
            kind = target.suffix.lower()[1:]
            dpi = 200 if kind == "png" else 100
            metadata = {"Date": None} if kind == "svg" else {"CreationDate": None} if kind == "pdf" else None
            figure.savefig(out, format=kind, dpi=dpi, metadata=metadata)
            write_atomic(target, out.getvalue())
    return cta


def _rows(warps: pd.DataFrame) -> dict[int, int]:
    return {int(w): row for row, w in enumerate(sorted(warps["warp"].unique()))}


def _draw(axes: Any, warps: pd.DataFrame, table: pd.DataFrame, look: dict[str, Look], begin: float) -> None:
    rows = _rows(warps)
    for number, entry_ns, exit_ns in warps[["warp", "t_entry_ns", "t_exit_ns"]].itertuples(index=False):
        row, entry, leave = rows[number], (entry_ns - begin) / 1000, (exit_ns - begin) / 1000
        if np.isfinite(leave):
            axes.plot([entry, leave], [row, row], color="#9A9A9A", linewidth=1.2, zorder=1, solid_capstyle="butt")
    for warp_number, phase in table[["warp", "phase"]].drop_duplicates().itertuples(index=False):
        part = table[(table["warp"] == warp_number) & (table["phase"] == phase)]
        pairs: npt.NDArray[Any] = np.column_stack([part["start_us"], part["end_us"] - part["start_us"]])
        style = look[phase]
        axes.broken_barh(
            pairs,
            (rows[warp_number] - 0.4, 0.8),
            facecolors=style.colour,
            hatch=style.hatch or None,
            edgecolor="#7A7A7A" if style.hatch else "white",
            linewidth=0.25,
            zorder=2,
            rasterized=len(table) > _RASTER_FROM,
        )


def _label(
    figure: Any,
    axes: Any,
    tables: TraceTables,
    warps: pd.DataFrame,
    table: pd.DataFrame,
    look: dict[str, Look],
    cta: int,
    window_us: tuple[float, float] | None,
    title: str | None,
) -> None:
    from matplotlib.patches import Patch

    rows = _rows(warps)
    axes.set_ylim(len(rows) - 0.45, -0.55)
    every = max(1, len(rows) // 24 + (len(rows) % 24 > 0)) if len(rows) > 24 else 1
    shown = [w for w in rows if rows[w] % every == 0]
    axes.set_yticks([rows[w] for w in shown], [f"warp {w}" for w in shown])
    axes.tick_params(axis="y", length=0)
    role = roles(tables)
    previous = None
    for warp, row in rows.items():
        if previous is not None and role[warp] != previous:
            axes.axhline(row - 0.5, color="#555555", linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
        previous = role[warp]
    if window_us is not None:
        axes.set_xlim(*window_us)
    else:
        end = float(table["end_us"].max())
        axes.set_xlim(min(0.0, float(table["start_us"].min())), end * 1.01 if end > 0 else 1.0)
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)
    s = tables.summary
    axes.set_xlabel(f"time after the CTA's entry, µs (time error below {s.get('time_error_ns', 0):.0f} ns)")
    sm = ", ".join(str(n) for n in sorted(warps["sm"].unique()))
    name = title or short_name(str(s.get("demangled") or tables.kernel), 80)
    lost = int(warps["dropped"].sum())
    note = f"CTA {cta} on SM {sm}" + (f", {lost:,} records dropped" if lost else "")
    axes.set_title(f"{_plain(name)}\n{note}", loc="left", fontsize=12)
    seen = set(table["phase"].unique())
    handles = [
        Patch(facecolor=v.colour, hatch=v.hatch or None, edgecolor="#7A7A7A" if v.hatch else v.colour, label=_plain(k))
        for k, v in look.items()
        if k in seen
    ]
    columns = max(1, min(len(handles), _LEGEND_CHARACTERS // (max(map(len, seen), default=0) + 7)))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, handlelength=1.8)


def _plain(text: str) -> str:
    """Text that matplotlib does not take for mathematics."""
    return text.replace("$", r"\$")
