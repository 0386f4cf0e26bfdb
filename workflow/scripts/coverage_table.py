"""Two tables from the plans: sites placed and refused a kernel (coverage), and every refusal with its reason.

    python -m workflow.scripts.coverage_table --out results/coverage.csv --refusals results/refusals.csv PLAN...

The cell is read from the path: ``.../<workload>/<probes>.plan.json`` (output of ``xtrace plan --json``).
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workflow.scripts.common import read_json, run, write_table
from xtrace.errors import BadInput

COLUMNS = ("workload", "probes", "kernel", "requested", "placed", "refused")
REFUSALS = ("workload", "probes", "kernel", "pc", "op", "reason")


def coverage(workload: str, probes: str, plan: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of both tables for one plan. A plan whose totals contradict its sites is an error."""
    cell = {"workload": workload, "probes": probes}
    status: dict[str, Counter[str]] = {str(k["name"]): Counter() for k in plan.get("kernels", []) if "name" in k}
    refused = []
    for site in plan["sites"]:
        kernel = str(site.get("kernel", ""))
        status.setdefault(kernel, Counter())[site["status"]] += 1
        if site["status"] == "refused":
            pc = f"{site['pc']:#x}" if isinstance(site["pc"], int) else str(site["pc"])
            refused.append({**cell, "kernel": kernel, "pc": pc, "op": site["op"], "reason": site["reason"]})
    placed = sum(c["placed"] for c in status.values())
    if (placed, len(refused)) != (plan["placed"], plan["refused"]):
        raise BadInput(
            "XT7406",
            f"totals {plan['placed']} placed, {plan['refused']} refused; listed are {placed} and {len(refused)}",
            where=f"{workload} / {probes}",
        )
    covered = [
        {**cell, "kernel": kernel, "requested": c.total(), "placed": c["placed"], "refused": c["refused"]}
        for kernel, c in status.items()
    ]
    return covered, refused


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="coverage_table", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--refusals", type=Path, required=True)
    parser.add_argument("plans", type=Path, nargs="+")
    given = parser.parse_args(arguments)
    table: list[dict[str, Any]] = []
    refusals: list[dict[str, Any]] = []
    for path in given.plans:
        try:
            covered, refused = coverage(path.parent.name, path.name.removesuffix(".plan.json"), read_json(path))
        except (KeyError, TypeError, AttributeError) as error:
            raise BadInput("XT7406", f"not a plan: {error!r}", where=str(path)) from error
        table += covered
        refusals += refused
    write_table(given.out, table, COLUMNS)
    write_table(given.refusals, refusals, REFUSALS)


if __name__ == "__main__":
    run(main)
