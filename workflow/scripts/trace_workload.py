#!/usr/bin/env python3
"""Run a traced workload once on a GPU: check outputs against the original and the reference, read and save the trace.

Writes DIR/<workload>.<probes>.xtrace (the first --ctas CTAs) and DIR/<workload>.<probes>.facts.json.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from workflow.kernels import cases
from workflow.kernels.suite import SUITE, read_suite
from workflow.scripts import gpu_cells, gpu_files
from workflow.scripts.common import run, write_json
from xtrace.errors import XtraceError
from xtrace.runtime import extension
from xtrace.runtime.device import Device, open_device
from xtrace.runtime.lock import gpu_lock
from xtrace.runtime.replicate import check_cell
from xtrace.trace import decode, save


def main(arguments: Sequence[str]) -> int:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("workloads", nargs="*", help="default: all of the suite")
    p.add_argument("--probes", nargs="+", default=["pp"])
    p.add_argument("--shape", default="default")
    p.add_argument("--ctas", type=int, default=132, help="CTAs kept in the saved trace; 0 = all")
    p.add_argument("--reference", action="store_true", help="also compare with the float64 reference (needs PyTorch)")
    p.add_argument("--out", type=Path, required=True, metavar="DIR")
    p.add_argument("--gpu", type=int, default=0)
    p.add_argument("--suite", type=Path, default=SUITE)
    p.add_argument("--corpus", type=Path, default=Path("results/corpus"))
    p.add_argument("--traced", type=Path, default=Path("results/traced"))
    p.add_argument("--library", type=Path, help="wheel or directory of the attention package")
    p.add_argument("--input-cache", type=Path)
    args = p.parse_args(arguments)
    suite = read_suite(args.suite)
    folders = gpu_files.Folders(args.corpus, args.traced, Path("results/baselines"), args.library, args.input_cache)
    device = open_device(args.gpu)
    failed = False
    with gpu_lock(device.info.uuid):
        for workload in args.workloads or list(suite):
            failed |= trace_one(args, device, folders, suite[workload], workload)
    return 1 if failed else 0


def trace_one(
    args: argparse.Namespace, device: Device, folders: gpu_files.Folders, entry: dict[str, Any], workload: str
) -> bool:
    """All probe sets of one workload; returns whether anything failed."""
    started = time.monotonic()
    failed = False
    case = gpu_cells.make_case(device, folders, workload, args.shape, sets=1)
    try:
        errors = reference_errors(device, case, workload, entry) if args.reference else {}
        for probes in args.probes:
            traced = case.instrument("xtrace", probes)
            try:
                facts = one_trace(args, device, case, traced, workload, probes)
            finally:
                traced.close()
            facts["reference_errors"] = {n: e if math.isfinite(e) else None for n, e in errors.items()}
            facts["reference_ok"] = all(e <= entry["tolerances"][n] for n, e in errors.items()) if errors else None
            write_json(args.out / f"{workload}.{probes}.facts.json", facts)
            bad = [*facts["failures"], *(["reference"] if facts["reference_ok"] is False else [])]
            failed |= bool(bad)
            print(
                f"{workload}:{probes} {'FAIL ' + ', '.join(bad) if bad else 'ok'} "
                f"records {facts['checks'].get('records_emitted')} lost {facts['checks'].get('records_lost')} "
                f"expected {facts['checks'].get('records_expected')} ({time.monotonic() - started:.1f} s)",
                flush=True,
            )
    finally:
        case.close()
    return failed


def one_trace(
    args: argparse.Namespace, device: Device, case: Any, traced: Any, workload: str, probes: str
) -> dict[str, Any]:
    """Check a cell and save its trace."""
    report = check_cell(device, case, traced)
    provenance = gpu_files.provenance(device)
    tables, summaries = [], {}
    document: dict[str, Any] = dict(traced.trace_map)
    config = getattr(case, "config", None)
    block = config.block if config else (32 * traced.warps_per_cta, 1, 1)
    for kernel, trace in report.traces.items():
        part = trace.first(args.ctas * traced.warps_per_cta) if args.ctas else trace
        document = part.map_for(document, kernel, block)
        try:
            decoded = decode(part.data, document, kernel, block=block)
        except XtraceError as error:  # e.g. a set without records
            summaries[kernel] = {"error": str(error)}
            continue
        tables.append(decoded)
        summaries[kernel] = decoded.summary
    if tables:
        args.out.mkdir(parents=True, exist_ok=True)
        save(args.out / f"{workload}.{probes}.xtrace", tables, document, {**provenance, "workload": workload})
    return {
        "workload": workload,
        "probes": probes,
        "shape": case.sizes,
        "provenance": provenance,
        "checks": report.values,
        "failures": report.failures,
        "decoded": summaries,
    }


def reference_errors(device: Device, case: Any, workload: str, entry: dict[str, Any]) -> dict[str, float]:
    """Relative error of the original kernel's outputs against the float64 reference, on the GPU through PyTorch."""
    torch = extension.import_torch()

    def lift(array: Any) -> Any:
        array = np.array(array)
        if array.dtype == np.uint16:
            return torch.from_numpy(array.view(np.int16)).to("cuda").view(torch.bfloat16).to(torch.float64)
        tensor = torch.from_numpy(array).to("cuda")
        return tensor.to(torch.int64 if array.dtype.kind == "i" else torch.float64)

    case.original.launch(0)
    device.synchronize()
    made = cases.Case(workload, cases.resolve(workload, case.sizes, case.seed), dict(case.inputs))
    with torch.no_grad():
        wanted = made.reference(torch, lift)
        errors = {}
        for name, (address, size) in case.output_arrays().items():
            raw = np.frombuffer(device.download(address, size), np.uint8).copy()
            kind = np.float32 if size == 4 * wanted[name].numel() else np.uint16
            found = lift(raw.view(kind)).reshape(wanted[name].shape)
            errors[name] = float(cases.relative_error(torch, found, wanted[name]))
    del wanted
    torch.cuda.empty_cache()
    return errors


if __name__ == "__main__":
    run(main)
