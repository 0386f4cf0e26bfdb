#!/usr/bin/env python3
"""Time all equivalent traced images of some workloads on a GPU, and say which is fastest.

    compare_layouts.py --out FILE --workloads fa_fwd_hd128_causal_triton [--probes pp] [--processes 3]

`xtrace splice --layout N` makes images that differ only in where probe stores stand and in NOPs between probes. How
fast they are depends on how the warps of a CTA fall into step, for which no static rule is known. Layouts are timed in
interleaved pairs with the original, all in one process, in several processes. The winner's time here is too good,
because it won; its overhead is what a later, separate measurement says. Outputs are compared bit for bit first.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from workflow.scripts import gpu_cells, gpu_files
from workflow.scripts.common import run, write_json
from workflow.scripts.gpu_files import Folders
from xtrace.errors import BadInput
from xtrace.image import parse
from xtrace.runtime.checks import check_outputs
from xtrace.runtime.device import open_device
from xtrace.runtime.lock import gpu_lock
from xtrace.runtime.timing import PairedOptions, run_paired
from xtrace.splice import Options, apply, plan
from xtrace.splice.model import LAYOUTS
from xtrace.stats import hodges_lehmann, percent
from xtrace.stats.samples import block_ratio, voided

SCHEMA = "xtrace/layouts/1"
PROBES = ("pp", "sche")


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", type=Path, required=True, help="JSON: log ratios of every block, by workload and layout")
    p.add_argument("--workloads", nargs="+", required=True)
    p.add_argument("--probes", choices=PROBES, default="pp")
    p.add_argument("--layouts", nargs="*", type=int, default=list(range(LAYOUTS)))
    p.add_argument("--processes", type=int, default=3)
    p.add_argument("--blocks", type=int, default=16)
    p.add_argument("--corpus", type=Path, default=Path("results/corpus"))
    p.add_argument("--library", type=Path, help="wheel or directory of the attention package (default: as installed)")
    p.add_argument("--input-cache", type=Path, help="keep generated inputs here for the next process")
    p.add_argument("--process", type=int, help=argparse.SUPPRESS)  # a child: one replicate
    return p


def replicate(args: argparse.Namespace) -> dict[str, Any]:
    """Block log ratios of every layout in this process, in an order drawn from its number."""
    rng = random.Random(args.process)
    device = open_device(0)
    found: dict[str, Any] = {"provenance": gpu_files.provenance(device), "ratios": {}}
    with gpu_lock(device.info.uuid, timeout_s=600.0), tempfile.TemporaryDirectory(prefix="xtrace-layouts-") as made:
        folders = Folders(args.corpus, Path(made), Path(made), args.library, args.input_cache)
        for workload in args.workloads:
            spliced(args, workload, Path(made) / workload)
            case = gpu_cells.make_case(device, folders, workload, "default")
            for layout in rng.sample(args.layouts, len(args.layouts)):
                found["ratios"][f"{workload}:{layout}"] = one(args, device, case, f"layout{layout}", rng)
            case.close()
    return found


def spliced(args: argparse.Namespace, workload: str, folder: Path) -> None:
    folder.mkdir(parents=True)
    image = parse((args.corpus / workload / "original.cubin").read_bytes(), workload)
    for layout in args.layouts:
        result = apply(plan(image, list(image.kernels), args.probes, Options(layout=layout)))
        (folder / f"layout{layout}.cubin").write_bytes(result.data)
        (folder / f"layout{layout}.cubin.map.json").write_text(json.dumps(result.map))


def one(args: argparse.Namespace, device: Any, case: Any, name: str, rng: random.Random) -> list[float]:
    traced = case.instrument("xtrace", name)
    try:

        def outputs(arm: Any) -> Any:
            def launched() -> Any:
                arm.launch(0)
                return case.outputs(arm)

            return launched

        compared = check_outputs(
            device, [outputs(case.original)], outputs(traced.arm), case.poison, repeats=1, timeout_s=60.0
        )
        if compared.bit_identical is False:
            raise BadInput("XT7436", f"{name}: outputs differ from the original's", where=case.workload)
        options = PairedOptions(blocks=args.blocks, control_blocks=0, warm_up_s=1.0)
        result = run_paired(device, case.original, case.again, traced.arm, rng, options)
        return [block_ratio(b) for b in result.blocks if b["kind"] == "AB" and not voided(b)]
    finally:
        traced.close()


def main(arguments: Sequence[str]) -> int:
    args = parser().parse_args(arguments)
    if args.process is not None:
        write_json(args.out, replicate(args))
        return 0
    processes = []
    for number in range(args.processes):
        with tempfile.TemporaryDirectory(prefix="xtrace-layouts-") as made:
            out = Path(made) / "replicate.json"
            command = [sys.executable, __file__, *arguments, "--process", str(number), "--out", str(out)]
            subprocess.run(command, check=True)
            processes.append(gpu_files.read_json(out))
        print(f"process {number} done", flush=True)
    write_json(args.out, {"schema": SCHEMA, "probes": args.probes, "processes": processes})
    for workload in args.workloads:
        means = {}
        for layout in args.layouts:
            thetas = [hodges_lehmann(p["ratios"][f"{workload}:{layout}"]) for p in processes]
            means[layout] = sum(thetas) / len(thetas)
            spread = ", ".join(f"{percent(t):+.2f}" for t in thetas)
            print(f"{workload:40} layout {layout:2}  {percent(means[layout]):+6.2f} %  ({spread})")
        print(f"{workload:40} fastest: {min(means, key=lambda n: means[n])}")
    return 0


if __name__ == "__main__":
    run(main)
