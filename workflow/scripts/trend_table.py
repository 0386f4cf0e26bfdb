"""results/trend.csv: every measured cell of this run and of earlier revisions, one row a cell and revision.

    python -m workflow.scripts.trend_table --overhead results/overhead.csv --history results/recorded/history --out OUT

The history holds overhead tables of earlier revisions, ``<revision>.csv``. They were measured on other days, perhaps on
other machines: a trend is something to look at, never a reason to pass or fail.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from workflow.scripts.common import read_table, run, write_table
from workflow.scripts.values import number

KEY = ("workload", "tracer", "probes", "shape", "dtype", "device")
VALUES = ("processes", "overhead_percent", "low_percent", "high_percent", "control_ok", "problems")
COLUMNS = (*KEY, "revision", "measured_at", *VALUES, "from")
NEEDED = (*KEY, *VALUES, "date", "git")
SHORT = 9  # characters of a revision


def rows(tables: Iterable[tuple[str, pd.DataFrame]]) -> list[dict[str, Any]]:
    """Rows of all tables, given oldest claim last: the first table that has a cell at a revision wins."""
    out: dict[tuple[str, ...], dict[str, Any]] = {}
    for name, table in tables:
        for record in table.to_dict("records"):
            if number(record["overhead_percent"]) is None:
                continue
            revision = " ".join(r.strip()[:SHORT] for r in str(record["git"]).split("|")) or "unknown"
            key = (*(str(record[k]) for k in KEY), revision)
            row = {k: record[k] for k in (*KEY, *VALUES)}
            row |= {"revision": revision, "measured_at": record.get("measured_at") or record["date"], "from": name}
            out.setdefault(key, row)
    return sorted(out.values(), key=lambda r: (r["workload"], r["tracer"], r["probes"], r["measured_at"]))


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="trend_table", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--overhead", type=Path, required=True)
    parser.add_argument("--history", type=Path, nargs="*", default=[], help="overhead tables of earlier revisions")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    tables = [(path.name, read_table(path, NEEDED)) for path in (given.overhead, *sorted(given.history))]
    write_table(given.out, rows(tables), COLUMNS)


if __name__ == "__main__":
    run(main)
