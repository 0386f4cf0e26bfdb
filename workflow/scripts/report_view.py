"""Tables -> what the report shows. Pure: data frames in, plain lists of text out, nothing rounded up to a whole."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from workflow.scripts.preservation_table import LEVELS, aggregate

__all__ = ["certificates", "corpus", "coverage", "overhead", "preservation", "tiles"]

PROVENANCE = ("device", "driver", "cuda", "torch", "triton", "clocks", "date", "git", "xtrace")


def share(value: float) -> str:
    """A share of one in per cent; "100" only for the whole, "0" only for nothing."""
    if value in (0.0, 1.0):
        return f"{100 * value:.0f}"
    return f"{min(max(100 * value, 0.01), 99.99):.2f}"


def _first(rows: Iterable[dict[str, Any]], key: str = "workload") -> list[dict[str, Any]]:
    """Mark the first row of each group."""
    previous = None
    out = []
    for row in rows:
        out.append(row | {"first": row[key] != previous})
        previous = row[key]
    return out


def _plain(value: object) -> str:
    """A count that may be unknown."""
    return "?" if value in (None, "") else str(value)


def preservation(table: pd.DataFrame) -> dict[str, Any]:
    rows = []
    for cell in aggregate(table):
        row = dict(cell)
        if cell["status"] == "ok":
            row |= {"shares": [share(cell[level]) for level in LEVELS], "sites": _plain(cell["sites"])}
            row |= {name: _plain(cell[name]) for name in ("instructions", "inserted")}
            row["blocks"] = f"{_plain(cell['changed_blocks'])} of {_plain(cell['blocks'])}"
        rows.append(row)
    rows.sort(key=lambda r: (r["workload"], r["probes"], r["tracer"] != "xtrace", r["tracer"]))
    return {"levels": LEVELS, "rows": _first(rows)}


def certificates(table: pd.DataFrame) -> dict[str, Any]:
    promises = list(dict.fromkeys(table["promise"]))
    rows = []
    for (workload, probes), group in table.groupby(["workload", "probes"], sort=True):
        status = dict(zip(group["promise"], group["status"], strict=True))
        facts = {name: group.iloc[0][name] for name in ("kernels", "instructions", "probe_words", "control_changed")}
        statuses = [status.get(p, "NOT-CHECKED") for p in promises]
        rows.append({"workload": workload, "probes": probes, "statuses": statuses, **facts})
    witnesses = table[table["status"] != "PASS"].to_dict("records")
    return {"promises": promises, "rows": _first(rows), "witnesses": witnesses}


def coverage(table: pd.DataFrame) -> dict[str, Any]:
    counts = table.astype({"requested": int, "placed": int, "refused": int})
    rows = []
    for (workload, probes), group in counts.groupby(["workload", "probes"], sort=True):
        total = {name: int(group[name].sum()) for name in ("requested", "placed", "refused")}
        placed = f"{share(total['placed'] / total['requested'])} %" if total["requested"] else "no such site"
        rows.append({"workload": workload, "probes": probes, "kernels": len(group), "share": placed, **total})
    return {"rows": _first(rows)}


def refusals(table: pd.DataFrame, shown: int = 6) -> list[dict[str, Any]]:
    """Refused sites by reason, most frequent first."""
    rows = []
    for (workload, probes, reason), group in table.groupby(["workload", "probes", "reason"], sort=False):
        pcs = list(group["pc"])
        rest = f" and {len(pcs) - shown} more" if len(pcs) > shown else ""
        rows.append(
            {
                "workload": workload,
                "probes": probes,
                "reason": reason,
                "count": len(group),
                "ops": ", ".join(dict.fromkeys(group["op"])),
                "pcs": ", ".join(pcs[:shown]) + rest,
            }
        )
    return sorted(rows, key=lambda r: -r["count"])


def overhead(table: pd.DataFrame) -> dict[str, Any]:
    rows = []
    for r in table.to_dict("records"):
        row = {k: r[k] for k in ("workload", "tracer", "probes", "source", "processes", "blocks", "note", "problems")}
        row["measured"] = _float(r["overhead_percent"]) is not None
        row["overhead"] = _with_interval(r["overhead_percent"], r["low_percent"], r["high_percent"])
        row["exact"] = _interval(r["exact_low_percent"], r["exact_high_percent"])
        row["control"] = _with_interval(r["control_percent"], r["control_low_percent"], r["control_high_percent"])
        original, traced = _float(r["original_ns"]), _float(r["traced_ns"])
        row["original"] = "?" if original is None else f"{original / 1000:.2f}"
        row["added"] = "?" if original is None or traced is None else f"{(traced - original) / 1000:+.3f}"
        row["outputs"] = {"True": "bit-identical", "False": "DIFFER"}.get(r["bit_identical"], "not compared")
        row |= {name: r[f"records_{name}"] or "?" for name in ("emitted", "expected", "lost")}
        rows.append(row)
    measured = table[table["overhead_percent"] != ""]
    places = measured.groupby(list(PROVENANCE), sort=False).size().reset_index(name="count")
    shapes = measured.drop_duplicates(["workload", "shape", "dtype"])
    return {
        "rows": _first(rows),
        "interval": "; ".join(dict.fromkeys(v for v in measured["interval"] if v)),
        "provenance_keys": PROVENANCE,
        "provenance": [{"cells": [r[k] for k in PROVENANCE], "count": r["count"]} for r in places.to_dict("records")],
        "shapes": [f"{r['workload']}: {r['shape']}, {r['dtype']}" for r in shapes.to_dict("records")],
    }


def _float(text: object) -> float | None:
    value = math.nan if text in ("", None) else float(str(text))
    return value if math.isfinite(value) else None


def _interval(low: object, high: object) -> str:
    a, b = _float(low), _float(high)
    return "none" if a is None or b is None else f"[{a:+.2f}, {b:+.2f}]"


def _with_interval(value: object, low: object, high: object) -> str:
    v = _float(value)
    return "none" if v is None else f"{v:+.2f} {_interval(low, high)}"


def corpus(metas: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    rows = []
    for meta in metas:
        tools = dict(meta.get("toolchain") or {})
        source = meta.get("source")
        place = source.get("path") or source.get("package") or "" if isinstance(source, Mapping) else str(source or "")
        made = ", ".join([str(place), *(f"{k} {v}" for k, v in tools.items())])
        names = {k: str(meta.get(k, "?")) for k in ("workload", "kernel", "arch", "sha256")}
        rows.append({**names, "made_by": made.strip(", ")})
    return {"rows": rows}


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
    placed, requested = int(table["placed"].astype(int).sum()), int(table["requested"].astype(int).sum())
    return _tile(f"{placed} of {requested}", "requested sites got a probe; every refusal is listed with its reason")


def _overhead_tile(table: pd.DataFrame | None, probes: str) -> dict[str, str]:
    label = f"overhead of Xtrace, probe set {probes}"
    if table is None:
        return _none(label)
    rows = table[(table["tracer"] == "xtrace") & (table["probes"] == probes)]
    values = [v for v in map(_float, rows["overhead_percent"]) if v is not None]
    if not values:
        return _tile("not measured", label, "none")
    sources = " and ".join(sorted({str(s) for s in rows["source"]} - {"not measured"}))
    doubtful = int((rows["problems"] != "").sum())
    doubt = f"; {doubtful} doubtful, see the table" if doubtful else ""
    figure = f"{min(values):+.2f} to {max(values):+.2f} %" if len(values) > 1 else f"{values[0]:+.2f} %"
    return _tile(
        figure, f"{label} ({sources}, {len(values)} of {len(rows)} workloads{doubt})", "bad" if doubtful else ""
    )
