"""Measure the noise of this machine, and derive from it how often to repeat a measurement.

    python workflow/scripts/calibrate.py --out FILE --processes 4

Every process is fresh, as in a measurement. Each measures the original against itself loaded twice (A/A'), by the
measuring protocol; the first one also the resolution of events and how much memory has to be overwritten until a kernel
starts cold. FILE may be a folder: the file is then named after the GPU's UUID. Nothing on the device is changed:
whether clocks could be locked is asked, not tried. Method and formulas: xtrace/runtime/calibrate.py.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from workflow.scripts import gpu_cells
from workflow.scripts.common import run, write_json
from workflow.scripts.gpu_files import Folders, provenance, read_json
from workflow.scripts.protocol import DEFAULTS
from xtrace.errors import BadInput, XtraceError
from xtrace.runtime import calibrate, calibration
from xtrace.runtime.device import Device, MachineState, open_device
from xtrace.runtime.lock import gpu_lock
from xtrace.runtime.replicate import machine_facts
from xtrace.runtime.timing import PairedOptions
from xtrace.stats.samples import ratios_by_kind

WORKLOADS = ("rmsnorm_triton", "fa_fwd_hd128_causal_triton", "gemm_bf16_triton")
FORMULA = "half = t(0.975, S-1) sqrt((placement^2 + (pi/3) block^2 / n) / S); least S (startup + n block_seconds)"


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="calibrate", description=__doc__.split("\n", 1)[0])
    p.add_argument("--out", type=Path, required=True, help="file, or folder for a file named after the GPU")
    p.add_argument("--processes", type=int, default=4)
    p.add_argument("--blocks", type=int, default=20)
    p.add_argument("--workloads", nargs="+", default=list(WORKLOADS))
    p.add_argument("--shape", default="default")
    p.add_argument("--flush-workload", default="rmsnorm_triton", help="a kernel that memory bounds")
    p.add_argument("--flush-shape", default="short", help="its shape: the data must fit the L2 cache")
    p.add_argument("--target", type=float, default=0.3, help="half-width of a cell's interval, percent")
    p.add_argument("--least-processes", type=int, default=10, help="of the gate's first look")
    p.add_argument("--clocks", default="unlocked", help="clock policy that the operator set; nothing is changed here")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--warm-up", type=float, default=5.0, metavar="S")
    p.add_argument("--timeout", type=float, default=30.0, metavar="S")
    p.add_argument("--process-timeout", type=float, default=300.0, metavar="S")
    p.add_argument("--lock-timeout", type=float, default=600.0, metavar="S")
    p.add_argument("--gpu", type=int, default=0)
    p.add_argument("--corpus", type=Path, default=Path("results/corpus"))
    p.add_argument("--input-cache", type=Path)
    p.add_argument("--replicate", type=int, help=argparse.SUPPRESS)  # a child: measure here, write one part to --out
    return p


def main(arguments: Sequence[str]) -> None:
    args = parser().parse_args(arguments)
    if args.processes < 2 or not 0 < args.target < 100:
        raise BadInput("XT7443", f"{args.processes} processes, target {args.target} %", hint="at least 2, above 0")
    if args.replicate is not None:
        device = open_device(args.gpu)
        with gpu_lock(device.info.uuid, timeout_s=args.lock_timeout):
            write_json(args.out, one_process(args, device, args.replicate))
        return
    with tempfile.TemporaryDirectory(prefix="xtrace-calibration-") as made:
        parts = [_child(args, arguments, number, Path(made)) for number in range(args.processes)]
    document = combine(parts, args.target / 100, args.least_processes)
    out = args.out / f"{document['provenance']['uuid']}.json" if args.out.is_dir() else args.out
    write_json(out, document)
    print(summary(document))
    print(f"wrote {out}")


def one_process(args: argparse.Namespace, device: Device, number: int) -> dict[str, Any]:
    """Everything that one fresh process measures."""
    started = time.monotonic()
    before = device.machine()
    rng = random.Random(f"calibrate/{args.seed}/{number}")
    folders = Folders(args.corpus, Path(), Path(), None, args.input_cache)
    options = PairedOptions(blocks=args.blocks, control_blocks=0, warm_up_s=args.warm_up, timeout_s=args.timeout)
    part: dict[str, Any] = {"process": number, "event_gaps_ns": calibration.event_gaps(device)}
    if number == 0:
        case = gpu_cells.make_case(device, folders, args.flush_workload, args.flush_shape)
        curve = calibration.flush_curve(device, case.original, rng, timeout_s=args.timeout)
        part["flush"] = {
            "workload": args.flush_workload,
            "shape": dict(case.sizes),
            "curve": [
                {"factor": f, "bytes": int(f * device.info.l2_bytes), "ns": [round(t, 1) for t in curve[f]]}
                for f in sorted(curve)
            ],
        }
        case.close()
    part["controls"] = {}
    for workload in rng.sample(args.workloads, len(args.workloads)):
        case = gpu_cells.make_case(device, folders, workload, args.shape)
        part["controls"][workload] = calibration.control_samples(device, case.original, case.again, rng, options)
        case.close()
    after = device.machine()
    part["provenance"] = provenance(device, args.clocks)
    part["machine"] = machine_facts(before, after, args.clocks)
    part["clock_lock"] = clock_lock(after)
    part["seconds"] = round(time.monotonic() - started, 2)
    return part


def clock_lock(state: MachineState) -> dict[str, Any]:
    """Whether this user could lock clocks, as far as can be known without trying."""
    root = os.geteuid() == 0
    if state.clocks_restricted is None:
        able, why = None, "the driver does not say who may set clocks"
    elif root or not state.clocks_restricted:
        able, why = True, "the driver would accept it from this user; a container or a job may still be refused"
    else:
        able, why = False, "only the administrator may set clocks"
    return {"permitted": able, "why": why, "tried": False}


def combine(parts: Sequence[dict[str, Any]], target: float, least_processes: int = 10) -> dict[str, Any]:
    """The calibration document (schema ``xtrace/calibration/1``) of the parts of all processes."""
    ratios: dict[str, list[list[float]]] = {}
    for part in parts:
        for workload, found in part["controls"].items():
            values = ratios_by_kind(found["blocks"], int(found.get("late") or 0))
            ratios.setdefault(workload, []).append(values["AA"])
    gaps = [g for part in parts for g in part["event_gaps_ns"]]
    step, empty = calibrate.event_step(gaps), statistics.median(gaps)
    jitter = 1.4826 * statistics.median(abs(g - empty) for g in gaps)
    length = calibrate.sample_length(step, target)
    flush = parts[0]["flush"]
    curve = {p["factor"]: p["ns"] for p in flush["curve"]}
    cold = calibrate.cold_factor(curve)
    found = calibrate.noise(list(ratios.values()))
    controls = [c for part in parts for c in part["controls"].values()]
    startup = statistics.median(
        part["seconds"] - sum(c["seconds"] for c in part["controls"].values()) for part in parts
    )
    block_seconds = max(c["block_seconds"] for c in controls)
    chosen = calibrate.repeats(
        found,
        math.log1p(target),
        startup_s=max(startup, 0.0),
        block_s=max(block_seconds, 1e-6),
        limits=calibrate.Limits(processes=(least_processes, max(least_processes, 40))),
    )
    readings = [c["clocks"] for c in controls]
    return {
        "schema": calibrate.SCHEMA,
        "provenance": parts[0]["provenance"],
        "machine": [part["machine"] for part in parts],
        "event": {"step_ns": step, "empty_ns": empty, "jitter_ns": round(jitter, 2), "shortest_sample_ns": length},
        "flush": {**flush, "cold_factor": cold},
        "noise": {
            **asdict(found),
            "by_workload": {w: asdict(calibrate.noise([d])) for w, d in sorted(ratios.items())},
        },
        "clocks": {
            **parts[0]["clock_lock"],
            "policy": parts[0]["machine"]["clocks"]["policy"],
            "lowest_mhz": min((r["lowest_mhz"] for r in readings if r["lowest_mhz"] is not None), default=None),
            "highest_mhz": max((r["highest_mhz"] for r in readings if r["highest_mhz"] is not None), default=None),
            "throttle": sorted({reason for r in readings for reason in r["throttle"]}),
        },
        "target_half_width": target,
        "formula": FORMULA,
        "derived": {
            "processes": chosen.processes,
            "blocks": chosen.blocks,
            "control_blocks": chosen.control_blocks,
            "flush_factor": max(DEFAULTS["flush_factor"], cold),
            "short_ns": max(DEFAULTS["short_ns"], length),
            "group_ns": max(DEFAULTS["group_ns"], length),
            "half_width": chosen.half_width,
            "target_reached": chosen.reached,
            "control_reached": chosen.control_reached,
            "seconds_per_cell": round(chosen.seconds, 1),
        },
        "samples": ratios,
    }


def summary(document: dict[str, Any]) -> str:
    """The findings for people."""
    event, noise, derived = document["event"], document["noise"], document["derived"]
    reached = "" if derived["target_reached"] else ", which is not the target"
    control = "" if derived["control_reached"] else " (too few for the A/A' test even so)"
    clocks = document["clocks"]
    return "\n".join(
        [
            f"{document['provenance']['device']}, {noise['processes']} A/A' replicates",
            f"events: steps of {event['step_ns']:.1f} ns, {event['empty_ns']:.0f} ns between two in a row",
            f"flush: cold from {document['flush']['cold_factor']:g} L2 sizes on",
            f"noise: block {100 * noise['block_sd']:.3f} %, placement {100 * noise['placement_sd']:.3f} %"
            f" (up to {100 * noise['placement_upper']:.3f} %), A'/A {100 * noise['mean']:+.3f} %",
            f"clocks: {clocks['lowest_mhz']} to {clocks['highest_mhz']} MHz under load, {clocks['policy']};"
            f" {clocks['why']}",
            f"repeats: {derived['processes']} processes, {derived['blocks']} blocks,"
            f" {derived['control_blocks']} control blocks{control}: +-{100 * derived['half_width']:.2f} %{reached}",
        ]
    )


def _child(args: argparse.Namespace, arguments: Sequence[str], number: int, folder: Path) -> dict[str, Any]:
    part = folder / f"{number}.json"
    cache = args.input_cache or folder / "inputs"
    command = [sys.executable, str(Path(__file__).resolve()), *arguments]
    command += ["--out", str(part), "--replicate", str(number), "--input-cache", str(cache)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=args.process_timeout, check=False)
        said, code = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired:
        said, code = "", 124
    if code or not part.is_file():
        raise XtraceError("XT5061", f"process {number} ended with {code}: {said.strip()[-1500:]}", where="calibrate")
    print(f"process {number} done", flush=True)
    return read_json(part)


if __name__ == "__main__":
    run(main)
