"""Tables -> what the report shows. Pure: data frames in, plain lists of text out, nothing rounded up to a whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from workflow.scripts.preservation_table import LEVELS, aggregate
from workflow.scripts.values import number, plain_reason

__all__ = [
    "ablation",
    "certificates",
    "corpus",
    "coverage",
    "overhead",
    "no_figure",
    "preservation",
    "refusals",
    "share",
    "trend",
]

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
    rows = []
    for (workload, probes), group in table.groupby(["workload", "probes"], sort=True):
        row: dict[str, Any] = {"workload": workload, "probes": probes, "kernels": len(group), "broken": ""}
        for name in ("requested", "placed", "refused"):
            values = [number(v) for v in group[name]]
            if None in values:
                bad = next(v for v in group[name] if number(v) is None)
                row["broken"] = f"value that cannot be shown: {name} is {bad!r}"
            row[name] = int(sum(v for v in values if v is not None))
        placed = f"{share(row['placed'] / row['requested'])} %" if row["requested"] else "no such site"
        rows.append(row | {"share": row["broken"] or placed})
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
        row["measured"] = number(r["overhead_percent"]) is not None
        row["reason"] = "" if row["measured"] else no_figure(r)
        row["overhead"] = _with_interval(r["overhead_percent"], r["low_percent"], r["high_percent"])
        row["exact"] = _interval(r["exact_low_percent"], r["exact_high_percent"])
        row["control"] = _with_interval(r["control_percent"], r["control_low_percent"], r["control_high_percent"])
        original, traced = number(r["original_ns"]), number(r["traced_ns"])
        row["original"] = "?" if original is None else f"{original / 1000:.2f}"
        row["added"] = "?" if original is None or traced is None else f"{(traced - original) / 1000:+.3f}"
        row["outputs"] = {"True": "bit-identical", "False": "DIFFER"}.get(r["bit_identical"], "not compared")
        row |= {name: r[f"records_{name}"] or "?" for name in ("emitted", "expected", "lost")}
        row["verdict"] = r["verdict"]
        row["budget"] = f"{number(r['budget_percent']):g}" if number(r["budget_percent"]) is not None else ""
        row["judgement"] = r["reasons"] if r["verdict"] not in ("", "PASS") and not r["problems"] else ""
        rows.append(row)
    measured = table[[number(v) is not None for v in table["overhead_percent"]]]
    places = measured.groupby(list(PROVENANCE), sort=False).size().reset_index(name="count")
    shapes = measured.drop_duplicates(["workload", "shape", "dtype"])
    return {
        "rows": _first(rows),
        "interval": "; ".join(dict.fromkeys(v for v in measured["interval"] if v)),
        "provenance_keys": PROVENANCE,
        "provenance": [{"cells": [r[k] for k in PROVENANCE], "count": r["count"]} for r in places.to_dict("records")],
        "shapes": [f"{r['workload']}: {r['shape']}, {r['dtype']}" for r in shapes.to_dict("records")],
    }


def no_figure(record: Mapping[str, Any]) -> str:
    """Why a row of the overhead table has no figure: it was not measured, or it is broken."""
    if text := record["overhead_percent"]:
        return f"broken: value that cannot be shown: overhead_percent is {text!r}"
    words = plain_reason(record["note"] or record["problems"])
    if record["source"] in ("not measured", "broken"):
        return f"{record['source']}: {words or 'no reason given'}"
    return f"no figure: {words or 'no reason given'}"


def _interval(low: object, high: object) -> str:
    a, b = number(low), number(high)
    return "none" if a is None or b is None else f"[{a:+.2f}, {b:+.2f}]"


def _with_interval(value: object, low: object, high: object) -> str:
    v = number(value)
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


def trend(table: pd.DataFrame) -> dict[str, Any]:
    """Revisions that have measured cells, oldest first."""
    rows = []
    for revision, group in table.sort_values("measured_at", kind="stable").groupby("revision", sort=False):
        days = sorted({str(d)[:10] for d in group["measured_at"]})
        cells = {"cells": len(group), "tracers": ", ".join(dict.fromkeys(group["tracer"]))}
        rows.append({"revision": revision, "days": " to ".join(dict.fromkeys((days[0], days[-1]))), **cells})
    return {"rows": rows}


def ablation(table: pd.DataFrame) -> dict[str, Any]:
    """Images of the ablation in the order of the steps, controls last, and where their samples come from."""
    rows = []
    for r in table.to_dict("records"):
        row = {k: r[k] for k in ("workload", "arm", "kind", "what", "events", "words", "processes", "note")}
        row["overhead"] = _with_interval(r["overhead_percent"], r["low_percent"], r["high_percent"])
        row["gain"] = _with_interval(r["gain_percent"], r["gain_low_percent"], r["gain_high_percent"])
        rows.append(row | {k: "" for k in ("overhead", "gain") if row[k] == "none"})
    known = [name for name in PROVENANCE if name in table]
    places = table.loc[table["device"] != "", ["workload", *known]].drop_duplicates()
    found = [f"{p['workload']}: " + ", ".join(f"{k} {p[k]}" for k in known) for p in places.to_dict("records")]
    return {"rows": _first(rows), "provenance": found}
