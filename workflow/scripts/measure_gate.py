"""Measure what the gate decides about: every cell once, then the one extension of those that stayed open.

    python -m workflow.scripts.measure_gate --out DIR --budgets FILE --cells W:xtrace:pp ... [--base DIR] [--budget S]

All cells share each process replicate, and the old and the new version run in the same ones. What could not be measured
leaves a document that says why. A run that was cut short by --budget goes on where it stopped when the command is
repeated; nothing that was measured, or failed, is done again. Further options go to measure_overhead.py.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from workflow.scripts.common import read_json, run
from workflow.scripts.devices import write_empty
from workflow.scripts.gpu_files import CellName
from xtrace.errors import BadInput

__all__ = ["main"]

TIME_UP = "not measured: the time was used up"


def main(arguments: Sequence[str], measure: Callable[[Sequence[str]], int] | None = None) -> None:
    """``measure`` stands in for the measuring program in tests."""
    parser = argparse.ArgumentParser(prog="measure_gate", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cells", nargs="+", required=True, metavar="W:TRACER:PROBES")
    parser.add_argument("--budget", type=float, metavar="S", help="start no further process after this many seconds")
    given, protocol = parser.parse_known_args(arguments)
    cells = [CellName.parse(cell) for cell in given.cells]
    if measure is None:
        from workflow.scripts.measure_overhead import main as measure
    started = time.monotonic()
    for cell in cells:  # left by a run that was cut short
        path = cell.file(given.out, 0)
        if path.is_file() and read_json(path).get("unsupported") == TIME_UP:
            path.unlink()

    def look(*more: str) -> None:
        line = ["--out", str(given.out), *protocol, *more, "--cells", *map(str, cells)]
        if given.budget is not None:
            line += ["--budget", str(max(given.budget - (time.monotonic() - started), 0.0))]
        code = measure(line)
        if code not in (0, 1):  # 1: single cells failed, and left their reason
            raise BadInput("XT7414", f"the measuring program ended with {code}", where="gate")

    look()
    try:
        look("--extend-from", str(given.out))
    except BadInput as error:
        if error.code != "XT7442":
            raise
        print(f"no extension: {error}", flush=True)
    for reason in explain(given.out, cells):
        print(reason, flush=True)


def explain(out: Path, cells: Sequence[CellName]) -> list[str]:
    """A document for every process that failed and every cell without any; returns the reasons."""
    reasons = []
    for cell in cells:
        workload, tracer, probes = cell
        for error in sorted((out / "errors").glob(f"{workload}.{tracer}.{probes}.*.json")):
            lines = [x for x in str(read_json(error).get("error", "")).splitlines() if x.strip()] or ["no reason given"]
            process = int(error.stem.rpartition(".")[2])
            write_empty(out / error.name, workload, tracer, probes, f"failed: {lines[-1]}", process=process)
            reasons.append(f"{error.stem}: {lines[-1]}")
        if not list(out.glob(f"{workload}.{tracer}.{probes}.*.json")):
            write_empty(cell.file(out, 0), workload, tracer, probes, TIME_UP)
            reasons.append(f"{cell}: not measured")
    return reasons


if __name__ == "__main__":
    run(main)
