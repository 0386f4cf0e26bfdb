"""Site coverage: sites placed, and refused by reason; one bar a workload and probe set."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from workflow.scripts.plots.rows import Row, missing, pages, paint
from workflow.scripts.plots.style import HATCHES, SMALL, legend, missing_page
from workflow.scripts.values import number

__all__ = ["COLUMNS", "REFUSALS", "draw", "reason_class"]

COLUMNS = ("workload", "probes", "kernel", "requested", "placed", "refused")
REFUSALS = ("workload", "probes", "kernel", "pc", "op", "reason")
PLACED = "#0072B2"
REFUSED = ("#D55E00", "#E69F00", "#CC79A7", "#009E73", "#999999")  # the last is for all other reasons
OTHER, UNKNOWN = "other reasons", "reason not in the table"


def reason_class(reason: str) -> str:
    """A reason without the register, scoreboard or number that makes every site a case of its own."""
    return re.sub(r"\b(U?[RP]|SB|B)\d+\b", r"\1n", re.sub(r"\b0x[0-9a-f]+\b|\b\d+\b", "n", reason)).strip() or "?"


def draw(table: pd.DataFrame, refusals: pd.DataFrame | None = None) -> list[Figure]:
    """Bars in per cent of the requested sites, the counts written out. Without ``refusals`` no reason is known."""
    if table.empty:
        return missing_page("no plans: nothing was asked for")
    reasons = _reasons(refusals)
    counts = sum(reasons.values(), Counter())
    classes = [name for name, _ in counts.most_common(len(REFUSED) - 1)]
    cells = [Row(w, p, _cell(group, reasons.get((w, p), Counter()), classes)) for (w, p), group in _cells(table)]
    shown = list(dict.fromkeys(c for cell in cells for c in cell.record.get("parts", {})))
    names = [c for c in (*classes, OTHER, UNKNOWN) if c in shown]
    looks = {n: (REFUSED[min(i, len(REFUSED) - 1)], HATCHES[i + 1]) for i, n in enumerate(names)}
    labels = ["placed", *(textwrap.fill(f"refused: {n}", 60) for n in names)]
    foot = 0.22 + 0.16 * sum(1 + label.count("\n") for label in labels)
    sheets = pages(cells)
    figures = []
    for count, sheet in enumerate(sheets, 1):
        page = f"{count} / {len(sheets)}" if len(sheets) > 1 else ""
        figure, ax = paint(
            sheet,
            lambda ax, y, row: _bar(ax, y, row, looks),
            title="Probe sites placed and refused",
            xlabel="requested sites (%)",
            side=0.95,
            foot=foot,
            page=page,
        )
        ax.set_xlim(0, 100)
        refused = [Patch(facecolor=c, hatch=h, edgecolor="white") for c, h in looks.values()]
        legend(figure, [Patch(facecolor=PLACED), *refused], labels, 1, foot - 0.06)
        figures.append(figure)
    return figures


def _cells(table: pd.DataFrame) -> list[tuple[tuple[str, str], pd.DataFrame]]:
    return [(key, group) for key, group in table.groupby(["workload", "probes"], sort=True)]


def _reasons(refusals: pd.DataFrame | None) -> dict[tuple[str, str], Counter[str]]:
    found: dict[tuple[str, str], Counter[str]] = {}
    for row in [] if refusals is None else refusals.to_dict("records"):
        found.setdefault((row["workload"], row["probes"]), Counter())[reason_class(row["reason"])] += 1
    return found


def _cell(group: pd.DataFrame, reasons: Counter[str], classes: list[str]) -> Mapping[str, object]:
    total = {}
    for name in ("requested", "placed", "refused"):
        values = [number(v) for v in group[name]]
        if None in values:
            bad = next(v for v in group[name] if number(v) is None)
            return {"broken": f"broken: {name} is {bad!r}"}
        total[name] = int(sum(v for v in values if v is not None))
    parts = Counter({c: n for c, n in reasons.items() if c in classes})
    parts[OTHER] = reasons.total() - parts.total()
    parts[UNKNOWN] = max(total["refused"] - reasons.total(), 0)
    return {**total, "kernels": group["kernel"].nunique(), "parts": {c: n for c, n in parts.items() if n}}


def _bar(ax: Axes, y: float, row: Row, looks: Mapping[str, tuple[str, str]]) -> None:
    cell = row.record
    if "broken" in cell:
        missing(ax, y, str(cell["broken"]))
        return
    if not cell["requested"]:
        missing(ax, y, "no such site in this kernel")
        return
    unit = 100 / cell["requested"]
    ax.barh(y, cell["placed"] * unit, color=PLACED, height=0.66, linewidth=0)
    left = cell["placed"] * unit
    for name, (colour, hatch) in looks.items():
        if part := cell["parts"].get(name, 0) * unit:
            ax.barh(y, part, left=left, color=colour, hatch=hatch, height=0.66, edgecolor="white", linewidth=0)
            left += part
    side = {"transform": ax.get_yaxis_transform(), "va": "center", "fontsize": SMALL}
    ax.text(1.02, y, f"{cell['placed']} of {cell['requested']}", **side)
