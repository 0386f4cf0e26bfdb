#!/usr/bin/env python3
"""Time every step of the ablation on a GPU, and say what each one is worth.

    ablation.py --out results/ablation-run --cells fa_fwd_hd128_causal_triton:6 fa3_fwd_hd128_causal:10 --budget 150

A cell is WORKLOAD:PROCESSES. Images come from ``--images`` (``ablation_images.py``); those that are missing are made.
In each process, a fresh one, all images of a workload are loaded in random order, their outputs are compared with the
original's bit for bit, and their blocks are mixed at random, so that a step is compared with the one before it within
processes. Raw samples go to ``OUT/steps.json``: put it into results/recorded/ablation to have it in the report. What
was measured is not measured again when the command is repeated. Nothing is estimated here but for the eye.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from workflow.kernels.suite import SUITE
from workflow.scripts import ablation_images, ablation_table, gpu_cells, gpu_files
from workflow.scripts.ablation_images import ARMS
from workflow.scripts.common import read_json, run, write_json
from workflow.scripts.extra_arms import FATAL
from workflow.scripts.gpu_files import Folders
from xtrace.errors import BadInput, XtraceError
from xtrace.files import write_atomic
from xtrace.runtime.device import Device, open_device
from xtrace.runtime.lock import gpu_lock
from xtrace.runtime.replicate import check_cell, machine_facts
from xtrace.runtime.timing import Arm, PairedOptions, run_arms

__all__ = ["CELLS", "main", "measure_workload"]

CELLS = ("fa_fwd_hd128_causal_triton:6", "fa3_fwd_hd128_causal:10")
KEPT = ("bit_identical", "outputs_written", "guards_intact", "warps_seen", "ring_records", "records_lost")


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", type=Path, required=True, help="folder of raw samples")
    p.add_argument("--cells", nargs="+", default=CELLS, metavar="W:PROCESSES", help=f"default: {' '.join(CELLS)}")
    p.add_argument("--images", type=Path, default=Path("results/ablation"))
    p.add_argument("--arms", nargs="+", choices=[arm.name for arm in ARMS], default=[arm.name for arm in ARMS])
    p.add_argument("--budget", type=float, metavar="S", help="start no further process after this many seconds")
    p.add_argument("--blocks", type=int, default=16, help="of each image in each process")
    p.add_argument("--warm-up", type=float, default=1.0, metavar="S")
    p.add_argument("--timeout", type=float, default=30.0, metavar="S", help="longest wait for one block of launches")
    p.add_argument("--process-timeout", type=float, default=300.0, metavar="S")
    p.add_argument("--clocks", default="unlocked", help="clock policy that the operator set; nothing is changed here")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--gpu", type=int, default=0)
    p.add_argument("--corpus", type=Path, default=Path("results/corpus"))
    p.add_argument("--suite", type=Path, default=SUITE)
    p.add_argument("--library", type=Path, help="wheel or directory of the attention package (default: as installed)")
    p.add_argument("--input-cache", type=Path, help="keep generated inputs here (default: OUT/inputs)")
    p.add_argument("--process", type=int, help=argparse.SUPPRESS)  # a child: one replicate of all cells
    return p


def parse_cells(texts: Sequence[str]) -> dict[str, int]:
    """Processes by workload. BadInput XT7462 for a text that is no cell."""
    cells = {}
    for text in texts:
        workload, _, count = text.partition(":")
        if not workload or not count.isdecimal() or not 1 <= int(count) <= 1000:
            raise BadInput("XT7462", f"not a cell: {text!r}", hint="write WORKLOAD:PROCESSES")
        cells[workload] = int(count)
    return cells


def main(arguments: Sequence[str]) -> int:
    args = parser().parse_args(arguments)
    cells = parse_cells(args.cells)
    args.input_cache = args.input_cache or args.out / "inputs"
    if args.process is not None:
        write_json(process_file(args.out, args.process), replicate(args, list(cells), args.process))
        return 0
    if missing := [w for w in cells if not (args.images / w / "images.json").is_file()]:
        more = ["--corpus", str(args.corpus), "--suite", str(args.suite)]
        ablation_images.main(["--out", str(args.images), *more, "--workloads", *missing])
    args.out.mkdir(parents=True, exist_ok=True)
    failed = processes(args, arguments, cells)
    document = combined(args, cells)
    write_atomic(args.out / "steps.json", json.dumps(document, separators=(",", ":"), allow_nan=False) + "\n")
    print(ablation_table.text(ablation_table.rows(document, list(cells))), flush=True)
    return int(failed)


def process_file(out: Path, number: int) -> Path:
    return out / f"process{number}.json"


def processes(args: argparse.Namespace, arguments: Sequence[str], cells: Mapping[str, int]) -> bool:
    """Every process that is not yet measured; returns whether one failed."""
    started, failed, total = time.monotonic(), False, max(cells.values())
    for number in range(total):
        if process_file(args.out, number).is_file():
            continue
        if args.budget is not None and time.monotonic() - started > args.budget:
            print(f"budget of {args.budget:.0f} s used: {number} of {total} processes measured", flush=True)
            break
        begin = time.monotonic()
        mine = [f"{w}:{count}" for w, count in cells.items() if number < count]
        command = [sys.executable, __file__, *arguments, "--cells", *mine, "--process", str(number)]
        log = args.out / f"process{number}.log"
        with log.open("w", encoding="utf-8") as stream, contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, stdout=stream, stderr=subprocess.STDOUT, timeout=args.process_timeout, check=False)
        if not process_file(args.out, number).is_file():
            failed = True
            print(f"process {number} failed, last lines: {log.read_text(errors='replace')[-1000:]}", flush=True)
            continue
        for name, reason in problems(read_json(process_file(args.out, number))):
            print(f"process {number}, {name}: {reason}", flush=True)
        print(f"process {number}: {' '.join(mine)} in {time.monotonic() - begin:.1f} s", flush=True)
    return failed


def problems(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Workloads and images that were not timed, with the reason."""
    out = []
    for workload, measured in document["workloads"].items():
        if reason := measured.get("not_timed"):
            out.append((workload, reason))
        for name, arm in measured.get("arms", {}).items():
            if reason := arm.get("not_timed"):
                out.append((f"{workload} {name}", reason))
    return out


def combined(args: argparse.Namespace, cells: Mapping[str, int]) -> dict[str, Any]:
    """The document of raw samples (schema ``xtrace/ablation-steps/1``)."""
    found = [process_file(args.out, n) for n in range(max(cells.values()))]
    return {
        "schema": ablation_table.SCHEMA,
        "what": "Each image of the ablation against the original, in interleaved blocks; AA is the original again.",
        "unit": "ns of launches_per_sample launches",
        "images": {w: read_json(args.images / w / "images.json") for w in cells},
        "processes": [read_json(path) for path in found if path.is_file()],
    }


def replicate(
    args: argparse.Namespace, workloads: Sequence[str], number: int, device: Device | None = None
) -> dict[str, Any]:
    """All workloads in this process, in an order drawn from the seed and the number of the process."""
    rng = random.Random(f"{args.seed}/{number}")
    device = device or open_device(args.gpu)
    found: dict[str, Any] = {"process": number, "seed": args.seed, "workloads": {}}
    found["provenance"] = gpu_files.provenance(device, args.clocks)
    with gpu_lock(device.info.uuid, timeout_s=600.0):
        for workload in rng.sample(workloads, len(workloads)):
            try:
                found["workloads"][workload] = measure_workload(args, device, workload, rng, full=number == 0)
            except XtraceError as error:
                if error.code in FATAL:
                    raise
                found["workloads"][workload] = {"not_timed": str(error)}
    return found


def measure_workload(
    args: argparse.Namespace, device: Device, workload: str, rng: random.Random, *, full: bool
) -> dict[str, Any]:
    """Checks of all images, then their blocks. ``full``: read whole traces back, not only headers."""
    folders = Folders(args.corpus, args.images, args.images, args.library, args.input_cache)
    images = read_json(args.images / workload / "images.json")
    state, started = device.machine(), time.monotonic()
    with contextlib.ExitStack() as stack:
        case = gpu_cells.make_case(device, folders, workload, "default")
        stack.callback(case.close)
        arms: dict[str, Arm] = {"AA": case.again}
        notes: dict[str, Any] = {}
        for name in rng.sample(args.arms, len(args.arms)):
            try:
                notes[name] = _load(args, device, case, images["arms"][name], name, arms, stack, full)
            except XtraceError as error:
                if error.code in FATAL:
                    raise
                notes[name] = {"not_timed": str(error)}
        checked = time.monotonic()
        options = PairedOptions(args.blocks, args.blocks, warm_up_s=args.warm_up, timeout_s=args.timeout)
        result = run_arms(device, case.original, arms, rng, options)
        originals = [ns for b in result.blocks for ns, letter in zip(b["ns"], b["order"], strict=True) if letter == "A"]
        return {
            "interval": case.interval,
            "shape": dict(case.sizes),
            "launches_per_sample": result.launches_per_sample,
            "flush_bytes": result.flush_bytes,
            "late_samples": result.late,
            "warm_up_settled": result.warm_up_settled,
            "original_ns": statistics.median(originals) / result.launches_per_sample,
            "machine": machine_facts(state, device.machine(), args.clocks),
            "seconds": {"checks": round(checked - started, 1), "timing": round(time.monotonic() - checked, 1)},
            "arms": notes,
            "blocks": [
                {k: b[k] for k in ("kind", "order", "ns", "late", "sm_clock_mhz", "throttle")} for b in result.blocks
            ],
        }


def _load(
    args: argparse.Namespace,
    device: Device,
    case: Any,
    facts: Mapping[str, Any],
    name: str,
    arms: dict[str, Arm],
    stack: contextlib.ExitStack,
    full: bool,
) -> dict[str, Any]:
    """Load one image and check it; it joins ``arms`` if all is well. What was found, or the reason for leaving it out.

    An image that traces nothing is launched as it is; it has no memory to write to.
    """
    image, trace_map = case.folders.traced_image(case.workload, name)
    if trace_map["output"]["sha256"] != facts["sha256"]:
        raise BadInput("XT7463", "the image is not the one of images.json", where=f"{case.workload}: {name}")
    traces = any(kernel["patches"] for kernel in trace_map["kernels"])
    loaded = case.traced(image, trace_map) if traces else case.untraced(image)
    stack.callback(loaded.close)
    report = check_cell(device, case, loaded, repeats=2, full=full, timeout_s=args.timeout)
    note: dict[str, Any] = {"sha256": facts["sha256"]}
    note["checks"] = {key: report.values[key] for key in KEPT if key in report.values}
    if report.failures:
        return note | {"not_timed": f"failed: {', '.join(report.failures)}"}
    arms[name] = loaded.arm
    return note


if __name__ == "__main__":
    run(main)
