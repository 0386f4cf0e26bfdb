#!/usr/bin/env python3
"""Raw overhead samples on a GPU: paired, interleaved, one process per replicate. Nothing is estimated here.

Two ways to call it. The pipeline measures one cell in one process:

    measure_overhead.py --workload W --tracer xtrace --probes pp --process 0 --out FILE

By hand, many cells and processes, each replicate in a process of its own that holds the lock of its GPU:

    measure_overhead.py --out DIR --processes 10 [--cells W:xtrace:pp ...]
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from workflow.kernels.suite import SUITE, read_suite
from workflow.scripts import gpu_cells, gpu_files
from workflow.scripts.common import run, write_json
from workflow.scripts.gpu_files import CellName, Folders
from xtrace.errors import BadInput, Unsupported, XtraceError
from xtrace.runtime.device import Device, open_device
from xtrace.runtime.lock import gpu_lock
from xtrace.runtime.replicate import check_cell, document, measure
from xtrace.runtime.timing import PairedOptions

FATAL = ("XT5006", "XT5007", "XT5008")  # the context is lost: the process must end
LOST = 3  # exit code that says so


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", type=Path, required=True, help="FILE with --process, otherwise DIR")
    p.add_argument("--workload", help="with --process: the cell to measure")
    p.add_argument("--tracer", default="xtrace")
    p.add_argument("--probes", default="pp")
    p.add_argument("--process", type=int, help="number of this replicate: measure one cell here")
    p.add_argument("--cells", nargs="*", metavar="W:TRACER:PROBES", help="default: all that have an image")
    p.add_argument("--processes", type=int, default=10)
    p.add_argument("--first-process", type=int, default=0, help="number of the first one: continue an earlier run")
    p.add_argument("--blocks", type=int, default=20)
    p.add_argument("--control-blocks", type=int, default=8)
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


def main(arguments: Sequence[str]) -> int:
    args = parser().parse_args(arguments)
    if args.process is not None:
        cell = CellName(args.workload or "", args.tracer, args.probes)
        return replicate(args, [CellName.parse(str(cell))], args.process, lambda _: args.out, stop_at_error=True)
    cells = [CellName.parse(c) for c in args.cells] if args.cells else find_cells(args)
    if args.replicate is not None:
        number = args.replicate
        return replicate(args, cells, number, lambda c: c.file(args.out, number), stop_at_error=False)
    return supervise(args, cells)


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
    folders = Folders(args.corpus, args.traced, args.baselines, args.library, args.input_cache)
    device = device or open_device(args.gpu)
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


def error_file(path: Path) -> Path:
    return path.parent / "errors" / path.name


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
    return document(key, gpu_files.provenance(device), process, args.seed, "", None, {}, unsupported=reason)


def one_cell(
    args: argparse.Namespace, device: Device, case: Any, cell: CellName, process: int, rng: random.Random
) -> dict[str, Any]:
    """Checks and timing of one cell."""
    instrumented = case.instrument(cell.tracer, cell.probes)
    try:
        full = args.full_checks or process == args.first_process
        report = check_cell(device, case, instrumented, repeats=args.repeats, full=full, timeout_s=args.timeout)
        if report.failures:
            print(f"CHECK {cell}: {', '.join(report.failures)} {json.dumps(report.values)[:2000]}", flush=True)
        result = None
        after: dict[str, Any] = {}
        if not args.check_only:
            options = PairedOptions(
                blocks=args.blocks,
                control_blocks=args.control_blocks,
                warm_up_s=args.warm_up,
                timeout_s=args.timeout,
            )
            result, after = measure(device, case, instrumented, rng, options)
        return document(
            _cell_key(args, device, case, cell),
            gpu_files.provenance(device),
            process,
            args.seed,
            case.interval,
            result,
            {**report.values, **after},
        )
    finally:
        instrumented.close()


def supervise(args: argparse.Namespace, cells: Sequence[CellName]) -> int:
    """Run every replicate in a fresh process; a process that dies loses one cell, not the others."""
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="xtrace-inputs-") as made:
        failed = _replicates(args, list(cells), args.input_cache or Path(made))
    _overview(args.out)
    return int(failed)


def _replicates(args: argparse.Namespace, cells: list[CellName], cache: Path) -> bool:
    started = time.monotonic()
    failed = False
    for process in range(args.first_process, args.first_process + args.processes):
        if args.budget is not None and time.monotonic() - started > args.budget:
            done = process - args.first_process
            print(f"budget of {args.budget:.0f} s used: {done} of {args.processes} processes measured", flush=True)
            break
        begin = time.monotonic()
        remaining = list(cells)
        while remaining := [c for c in remaining if not _finished(c, args.out, process)]:
            code, log = _child(args, remaining, process, cache)
            culprit = _last_started(log, remaining)
            if code and culprit and not _finished(culprit, args.out, process):
                reason = f"the process ended with {code}; last lines: {log[-1500:]}"
                write_json(error_file(culprit.file(args.out, process)), {"cell": str(culprit), "error": reason})
                failed = True
            elif code and not culprit:
                raise XtraceError("XT5050", f"the process ended with {code} before the first cell: {log[-1500:]}")
            elif not code:
                break
        good = sum(c.file(args.out, process).is_file() for c in cells)
        print(f"process {process}: {good} of {len(cells)} cells in {time.monotonic() - begin:.1f} s", flush=True)
        broken = [c for c in cells if error_file(c.file(args.out, process)).is_file()]
        for cell in broken:  # it would only cost the later processes their time
            print(f"failed, not tried again: {cell}", flush=True)
            cells.remove(cell)
        failed |= bool(broken)
    return failed


def _finished(cell: CellName, out: Path, process: int) -> bool:
    path = cell.file(out, process)
    return path.is_file() or error_file(path).is_file()


def _last_started(log: str, cells: Sequence[CellName]) -> CellName | None:
    names = [line.split(" ", 1)[1] for line in log.splitlines() if line.startswith("start ")]
    return next((c for c in cells if names and str(c) == names[-1]), None)


def _child(args: argparse.Namespace, cells: Sequence[CellName], process: int, cache: Path) -> tuple[int, str]:
    command = [sys.executable, str(Path(__file__).resolve()), "--replicate", str(process), "--input-cache", str(cache)]
    for name in (
        "out",
        "blocks",
        "control_blocks",
        "seed",
        "shape",
        "warm_up",
        "repeats",
        "timeout",
        "lock_timeout",
        "first_process",
    ):
        command += [f"--{name.replace('_', '-')}", str(getattr(args, name))]
    for name in ("gpu", "suite", "corpus", "traced", "baselines"):
        command += [f"--{name}", str(getattr(args, name))]
    command += ["--library", str(args.library)] if args.library else []
    command += ["--check-only"] if args.check_only else []
    command += ["--full-checks"] if args.full_checks else []
    command += ["--cells", *map(str, cells)]
    log_path = args.out / f"process{process}.log"
    with log_path.open("a", encoding="utf-8") as log:
        at = log.tell()
        try:
            code = subprocess.run(
                command, stdout=log, stderr=subprocess.STDOUT, timeout=args.process_timeout, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            code = 124
    return code, log_path.read_text(encoding="utf-8", errors="replace")[at:]


def _overview(out: Path) -> None:
    """A line per cell for the eye; the tables come from xtrace.stats."""
    import statistics

    from xtrace.stats import paired

    ratios: dict[str, dict[str, list[float]]] = {}
    notes: dict[str, set[str]] = {}
    for path in sorted(out.glob("*.json")):
        d = gpu_files.read_json(path)
        cell = f"{d['cell']['workload']}:{d['cell']['tracer']}:{d['cell']['probes']}"
        kinds = ratios.setdefault(cell, {"AB": [], "AA": [], "A": []})
        for block in d["blocks"]:
            kinds[block["kind"]].append(paired.log_ratio(block["ns"], block["order"]))
            each = zip(block["ns"], block["order"], strict=True)
            kinds["A"] += [ns / d["launches_per_sample"] / 1000 for ns, letter in each if letter == "A"]
        checks = d["checks"]
        wrong = [k for k in ("bit_identical", "monotonic", "guards_intact") if checks.get(k) is False]
        wrong += [k for k in ("records_lost", "late_samples") if checks.get(k)]
        notes.setdefault(cell, set()).update(wrong)
    for cell, kinds in ratios.items():
        if not kinds["AB"]:
            print(f"{cell:55} no samples {' '.join(sorted(notes[cell]))}")
            continue
        ab = 100 * statistics.median(kinds["AB"])
        aa = 100 * statistics.median(kinds["AA"]) if kinds["AA"] else float("nan")
        us = statistics.median(kinds["A"])
        print(f"{cell:55} {us:9.1f} us  B/A {ab:+7.3f} %  A'/A {aa:+7.3f} %  {' '.join(sorted(notes[cell]))}")


if __name__ == "__main__":
    run(main)
