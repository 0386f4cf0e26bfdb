#!/usr/bin/env python3
"""FlashAttention-3 traced inside stock PyTorch: the program imports the package as usual and calls flash_attn_func.

A private copy of the package with the traced image is put first on the import path; the caller's code does not
change. A second, unchanged copy under another operator namespace gives the output to compare with.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from workflow.scripts import gpu_files
from workflow.scripts.common import run, write_json
from xtrace.errors import XtraceError
from xtrace.runtime import extension
from xtrace.runtime.checks import trace_facts
from xtrace.runtime.device import Device, open_device
from xtrace.runtime.lock import gpu_lock
from xtrace.runtime.patching import kernel_entry
from xtrace.runtime.repack import copy_package, put_on_path, replace_image
from xtrace.trace import decode, save

WARPS_PER_CTA = 12


def main(arguments: Sequence[str]) -> int:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--workload", default="fa3_fwd_hd128_causal")
    p.add_argument("--probes", default="pp")
    p.add_argument("--shape", default="default")
    p.add_argument("--out", type=Path, required=True, metavar="DIR")
    p.add_argument("--ctas", type=int, default=8, help="CTAs kept in the saved trace; 0 = all")
    p.add_argument("--gpu", type=int, default=0)
    p.add_argument("--corpus", type=Path, default=Path("results/corpus"))
    p.add_argument("--traced", type=Path, default=Path("results/traced"))
    p.add_argument("--library", type=Path, help="wheel or directory of the package")
    args = p.parse_args(arguments)
    device = open_device(args.gpu)
    with gpu_lock(device.info.uuid), tempfile.TemporaryDirectory(prefix="xtrace-fa3-") as work:
        return trace_program(args, device, Path(work))


def trace_program(args: argparse.Namespace, device: Device, work: Path) -> int:
    torch = extension.import_torch()
    folders = gpu_files.Folders(args.corpus, args.traced, Path(), args.library)
    original, meta = folders.original(args.workload)
    image, trace_map = folders.traced_image(args.workload, args.probes)
    sizes = meta["launch"]["shapes"][args.shape]["sizes"]
    torch.manual_seed(0)
    dims = (sizes["batch"], sizes["seqlen"], sizes["heads"], sizes["head_dim"])
    q, k, v = (torch.randn(dims, device="cuda", dtype=torch.bfloat16) for _ in range(3))

    package = extension.ATTENTION
    source = extension.find_package(args.library)
    library, namespace = package.copy(source, work / "plain", "z")
    out = torch.empty_like(q)
    plain = extension.AttentionArm(library, namespace, [extension.Tensors(q, k, v, out)], causal=True)
    plain.launch(0)
    torch.cuda.synchronize()

    slots = device.info.multiprocessors * WARPS_PER_CTA  # the persistent scheduler launches one CTA per SM
    patched, buffers = extension.trace_buffers(device, image, trace_map, meta["kernel"], slots)
    copy = copy_package(source, work / "traced", package.library, package.names)
    fat, entry = replace_image(copy.library, original, patched)
    put_on_path(copy, "fa3_fwd", "fa3_fwd_interface")

    # From here on: the user's program, unchanged.
    flash_attn_func = importlib.import_module("fa3_fwd_interface").flash_attn_func
    traced = flash_attn_func(q, k, v, causal=True)
    torch.cuda.synchronize()

    identical = bool(torch.equal(traced.view(torch.uint8), out.view(torch.uint8)))
    traces = {name: buffer.read() for name, buffer in buffers.items() if not buffer.untouched()}
    document, tables = dict(trace_map), []
    facts: dict[str, dict[str, Any]] = {}
    for kernel, trace in traces.items():
        f = trace_facts(trace, kernel_entry(trace_map, kernel), WARPS_PER_CTA)
        facts[kernel] = {
            "warps": f.warps,
            "unfinished": f.warps_unfinished,
            "warps_without_slot": trace.spilled,
            "emitted": f.emitted,
            "lost": f.lost,
            "monotonic": f.monotonic,
            "bracketed": f.bracketed,
            "unknown_sites": f.unknown_sites,
            "per_site": {str(s): n for s, n in f.per_site.items()},
        }
        part = trace.first(args.ctas * WARPS_PER_CTA) if args.ctas else trace
        document = part.map_for(document, kernel, (32 * WARPS_PER_CTA, 1, 1))
        try:
            tables.append(decode(part.data, document, kernel))
        except XtraceError as error:  # e.g. a set without records
            facts[kernel]["decode"] = str(error)
    args.out.mkdir(parents=True, exist_ok=True)
    provenance = gpu_files.provenance(device)
    if tables:
        save(args.out / f"{args.workload}.{args.probes}.program.xtrace", tables, document, provenance)
    good = (
        identical
        and bool(traces)
        and all(seen["lost"] == 0 and seen["monotonic"] and not seen["warps_without_slot"] for seen in facts.values())
    )
    report = {
        "workload": args.workload,
        "probes": args.probes,
        "shape": sizes,
        "fatbin": [fat, entry],
        "bit_identical": identical,
        "kernels": facts,
        "ok": good,
        "provenance": provenance,
    }
    write_json(args.out / f"{args.workload}.{args.probes}.program.json", report)
    for kernel, seen in facts.items():
        print(f"{kernel[:60]}...: {seen['warps']} warps, {seen['emitted']} records, {seen['lost']} lost")
    print(f"fatbin {fat} entry {entry}; bit identical: {identical}; {'ok' if good else 'FAIL'}")
    return 0 if good else 1


if __name__ == "__main__":
    run(main)
