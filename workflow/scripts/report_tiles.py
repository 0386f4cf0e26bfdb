"""Headline numbers of the report, each from one table. Pure: data frames in, text out, nothing rounded to a whole."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from workflow.scripts.preservation_table import aggregate
from workflow.scripts.report_view import share
from workflow.scripts.values import number

__all__ = ["tiles"]


def tiles(sections: Mapping[str, pd.DataFrame | None]) -> list[dict[str, str]]:
    """Headline numbers, each from one table; a table that is not there gives a tile that says so."""
    return [
        _certificate_tile(sections.get("certificates")),
        _relocated_tile(sections.get("preservation")),
        _rivals_tile(sections.get("preservation")),
        _coverage_tile(sections.get("coverage")),
        *(_overhead_tile(sections.get("overhead"), probes) for probes in ("sche", "pp")),
    ]


def _tile(value: str, label: str, look: str = "") -> dict[str, str]:
    return {"value": value, "label": label, "look": look}


def _none(what: str) -> dict[str, str]:
    return _tile("not available", what, "none")


def _certificate_tile(table: pd.DataFrame | None) -> dict[str, str]:
    if table is None or table.empty:
        return _none("promises certified")
    good = int((table["status"] == "PASS").sum())
    images = len(table[["workload", "probes"]].drop_duplicates())
    return _tile(
        f"{good} of {len(table)}", f"promises hold, over {images} traced images", "" if good == len(table) else "bad"
    )


def _relocated_tile(table: pd.DataFrame | None) -> dict[str, str]:
    cells = [] if table is None else [c for c in aggregate(table) if c["tracer"] == "xtrace" and c["status"] == "ok"]
    if not cells:
        return _none("instructions preserved by Xtrace")
    worst = min(c["relocated"] for c in cells)
    strict = min(c["strict"] for c in cells)
    return _tile(
        f"{share(worst)} %",
        f"of instructions preserved by Xtrace (relocated, worst of {len(cells)} images; strict {share(strict)} %)",
        "" if worst == 1 else "bad",
    )


def _rivals_tile(table: pd.DataFrame | None) -> dict[str, str]:
    cells = [] if table is None else [c for c in aggregate(table) if c["tracer"] != "xtrace" and c["status"] == "ok"]
    if not cells:
        return _none("instructions preserved by tracers that recompile")
    low, high = min(c["strict"] for c in cells), max(c["strict"] for c in cells)
    names = " and ".join(dict.fromkeys(str(c["tracer"]) for c in cells))
    return _tile(f"{share(low)} to {share(high)} %", f"strict preservation of {names} ({len(cells)} images)")


def _coverage_tile(table: pd.DataFrame | None) -> dict[str, str]:
    if table is None or table.empty:
        return _none("sites placed")
    placed, requested = (int(sum(number(v) or 0 for v in table[name])) for name in ("placed", "requested"))
    return _tile(f"{placed} of {requested}", "requested sites got a probe; every refusal is listed with its reason")


def _overhead_tile(table: pd.DataFrame | None, probes: str) -> dict[str, str]:
    label = f"overhead of Xtrace, probe set {probes}"
    if table is None:
        return _none(label)
    rows = table[(table["tracer"] == "xtrace") & (table["probes"] == probes)]
    values = [v for v in map(number, rows["overhead_percent"]) if v is not None]
    if not values:
        return _tile("not measured", label, "none")
    sources = " and ".join(sorted({str(s) for s in rows["source"]} - {"not measured"}))
    doubtful = int((rows["problems"] != "").sum())
    doubt = f"; {doubtful} doubtful, see the table" if doubtful else ""
    figure = f"{min(values):+.2f} to {max(values):+.2f} %" if len(values) > 1 else f"{values[0]:+.2f} %"
    return _tile(
        figure, f"{label} ({sources}, {len(values)} of {len(rows)} workloads{doubt})", "bad" if doubtful else ""
    )
