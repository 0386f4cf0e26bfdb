"""results/certificates.csv: every promise of every traced image, or (--enforce) fail if one does not hold.

    python -m workflow.scripts.certificate_table --out results/certificates.csv CERTIFICATE...
    python -m workflow.scripts.certificate_table --enforce results/certificates.csv --out results/verified.txt

The cell is read from the path: ``.../<workload>/<probes>.cubin.certificate.json``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workflow.scripts.common import read_json, read_table, run, write_table
from xtrace.errors import BadInput
from xtrace.files import write_atomic

COLUMNS = (
    "workload",
    "probes",
    "promise",
    "status",
    "witness",
    "kernels",
    "instructions",
    "probe_words",
    "control_changed",
)


def rows(workload: str, probes: str, certificate: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row a promise, with the first witness of a promise that does not pass."""
    witnesses: dict[str, str] = {}
    for witness in [*certificate["failures"], *certificate["not_checked"]]:
        place = "" if witness.get("pc") is None else f" at {witness['pc']:#x}"
        witnesses.setdefault(witness["promise"], f"{witness['kernel'][:60]}{place}: {witness['why']}")
    kernels = certificate["kernels"]
    totals = {
        "kernels": len(kernels),
        "instructions": sum(k["original_instructions"] for k in kernels),
        "probe_words": sum(k["probe_words"] for k in kernels),
        "control_changed": sum(k["kernel_control_fields_changed"] for k in kernels),
    }
    cell = {"workload": workload, "probes": probes}
    promises = certificate["promises"]
    if not promises or certificate["ok"] != all(status == "PASS" for status in promises.values()):
        raise BadInput("XT7408", "the certificate contradicts itself", where=f"{workload} / {probes}")
    return [
        {**cell, "promise": name, "status": status, "witness": witnesses.get(name, ""), **totals}
        for name, status in promises.items()
    ]


def enforce(table: Path) -> str:
    """A line that says what holds; BadInput XT7409 naming the first promise that does not."""
    checked = read_table(table, COLUMNS)
    bad = checked[checked["status"] != "PASS"]
    if len(bad):
        first = bad.iloc[0]
        raise BadInput(
            "XT7409",
            f"promise {first['promise']} is {first['status']}: {first['witness']}",
            where=f"{first['workload']} / {first['probes']}",
            hint=f"{len(bad)} of {len(checked)} promises do not pass; the report lists all of them",
        )
    images = checked[["workload", "probes"]].drop_duplicates()
    return f"{len(checked)} promises of {len(images)} traced images hold\n"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="certificate_table", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--enforce", type=Path, help="table to check; writes a receipt to --out if all hold")
    parser.add_argument("certificates", type=Path, nargs="*")
    given = parser.parse_args(arguments)
    if given.enforce:
        receipt = enforce(given.enforce)
        write_atomic(given.out, receipt)
        sys.stdout.write(receipt)
        return
    table: list[dict[str, Any]] = []
    for path in given.certificates:
        try:
            table += rows(path.parent.name, path.name.removesuffix(".cubin.certificate.json"), read_json(path))
        except (KeyError, TypeError, AttributeError) as error:
            raise BadInput("XT7408", f"not a certificate: {error!r}", where=str(path)) from error
    write_table(given.out, table, COLUMNS)


if __name__ == "__main__":
    run(main)
