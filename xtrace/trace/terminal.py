"""A small timeline for the terminal: a line per warp, a letter and a colour per phase."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from rich.text import Text

from xtrace.trace.palette import Look, looks
from xtrace.trace.tables import TraceTables
from xtrace.trace.timeline import cta_spans

__all__ = ["cta_timeline", "sampled"]

MAX_ROWS = 64


def cta_timeline(
    tables: TraceTables, width: int, cta: int | None = None, window_us: tuple[float, float] | None = None
) -> tuple[int, list[Text]]:
    """Lines of text that show one CTA; each column shows the phase that filled most of its time.

    Raises as :func:`xtrace.trace.timeline.cta_spans`. Gives the CTA shown and the lines.
    """
    cta, _, table = cta_spans(tables, cta, window_us)
    look = looks(str(p) for p in table["phase"].cat.categories)
    low, high = window_us or (min(0.0, float(table["start_us"].min())), float(table["end_us"].max()))
    numbers = sorted(tables.warps.loc[tables.warps["cta"] == cta, "warp"].unique().tolist())
    label = max(len(f"warp {w}") for w in numbers)
    columns = max(10, width - label - 2)
    edges = np.linspace(low, high if high > low else low + 1e-3, columns + 1)
    of_warp = dict(iter(table.groupby("warp")))
    lines = []
    for warp in numbers[:MAX_ROWS]:
        line = Text(f"warp {warp}".rjust(label) + "  ")
        line.append_text(_row(of_warp.get(warp), edges, look))
        lines.append(line)
    if len(numbers) > MAX_ROWS:
        lines.append(Text(f"… and {len(numbers) - MAX_ROWS} more warps"))
    lines.append(_axis(edges, label + 2))
    seen = set(table["phase"].unique())
    return cta, lines + _legend({phase: look[phase] for phase in look if phase in seen}, width)


def _legend(look: dict[str, Look], width: int) -> list[Text]:
    lines = [Text()]
    for phase, style in look.items():
        if lines[-1].cell_len + len(phase) + 5 > width and lines[-1].cell_len:
            lines.append(Text())
        lines[-1].append_text(_cell(style)).append(f" {phase}   ")
    return lines


def _row(table: pd.DataFrame | None, edges: npt.NDArray[Any], look: dict[str, Look]) -> Text:
    text = Text()
    if table is None:
        return Text("·" * (len(edges) - 1), style="dim")
    cover = {str(phase): _cover(part, edges) for phase, part in table.groupby("phase", observed=True)}
    phases = list(cover)
    shares = np.vstack([cover[p] for p in phases])
    best = shares.argmax(axis=0)
    empty = shares.sum(axis=0) <= 0
    for column in range(len(edges) - 1):
        if empty[column]:
            text.append("·", style="dim")
        else:
            text.append_text(_cell(look[phases[best[column]]]))
    return text


def _cover(part: pd.DataFrame, edges: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Time that the sorted, disjoint spans cover within each pair of edges."""
    start, end = part["start_us"].to_numpy(), part["end_us"].to_numpy()
    before = np.concatenate([[0.0], np.cumsum(end - start)])
    k = np.searchsorted(start, edges, side="right")
    last = np.maximum(k - 1, 0)
    until = before[last] + np.clip(edges - start[last], 0.0, end[last] - start[last])
    result: npt.NDArray[Any] = np.diff(np.where(k == 0, 0.0, until))
    return result


def _cell(look: Look) -> Text:
    red, green, blue = (int(look.colour[k : k + 2], 16) for k in (1, 3, 5))
    ink = "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 128 else "white"
    return Text(look.letter, style=f"{ink} on {look.colour}")


def _axis(edges: npt.NDArray[Any], indent: int) -> Text:
    """A line with the times of the window's ends and middle."""
    columns = len(edges) - 1
    line = [" "] * columns
    for column, anchor in ((0, "left"), (columns // 2, "middle"), (columns, "right")):
        label = f"{edges[column]:.2f}" + (" µs" if anchor == "right" else "")
        at = {"left": 0, "middle": column - len(label) // 2, "right": columns - len(label)}[anchor]
        line[at : at + len(label)] = list(label)
    return Text(" " * indent + "".join(line), style="dim")


def sampled(summary: Mapping[str, Any]) -> str:
    """One sentence about what was sampled; empty if every warp was traced."""
    rule = summary.get("sample")
    if not rule:
        return ""
    left_out, expected = summary.get("warps_not_sampled"), summary.get("warps_expected")
    of = "" if left_out is None else f" ({expected:,} of {expected + left_out:,} warps)"
    return f"sampled: {rule}{of}; counts and times are those of the sampled warps, nothing is scaled up"
