"""results/preservation.csv: how much of every original kernel each tracer keeps, at five levels, with its sites.

    python -m workflow.scripts.preservation_table --out results/preservation.csv results/preservation/*/*/*.json

The cell is read from the path: ``.../<tracer>/<workload>/<probes>.json``. What a tracer cannot do is a row with a
status and a reason, never a share of zero.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from workflow.scripts.common import read_json, run, write_table
from workflow.scripts.values import number
from xtrace.errors import BadInput

LEVELS = ("strict", "relocated", "operands", "form", "opcode")
COUNTS = ("instructions", "inserted", "removed")
DETAILS = ("blocks", "changed_blocks", "control_fields_changed", "retargeted", "method")
ERROR_PREFIX = re.compile(r"^error\[XT\d+\]( [\w/.-]+:)? ")  # code and place repeat what the row already says
COLUMNS = (
    *("workload", "kernel", "tracer", "probes", "status", "reason", "sites", "closing_sites"),
    *COUNTS,
    *LEVELS,
    *DETAILS,
)


def rows(tracer: str, workload: str, probes: str, document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Table rows of one document: one a kernel, or one that says why there is none.

    ``sites`` counts probes that record something new; ``closing_sites`` those that only close a scope (tools that
    record pairs need them, and they too change the code).
    """
    cell = {"workload": workload, "tracer": tracer, "probes": probes}
    status = {"status": document["status"], "reason": document["reason"]}
    counts = document.get("sites") or {}
    kernels = document["kernels"]
    if not kernels:
        if document["status"] == "ok":
            raise BadInput("XT7405", "status is ok but no kernel was compared", where=" / ".join(cell.values()))
        return [{**cell, **status, "kernel": ""}]
    out = []
    for kernel in kernels:
        sites = kernel.get("sites")
        if sites is None and "source" in counts:
            sites = counts["source"] - counts.get("closing", 0)
        row = {**cell, **status, "kernel": kernel["name"], "sites": sites, "closing_sites": counts.get("closing", 0)}
        out.append(row | {name: kernel.get(name) for name in (*COUNTS, *LEVELS, *DETAILS)})
    return out


def aggregate(table: pd.DataFrame) -> list[dict[str, Any]]:
    """One entry a cell of the table read back as text: shares over all kernels of the image, weighted by their
    instructions; sites, instructions and blocks added up. A cell without kernels keeps its status and reason; one with
    impossible values has the status "broken"."""
    cells: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in table.to_dict("records"):
        cells.setdefault((row["workload"], row["tracer"], row["probes"]), []).append(row)
    return [_cell(key, rows) for key, rows in cells.items()]


def _cell(key: tuple[str, str, str], rows: list[dict[str, Any]]) -> dict[str, Any]:
    cell: dict[str, Any] = dict(zip(("workload", "tracer", "probes"), key, strict=True))
    good = [r for r in rows if r["status"] == "ok"]
    if not good:
        return cell | {"status": rows[0]["status"], "reason": ERROR_PREFIX.sub("", str(rows[0]["reason"]))}
    if words := _impossible(good):
        return cell | {"status": "broken", "reason": words}
    weights = [float(r["instructions"]) for r in good]
    cell |= {"status": "ok", "reason": "", "kernels": len(good)}
    for level in LEVELS:
        whole = math.fsum(float(r[level]) * w for r, w in zip(good, weights, strict=True))
        cell[level] = whole / math.fsum(weights)
    for name in ("sites", *COUNTS, "blocks", "changed_blocks", "control_fields_changed"):
        values = [number(r.get(name)) for r in good]
        cell[name] = None if None in values else int(sum(v for v in values if v is not None))
    return cell


def _impossible(rows: list[dict[str, Any]]) -> str:
    """Which value of a cell cannot be a share of something, or a count; empty when all can."""
    for name in ("instructions", *LEVELS):
        for text in (r[name] for r in rows):
            value = number(text)
            if value is None or value < 0 or (name in LEVELS and value > 1) or (name == "instructions" and value == 0):
                return f"value that cannot be shown: {name} is {text!r}"
    return ""


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="preservation_table", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("documents", type=Path, nargs="+")
    given = parser.parse_args(arguments)
    table: list[dict[str, Any]] = []
    for path in given.documents:
        tracer, workload = path.parent.parent.name, path.parent.name
        try:
            table += rows(tracer, workload, path.stem, read_json(path))
        except (KeyError, TypeError, AttributeError) as error:
            raise BadInput("XT7405", f"not a preservation document: {error!r}", where=str(path)) from error
    write_table(given.out, table, COLUMNS)


if __name__ == "__main__":
    run(main)
