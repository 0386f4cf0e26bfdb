"""Process replicates: each in a fresh process, one after the other, until all are measured or the time is used up."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from workflow.scripts import gpu_files
from workflow.scripts.common import write_json
from workflow.scripts.gpu_files import CellName
from xtrace.errors import XtraceError
from xtrace.stats.samples import block_ratio, skipped

__all__ = ["command_line", "error_file", "supervise"]


def error_file(path: Path) -> Path:
    """Where the reason goes why ``path`` could not be measured."""
    return path.parent / "errors" / path.name


def supervise(args: argparse.Namespace, spans: Mapping[CellName, range], script: Path) -> int:
    """Run every replicate in a fresh process of ``script``; a process that dies loses one cell, not the others.

    ``spans`` says for every cell which numbers of processes measure it; processes do all their cells together.
    """
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="xtrace-inputs-") as made:
        failed = _replicates(args, dict(spans), script, args.input_cache or Path(made))
    _overview(args.out)
    return int(failed)


def _replicates(args: argparse.Namespace, spans: dict[CellName, range], script: Path, cache: Path) -> bool:
    started = time.monotonic()
    failed = False
    numbers = sorted({process for span in spans.values() for process in span})
    for done, process in enumerate(numbers):
        if args.budget is not None and time.monotonic() - started > args.budget:
            print(f"budget of {args.budget:.0f} s used: {done} of {len(numbers)} processes measured", flush=True)
            break
        begin = time.monotonic()
        cells = [c for c, span in spans.items() if process in span]
        remaining = cells
        while remaining := [c for c in remaining if not _finished(c, args.out, process)]:
            code, log = _child(args, remaining, script, process, cache)
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
            del spans[cell]
        failed |= bool(broken)
    return failed


def _finished(cell: CellName, out: Path, process: int) -> bool:
    path = cell.file(out, process)
    return path.is_file() or error_file(path).is_file()


def _last_started(log: str, cells: Sequence[CellName]) -> CellName | None:
    names = [line.split(" ", 1)[1] for line in log.splitlines() if line.startswith("start ")]
    return next((c for c in cells if names and str(c) == names[-1]), None)


FORWARDED = (
    "out",
    "blocks",
    "control_blocks",
    "flush_factor",
    "calibration",
    "base",
    "base_revision",
    "clocks",
    "seed",
    "shape",
    "warm_up",
    "repeats",
    "timeout",
    "lock_timeout",
    "first_process",
    "gpu",
    "suite",
    "corpus",
    "traced",
    "baselines",
    "library",
)
SWITCHES = ("check_only", "full_checks", "pad")


def command_line(
    args: argparse.Namespace, cells: Sequence[CellName], script: Path, process: int, cache: Path
) -> list[str]:
    """How a replicate is started: the same options, all cells in one process."""
    command = [sys.executable, str(script), "--replicate", str(process), "--input-cache", str(cache)]
    for name in FORWARDED:
        if (value := getattr(args, name)) not in (None, ""):
            command += [f"--{name.replace('_', '-')}", str(value)]
    command += [f"--{name.replace('_', '-')}" for name in SWITCHES if getattr(args, name)]
    return [*command, "--cells", *map(str, cells)]


def _child(
    args: argparse.Namespace, cells: Sequence[CellName], script: Path, process: int, cache: Path
) -> tuple[int, str]:
    command = command_line(args, cells, script, process, cache)
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
    ratios: dict[str, dict[str, list[float]]] = {}
    notes: dict[str, set[str]] = {}
    for path in sorted(out.glob("*.json")):
        d = gpu_files.read_json(path)
        cell = f"{d['cell']['workload']}:{d['cell']['tracer']}:{d['cell']['probes']}"
        kinds = ratios.setdefault(cell, {"AB": [], "AA": [], "AP": [], "AO": [], "A": []})
        skip = skipped(d)
        for block in d["blocks"]:
            kinds[block["kind"]].append(block_ratio(block, skip))
            each = zip(block["ns"][skip:], block["order"][skip:], strict=True)
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
        extra = [(name, kinds[kind]) for kind, name in (("AP", "pad"), ("AO", "old")) if kinds[kind]]
        more = [f"{name}/A {100 * statistics.median(ratios):+7.3f} %" for name, ratios in extra]
        words = " ".join([*more, *sorted(notes[cell])])
        print(f"{cell:55} {us:9.1f} us  B/A {ab:+7.3f} %  A'/A {aa:+7.3f} %  {words}")
