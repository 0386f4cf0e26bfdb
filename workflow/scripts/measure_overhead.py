#!/usr/bin/env python3
"""Raw overhead samples on a GPU: paired, interleaved, one process per replicate. Nothing is estimated here.

Two ways to call it. The pipeline measures one cell in one process:

    measure_overhead.py --workload W --tracer xtrace --probes pp --process 0 --out FILE

By hand, many cells and processes, each replicate in a process of its own that holds the lock of its GPU:

    measure_overhead.py --out DIR --processes 10 [--cells W:xtrace:pp ...]

Further arms run in the same processes, their blocks mixed with the others: ``--pad`` the traced image with NOPs for
probes, ``--base DIR`` the images that an older revision made. ``--plan`` only says what would run and for how long;
``--extend-from DIR`` is the one extension that the gate's rule declares, for the cells that need it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from workflow.kernels.suite import SUITE, read_suite
from workflow.scripts import gpu_cells, gpu_files, measure_plan, protocol
from workflow.scripts.common import run, write_json
from workflow.scripts.extra_arms import FATAL, load_extra
from workflow.scripts.gpu_files import CellName, Folders
from workflow.scripts.processes import error_file, supervise
from xtrace.config import load_yaml
from xtrace.errors import BadInput, Unsupported, XtraceError
from xtrace.runtime.device import Device, open_device
from xtrace.runtime.lock import gpu_lock
from xtrace.runtime.replicate import check_cell, document, machine_facts, measure
from xtrace.runtime.timing import PairedOptions
from xtrace.stats.budgets import parse_budgets

LOST = 3  # exit code: the context is lost


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", type=Path, required=True, help="FILE with --process, otherwise DIR")
    p.add_argument("--workload", help="with --process: the cell to measure")
    p.add_argument("--tracer", default="xtrace")
    p.add_argument("--probes", default="pp")
    p.add_argument("--process", type=int, help="number of this replicate: measure one cell here")
    p.add_argument("--cells", nargs="*", metavar="W:TRACER:PROBES", help="default: all that have an image")
    p.add_argument("--processes", type=int, help="default: 10, or as calibrated")
    p.add_argument("--first-process", type=int, default=0, help="number of the first one: continue an earlier run")
    p.add_argument("--blocks", type=int, help="default: 20, or as calibrated")
    p.add_argument("--control-blocks", type=int, help="default: 8, or as calibrated")
    p.add_argument("--flush-factor", type=float, help="L2 sizes written before a launch; default: 2, or as calibrated")
    p.add_argument("--calibration", type=Path, help="file of calibrate.py for this GPU: repeats that are not given")
    p.add_argument("--pad", action="store_true", help="also time the pad image (blocks of kind AP)")
    p.add_argument(
        "--pad-flagged", type=Path, metavar="VERDICT", help="--pad, only the cells flagged LAYOUT_SHIFT there"
    )
    p.add_argument("--base", type=Path, metavar="DIR", help="also time these older traced images (blocks of kind AO)")
    p.add_argument("--base-revision", default="", help="name of the revision that made them, for the record")
    p.add_argument("--clocks", default="unlocked", help="clock policy that the operator set; nothing is changed here")
    p.add_argument("--plan", action="store_true", help="print cells, processes and predicted seconds; measure nothing")
    p.add_argument("--recorded", type=Path, default=Path("results/recorded/overhead/raw"), help="samples for --plan")
    p.add_argument("--budgets", type=Path, help="budgets file: processes that it declares for single cells")
    p.add_argument("--extend-from", type=Path, metavar="DIR", help="continue the undecided cells of this first look")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--shape", default="default", help="label of a shape in the suite")
    p.add_argument("--warm-up", type=float, default=10.0, metavar="S", help="longest warm-up per cell")
    p.add_argument("--repeats", type=int, default=3, help="traced launches whose outputs are compared")
    p.add_argument("--full-checks", action="store_true", help="in every process, not only in the first")
    p.add_argument("--check-only", action="store_true", help="no timing")
    p.add_argument("--budget", type=float, metavar="S", help="start no further process after this many seconds")
    p.add_argument("--timeout", type=float, default=30.0, metavar="S", help="longest wait for one block of launches")
    p.add_argument("--process-timeout", type=float, default=600.0, metavar="S")
    p.add_argument("--lock-timeout", type=float, default=600.0, metavar="S")
    p.add_argument("--gpu", type=int, default=0)
    p.add_argument("--suite", type=Path, default=SUITE)
    p.add_argument("--corpus", type=Path, default=Path("results/corpus"))
    p.add_argument("--traced", type=Path, default=Path("results/traced"))
    p.add_argument("--baselines", type=Path, default=Path("results/baselines"))
    p.add_argument("--library", type=Path, help="wheel or directory of the attention package (default: as installed)")
    p.add_argument("--input-cache", type=Path, help="keep generated inputs here for the next process")
    p.add_argument("--replicate", type=int, help=argparse.SUPPRESS)  # a child: all --cells in this process
    return p


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Arguments with every repeat settled: given, calibrated, or the default."""
    args = parser().parse_args(arguments)
    protocol.settle(args)
    return args


def main(arguments: Sequence[str]) -> int:
    args = parse(arguments)
    if args.process is not None:
        cell = CellName(args.workload or "", args.tracer, args.probes)
        return replicate(args, [CellName.parse(str(cell))], args.process, lambda _: args.out, stop_at_error=True)
    cells = [CellName.parse(c) for c in args.cells] if args.cells else find_cells(args)
    if args.replicate is not None:
        number = args.replicate
        return replicate(args, cells, number, lambda c: c.file(args.out, number), stop_at_error=False)
    if args.pad_flagged is not None:
        args.pad, cells = True, measure_plan.flagged(args.pad_flagged, cells)
        if not cells:
            print("no cell is flagged LAYOUT_SHIFT: no pad control is needed", flush=True)
            return 0
    budgets = None if args.budgets is None else parse_budgets(load_yaml(args.budgets), str(args.budgets))
    if args.extend_from is not None:
        spans = measure_plan.extension(args, cells, budgets)
        if not spans:
            print("no cell needs the extension", flush=True)
            return 0
    else:
        spans = measure_plan.first_look(args, cells, budgets)
    if args.plan:
        print(measure_plan.table(measure_plan.plan(args, spans)))
        return 0
    return supervise(args, spans, Path(__file__).resolve())


def find_cells(args: argparse.Namespace) -> list[CellName]:
    """Every workload of the suite with every image that was built for it."""
    found = []
    for workload in read_suite(args.suite):
        for image in sorted((args.traced / workload).glob("*.cubin")):
            found.append(CellName(workload, "xtrace", image.stem))
        for result in sorted(args.baselines.glob(f"*/{workload}/*/result.json")):
            if gpu_files.read_json(result).get("status") == "ok":
                found.append(CellName(workload, result.parts[-4], result.parts[-2]))
    if not found:
        raise BadInput("XT7431", "no traced image found", where=str(args.traced), hint="run xtrace splice first")
    return found


def replicate(
    args: argparse.Namespace,
    cells: Sequence[CellName],
    process: int,
    path: Callable[[CellName], Path],
    *,
    stop_at_error: bool,
    device: Device | None = None,
) -> int:
    """Measure ``cells`` in this process, workloads and cells in an order drawn from the seed."""
    rng = random.Random(f"{args.seed}/{process}")
    folders = Folders(args.corpus, args.traced, args.baselines, args.library, args.input_cache, args.base)
    device = device or open_device(args.gpu)
    protocol.check_device(args, device)
    workloads = list(dict.fromkeys(c.workload for c in cells))
    rng.shuffle(workloads)
    with gpu_lock(device.info.uuid, timeout_s=args.lock_timeout):
        for workload in workloads:
            mine = [c for c in cells if c.workload == workload]
            rng.shuffle(mine)
            code = _workload(args, device, folders, mine, process, path, rng, stop_at_error)
            if code:
                return code
    return 0


def _workload(
    args: argparse.Namespace,
    device: Device,
    folders: Folders,
    cells: Sequence[CellName],
    process: int,
    path: Callable[[CellName], Path],
    rng: random.Random,
    stop_at_error: bool,
) -> int:
    case: Any = None
    for cell in cells:
        print(f"start {cell}", flush=True)
        started = time.monotonic()
        try:
            if case is None:
                case = gpu_cells.make_case(device, folders, cell.workload, args.shape)
            write_json(path(cell), one_cell(args, device, case, cell, process, rng))
            print(f"done {cell} in {time.monotonic() - started:.1f} s", flush=True)
        except Unsupported as error:
            # Not a failure of the measurement: a document without blocks says why the cell is empty.
            write_json(path(cell), empty(args, device, case, cell, process, str(error)))
            print(f"unsupported {cell}: {error}", flush=True)
        except Exception as error:
            if stop_at_error:
                raise
            text = str(error) if isinstance(error, XtraceError) else traceback.format_exc()
            print(f"failed {cell}: {text}", file=sys.stderr, flush=True)
            write_json(error_file(path(cell)), {"cell": str(cell), "process": process, "error": text})
            if not isinstance(error, XtraceError) or error.code in FATAL:
                return LOST
    if case is not None:
        case.close()
    return 0


def _cell_key(args: argparse.Namespace, device: Device, case: Any, cell: CellName) -> dict[str, Any]:
    return {
        "workload": cell.workload,
        "kernel": case.meta["kernel"] if case else "",
        "shape": dict(case.sizes) if case else {},
        "dtype": case.meta["dtype"] if case else "",
        "device": device.info.name,
        "tracer": cell.tracer,
        "probes": cell.probes,
    }


def empty(
    args: argparse.Namespace, device: Device, case: Any, cell: CellName, process: int, reason: str
) -> dict[str, Any]:
    key = _cell_key(args, device, case, cell)
    provenance = gpu_files.provenance(device, args.clocks)
    return document(key, provenance, process, args.seed, "", None, {}, unsupported=reason)


def one_cell(
    args: argparse.Namespace, device: Device, case: Any, cell: CellName, process: int, rng: random.Random
) -> dict[str, Any]:
    """Checks and timing of one cell."""
    state = device.machine()
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        instrumented = case.instrument(cell.tracer, cell.probes)
        stack.callback(instrumented.close)
        full = args.full_checks or process == args.first_process
        report = check_cell(device, case, instrumented, repeats=args.repeats, full=full, timeout_s=args.timeout)
        if report.failures:
            print(f"CHECK {cell}: {', '.join(report.failures)} {json.dumps(report.values)[:2000]}", flush=True)
        result = None
        after: dict[str, Any] = {}
        more: dict[str, Any] = {}
        checked = time.monotonic()
        if not args.check_only:
            extra = load_extra(
                device,
                case,
                cell,
                stack,
                want_pad=args.pad,
                want_base=args.base is not None,
                revision=args.base_revision,
                timeout_s=args.timeout,
            )
            more |= extra.notes
            options = PairedOptions(
                blocks=args.blocks,
                control_blocks=args.control_blocks,
                flush_factor=args.flush_factor,
                short_ns=args.short_ns,
                group_ns=args.group_ns,
                warm_up_s=args.warm_up,
                timeout_s=args.timeout,
            )
            result, after = measure(device, case, instrumented, rng, options, extra.arms)
        seconds = {"checks": checked - started, "timing": time.monotonic() - checked}
        if args.calibration is not None:
            more["calibration"] = protocol.reference(args)
        return document(
            _cell_key(args, device, case, cell),
            gpu_files.provenance(device, args.clocks),
            process,
            args.seed,
            case.interval,
            result,
            {**report.values, **after},
            images=case.folders.image_hashes(cell),
            machine=machine_facts(state, device.machine(), args.clocks),
            seconds={name: round(value, 2) for name, value in seconds.items()},
            **more,
        )


if __name__ == "__main__":
    run(main)
