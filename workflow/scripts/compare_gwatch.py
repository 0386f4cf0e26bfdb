#!/usr/bin/env python3
"""Xtrace and the released G-Watch wheel side by side: same kernels, same places, same process, one GPU.

    compare_gwatch.py --out DIR --gwatch PACKAGES [--gwatch-python PYTHON] --kernels W... [--steps build]
    compare_gwatch.py --out DIR --kernels W... --steps check own time report --processes 6

PACKAGES is a folder that the wheel is installed in (``pip install --target``, see baselines/README.md). Steps:

build   both images of every kernel and group, what each tool refused, registers, preservation; needs no GPU
check   one launch of G-Watch's image on the GPU: what its buffer holds
own     G-Watch's own ``do_trace`` on the kernel: does it run here, does it make the same machine code
time    raw samples by the project's paired protocol (measure_overhead.py), every process measuring both tools
report  comparison.json: all of this with overheads and their intervals; a table on the terminal

Each kernel, tool and step runs in a process of its own under a time limit. What fails is written down with its reason.
G-Watch's image is launched like the original with one more argument, the address of a buffer of the size that the tool
itself computes; only the kernel is timed for both tools.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from baselines.gwatch.build import GWatch, launch_shape
from baselines.gwatch.records import read_records
from baselines.gwatch.tool import Tool, ToolError
from baselines.run import BaselineArm, read_result
from workflow.kernels.suite import SUITE, read_suite
from workflow.scripts import gwatch_report
from workflow.scripts.common import read_json, run, write_json
from workflow.scripts.gpu_files import Folders
from workflow.scripts.gwatch_pairs import Layout, fail, prepare
from xtrace.errors import BadInput, XtraceError
from xtrace.image import load as load_image

ROOT = Path(__file__).resolve().parents[2]
STEPS = ("build", "check", "own", "time", "report")
KERNELS = ("fa_fwd_hd128_causal_triton", "gemm_bf16_triton")
GROUPS = ("pp", "sche")
SCHEDULES = ("first_feasible", "least_makespan")  # the first is the tool's default
FINDINGS = {
    "warps_silent": "warps left no record",
    "warps_full": "warps filled their block: the tool has no bounds check, so neighbours may be overwritten",
    "warps_backwards": "warps have records whose clock runs backwards",
}


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--kernels", nargs="+", default=KERNELS, metavar="WORKLOAD")
    p.add_argument("--groups", nargs="+", default=GROUPS, help="site groups of configs/matched_sites.yaml")
    p.add_argument("--steps", nargs="+", default=STEPS, choices=STEPS)
    p.add_argument("--gwatch", type=Path, metavar="PACKAGES", help="needed by the steps build and own")
    p.add_argument("--gwatch-python", default=sys.executable, metavar="PYTHON", help="a CPython 3.12")
    p.add_argument("--clock", default="anchor", choices=("anchor", "sm", "gpu"), help="of G-Watch's records")
    p.add_argument(
        "--schedule", default="first_feasible", choices=("first_feasible", "least_makespan"), help="G-Watch's"
    )
    p.add_argument("--corpus", type=Path, default=Path("results/corpus"))
    p.add_argument("--processes", type=int, default=6)
    p.add_argument("--blocks", type=int, default=12)
    p.add_argument("--control-blocks", type=int, default=8)
    p.add_argument("--warm-up", type=float, default=3.0, metavar="S")
    p.add_argument("--budget", type=float, default=220.0, metavar="S", help="start no further process after this time")
    p.add_argument("--process-timeout", type=float, default=150.0, metavar="S", help="of one process in time")
    p.add_argument("--step-timeout", type=float, default=60.0, metavar="S", help="of one kernel in check and own")
    p.add_argument("--build-timeout", type=float, default=300.0, metavar="S", help="of one kernel in build")
    p.add_argument("--child", metavar="WORKLOAD:PROBES", help=argparse.SUPPRESS)  # one check, in its own process
    return p


def main(arguments: Sequence[str]) -> int:
    args = parser().parse_args(arguments)
    layout = Layout(args.out, args.corpus)
    if args.child:
        return child(layout, *args.child.split(":"))
    suite = read_suite(SUITE)
    if unknown := [k for k in args.kernels if k not in suite]:
        raise BadInput("XT7101", f"no workload named {unknown[0]!r}", hint=f"known: {', '.join(suite)}")
    if args.gwatch is None and "build" in args.steps:
        raise BadInput("XT7364", "--gwatch is needed to build G-Watch's images", hint="or give --steps without build")
    for workload in args.kernels:
        for group in args.groups:
            if "build" in args.steps:
                _build(args, layout, workload, group, suite[workload])
            path = layout.pair(workload, f"{group}-matched")
            if not path.is_file():
                raise BadInput("XT7364", "not built", where=str(path), hint="run the step build first")
            document = read_json(path)
            if document["timed"]:
                _on_gpu(args, layout, document)
                write_json(path, document)
    if "time" in args.steps:
        _time(args, layout)
    if "report" in args.steps:
        report = gwatch_report.collect(layout, args.kernels, args.groups)
        write_json(args.out / "comparison.json", report)
        print(gwatch_report.table(report))
    return 0


def _build(args: argparse.Namespace, layout: Layout, workload: str, group: str, entry: dict[str, Any]) -> None:
    print(f"build {workload} {group}", flush=True)
    # The block of a warp must hold all of its records: beyond it G-Watch writes into the next warp's.
    records = max(int(entry.get("records_per_warp", {}).get(group, 0)), 64)
    tool = GWatch(
        Tool(args.gwatch.resolve(), args.gwatch_python), args.clock, records, args.build_timeout, args.schedule
    )
    document = prepare(layout, tool, workload, group)
    print(f"  {_short(document)}", flush=True)


def _short(document: dict[str, Any]) -> str:
    if "gwatch" not in document:
        return "; ".join(f["reason"] for f in document["failures"])
    counts = (
        f"{document['requested']} places, Xtrace {document['xtrace']['placed']}, G-Watch {document['gwatch']['placed']}"
    )
    return f"{counts}, compared at {len(document.get('sites', ()))} {[f['reason'][:100] for f in document['failures']]}"


def _on_gpu(args: argparse.Namespace, layout: Layout, document: dict[str, Any]) -> None:
    cell = f"{document['workload']}:{document['probes']}"
    if "check" in args.steps:
        _forget(document, "gwatch check")
        document["gwatch_trace"] = _check(args, document, cell)
        print(f"check {cell}: {json.dumps(document['gwatch_trace'])[:400]}", flush=True)
    if "own" in args.steps:
        _forget(document, "gwatch own run")
        document["gwatch_own_run"] = _own(args, layout, document)
        print(f"own {cell}: {json.dumps(document['gwatch_own_run'])[:400]}", flush=True)


def _forget(document: dict[str, Any], step: str) -> None:
    document["failures"] = [f for f in document["failures"] if not f["step"].startswith(step)]


def _check(args: argparse.Namespace, document: dict[str, Any], cell: str) -> dict[str, Any] | None:
    """Another process launches G-Watch's image and reads its buffer: it may hang or lose the device."""
    command = [sys.executable, str(Path(__file__).resolve()), "--child", cell, "--out", str(args.out)]
    command += ["--corpus", str(args.corpus)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=args.step_timeout, check=False)
    except subprocess.TimeoutExpired:
        fail(document, "gwatch check", f"did not end within {args.step_timeout:.0f} s")
        return None
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        fail(document, "gwatch check", f"exit {done.returncode}: {last}", done.stderr)
        return None
    found: dict[str, Any] = json.loads(lines[-1].removeprefix("RESULT "))
    for name, what in FINDINGS.items():
        if found[name]:
            fail(document, "gwatch check", f"{found[name]} of {found['warps']} {what}")
    return found


def child(layout: Layout, workload: str, probes: str) -> int:
    """The check itself: one launch into a cleared buffer, and the bytes of the outputs beside the original's."""
    from workflow.scripts.gpu_cells import DirectCase
    from xtrace.runtime.device import open_device

    device = open_device()
    case = DirectCase(device, Folders(layout.corpus, layout.traced, layout.baselines), workload, "default", sets=1)
    folder = layout.gwatch(workload, probes)
    arm = BaselineArm.load(device, folder, case.config, case.parameters)
    outputs = []
    for target in (case.original, arm, case.again):
        for address, size in case.poison():
            device.fill(address, size, 0xFF)
        arm.zero()
        target.launch(0)
        device.synchronize(20.0)
        outputs.append([device.download(address, size) for address, size in case.outputs(target)])
        if target is arm:
            data = arm.read()[0]
    found = read_records(data, read_result(folder)["record"], case.config.warps)
    first, traced, again = outputs
    changed = sum(x != y for a, b in zip(first, traced, strict=True) if a != b for x, y in zip(a, b, strict=True))
    result = {
        "warps": case.config.warps,
        "records": found.total,
        "per_site": {str(k): v for k, v in found.per_site.items()},
        "stray_words": found.stray,
        "warps_full": found.full,
        "warps_silent": found.silent,
        "warps_backwards": found.backwards,
        "outputs_equal": first == traced,
        "changed_bytes": changed,
        "original_repeats": first == again,
    }
    print("RESULT " + json.dumps(result))
    return 0


def _own(args: argparse.Namespace, layout: Layout, document: dict[str, Any]) -> dict[str, Any] | None:
    """``do_trace`` on the small shape, through Triton's launcher, else through the driver API."""
    if args.gwatch is None:
        fail(document, "gwatch own run", "not tried: G-Watch is not installed here (--gwatch)")
        return None
    workload, probes = document["workload"], document["probes"]
    _, meta = Folders(layout.corpus, layout.traced, layout.baselines).original(workload)
    record = read_result(layout.gwatch(workload, probes))["record"]
    config = launch_shape(meta, "check")
    keep = (layout.out / "own" / f"{workload}.{probes}.cubin").resolve()
    keep.parent.mkdir(parents=True, exist_ok=True)
    job = {
        "workload": workload,
        "variant": meta["variant"],
        "sizes": meta["launch"]["shapes"]["check"]["sizes"],
        "seed": meta["seed"],
        "image": str((layout.corpus / workload / "original.cubin").resolve()),
        "kernel": document["kernel"],
        "sites": [site["pc"] // 16 for site in document["sites"]],
        "clock": record["clock"],
        "schedule": record["schedule"],
        "records": record["capacity"],
        "grid": config.grid,
        "block": config.block,
        "shared": config.shared,
        "keep": str(keep),
    }
    for launcher in ("triton", "driver"):
        keep.unlink(missing_ok=True)
        try:
            tool = Tool(args.gwatch.resolve(), args.gwatch_python)
            result = tool.run("own_run.py", {**job, "launcher": launcher}, args.step_timeout, str(ROOT))
            return result | {"same_machine_code": _same_code(keep, layout, document)}
        except XtraceError as error:
            log = error.log if isinstance(error, ToolError) else ""
            fail(document, f"gwatch own run ({launcher})", str(error), log)
            print(f"own run through {launcher} failed: {error}\n{log[-3000:]}", flush=True)
    return None


def _same_code(kept: Path, layout: Layout, document: dict[str, Any]) -> bool | None:
    """Whether the image that ``do_trace`` made has the code of the timed one; None if it kept none."""
    if not kept.is_file():
        return None
    built = layout.gwatch(document["workload"], document["probes"]) / "instrumented.cubin"
    kernel = document["kernel"]
    try:
        return load_image(kept).kernel(kernel).text == load_image(built).kernel(kernel).text
    except XtraceError:
        return None


def _time(args: argparse.Namespace, layout: Layout) -> None:
    """The paired protocol; its own failures leave documents with a reason (folder ``errors``)."""
    cells = [
        f"{document['workload']}:{tracer}:{document['probes']}"
        for document in gwatch_report.pairs(layout, args.kernels, args.groups)
        if document["timed"]
        for tracer in ("xtrace", "gwatch")
    ]
    if not cells:
        print("nothing to time", flush=True)
        return
    command = [sys.executable, str(ROOT / "workflow" / "scripts" / "measure_overhead.py")]
    command += ["--out", str(layout.raw), "--corpus", str(args.corpus), "--traced", str(layout.traced)]
    command += ["--baselines", str(layout.baselines), "--timeout", "20", "--process-timeout", str(args.process_timeout)]
    for name in ("processes", "blocks", "control_blocks", "warm_up", "budget"):
        command += [f"--{name.replace('_', '-')}", str(getattr(args, name))]
    try:
        subprocess.run([*command, "--cells", *cells], check=False, timeout=args.budget + 600)
    except subprocess.TimeoutExpired:
        print("".join(traceback.format_exc(limit=1)), file=sys.stderr, flush=True)


if __name__ == "__main__":
    run(main)
