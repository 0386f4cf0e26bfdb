"""Measure all cells of one workload; every expected file is written, with samples or with the reason for having none.

    python -m workflow.scripts.measure_workload --workload W --cells xtrace:pp proton:pp --out DIR [protocol options]

A process replicate measures all cells of the workload in a fresh process (see measure_overhead.py). A cell that fails
must not take the report with it: its files then say so, and the tables show "not measured" with the reason.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from workflow.scripts.common import read_json, run
from workflow.scripts.devices import choose_gpu, empty_folder, write_empty
from workflow.scripts.protocol import derived
from xtrace.errors import BadInput


def fill(out: Path, workload: str, cells: Sequence[str], processes: int, device: str = "") -> list[str]:
    """Write a document without samples for every file that is missing; returns the reasons, for the log."""
    reasons = []
    for cell in cells:
        tracer, probes = cell.split(":")
        for process in range(processes):
            path = out / f"{workload}.{tracer}.{probes}.{process}.json"
            if path.is_file():
                continue
            error = out / "errors" / path.name
            reason = str(read_json(error).get("error", "")) if error.is_file() else "the process ended without a word"
            lines = [line for line in reason.strip().splitlines() if line.strip()] or ["no reason given"]
            reasons.append(f"{path.stem}: {lines[-1]}")
            write_empty(path, workload, tracer, probes, f"failed: {lines[-1]}", device=device, process=process)
    return reasons


def main(arguments: Sequence[str], measure: Callable[[Sequence[str]], int] | None = None) -> None:
    """``measure`` stands in for the measuring program in tests."""
    parser = argparse.ArgumentParser(prog="measure_workload", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--workload", required=True)
    parser.add_argument("--cells", nargs="+", required=True, metavar="TRACER:PROBES")
    parser.add_argument("--processes", type=int, help="default: what --calibration says")
    parser.add_argument("--calibration", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="", metavar="NAME", help="name of the device in the configuration")
    parser.add_argument("--vendor", default="nvidia")
    parser.add_argument("--gpu-model", default="", help="measure on a GPU whose name has this word; default: any")
    given, protocol = parser.parse_known_args(arguments)
    if given.calibration is not None:
        protocol += ["--calibration", str(given.calibration)]
        given.processes = given.processes or int(derived(given.calibration)["processes"])
    if given.processes is None:
        raise BadInput("XT7414", "the number of processes is missing", hint="--processes or --calibration")
    for stale in (given.out / "errors").glob(f"{given.workload}.*.json"):
        stale.unlink()
    if measure is None:
        from workflow.scripts.measure_overhead import main as measure
    if reason := choose_gpu(given.vendor, given.gpu_model):
        print(reason, flush=True)
        empty_folder(given.out, given.workload, given.cells, given.device, reason)
        return
    cells = [f"{given.workload}:{cell}" for cell in given.cells]
    code = measure(["--out", str(given.out), "--processes", str(given.processes), *protocol, "--cells", *cells])
    if code not in (0, 1):  # 1: single cells failed, and left their reason
        raise BadInput("XT7414", f"the measuring program ended with {code}", where=given.workload)
    for reason in fill(given.out, given.workload, given.cells, given.processes, given.device):
        print(reason, flush=True)


if __name__ == "__main__":
    run(main)
