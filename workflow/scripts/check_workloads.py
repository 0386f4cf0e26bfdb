#!/usr/bin/env python3
"""Run every workload on this machine's GPU, compare its outputs with the reference, and time it.

Needs an NVIDIA GPU, torch (for the references) and Triton (to compile, unless --corpus has the images).
Inputs are random, outputs are poisoned with NaN before the launch. Exit code 1 if any workload is wrong.
Times are medians of single launches between two events, the L2 cache overwritten before each.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from workflow.kernels import cases, wheels
from workflow.kernels.registry import WORKLOADS, spec
from workflow.kernels.suite import SUITE, make_corpus, read_suite
from workflow.scripts.common import read_json, run, write_json
from xtrace.errors import BadInput, XtraceError
from xtrace.runtime.device import Device, LaunchConfig, open_device
from xtrace.runtime.launch import bind

Row = dict[str, Any]
DTYPES = {"bf16": np.uint16, "fp32": np.float32, "i32": np.int32}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="workloads of the suite; default: all")
    parser.add_argument("--shapes", nargs="+", default=["check", "default"], help="names of shapes in the suite")
    parser.add_argument(
        "--variants", action="store_true", help="every variant of every Triton kernel, not only the default"
    )
    parser.add_argument("--corpus", type=Path, metavar="DIR", help="take images from DIR/WORKLOAD instead of compiling")
    parser.add_argument("--launches", type=int, default=30, help="timed launches")
    parser.add_argument("--suite", type=Path, default=SUITE)
    args = parser.parse_args(arguments)
    suite = read_suite(args.suite)
    names = args.only or list(suite)
    if unknown := [n for n in names if n not in suite]:
        raise BadInput(
            "XT7101", f"no workload named {unknown[0]!r}", where=str(args.suite), hint=f"known: {', '.join(suite)}"
        )
    device = open_device()
    print(f"{device.info.name}, driver {device.info.driver}, {device.info.multiprocessors} multiprocessors")
    rows: list[Row] = []
    for name in names:
        entry = suite[name]
        variants = list(spec(name).variants) if args.variants and name in WORKLOADS else ["default"]
        for variant in variants:
            for label in args.shapes:
                if label not in entry["shapes"]:
                    continue
                row: Row = {"workload": name, "variant": variant, "shape": label}
                try:
                    check = _check_triton if entry["kind"] == "triton" else _check_library
                    row |= check(device, name, entry, variant, label, args)
                except XtraceError as error:
                    row |= {"ok": False, "error": str(error)}
                except Exception as error:  # one broken workload must not hide the others
                    row |= {"ok": False, "error": f"{type(error).__name__}: {error}"}
                rows.append(row)
                print(_line(row), flush=True)
                write_json(
                    args.out, {"schema": "xtrace/workload-check/1", "device": device.info.as_dict(), "rows": rows}
                )
    return 0 if all(row["ok"] for row in rows) else 1


def _check_triton(
    device: Device, name: str, entry: Mapping[str, Any], variant: str, label: str, args: argparse.Namespace
) -> Row:
    with tempfile.TemporaryDirectory(prefix="xtrace-check-") as folder:
        place = args.corpus / name if args.corpus and variant == "default" else Path(folder)
        if place == Path(folder):
            make_corpus(name, place, variant, lambda line: None, args.suite)
        meta = read_json(place / "meta.json")
        image = (place / "original.cubin").read_bytes()
    launch, shape = meta["launch"], meta["launch"]["shapes"][label]
    case = cases.make(name, shape["sizes"], entry["seed"])
    types = {p["name"]: p["type"].removeprefix("*") for p in launch["parameters"]}
    addresses: dict[str, int] = {}
    module = device.load(image)
    try:
        for key, buffer in shape["buffers"].items():
            addresses[key] = device.allocate(buffer["bytes"])
            if buffer["role"] == "output":
                device.fill(addresses[key], buffer["bytes"], 0xFF)  # NaN in every float format
            else:
                device.upload(addresses[key], np.ascontiguousarray(case.inputs[key]).tobytes())
        kernel = module.kernel(meta["kernel"])
        prepared = kernel.prepare(bind(launch["parameters"], {**addresses, **shape["scalars"]}))
        grid, block = tuple(shape["grid"]), tuple(launch["block"])
        config = LaunchConfig(grid, block, launch["shared"])
        kernel.launch(config, prepared)
        device.synchronize()
        outputs = {
            key: np.frombuffer(device.download(addresses[key], buffer["bytes"]), DTYPES[types[key]])
            for key, buffer in shape["buffers"].items()
            if buffer["role"] == "output"
        }
        row = _compare(case, outputs, entry["tolerances"])
        nanoseconds = _time(device, lambda: kernel.launch(config, prepared), args.launches)
        return row | _speed(nanoseconds, shape["work"]) | {"ctas": config.ctas, "sizes": shape["sizes"]}
    finally:
        for address in addresses.values():
            device.free(address)
        module.unload()


def _check_library(
    device: Device, name: str, entry: Mapping[str, Any], variant: str, label: str, args: argparse.Namespace
) -> Row:
    """The library's own call in this process, its code unchanged; times are device times of the whole call."""
    import torch

    library = entry["library"]
    folder = Path(
        tempfile.gettempdir(), f"xtrace-{library['package']}-{wheels.pins()[library['package']]['sha256'][:16]}"
    )
    if not folder.is_dir():
        part = folder.with_name(folder.name + ".part")
        with zipfile.ZipFile(wheels.fetch(library["package"], print)) as archive:
            archive.extractall(part)
        part.rename(folder)
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    function = getattr(__import__(library["python"]["module"]), library["python"]["function"])
    case = cases.make(name, entry["shapes"][label], entry["seed"])
    tensors = [torch.from_numpy(case.inputs[k].view(np.int16)).cuda().view(torch.bfloat16) for k in "QKV"]
    arguments = library["python"]["arguments"]

    def call() -> Any:
        out = function(*tensors, **arguments)
        return out[0] if isinstance(out, tuple) else out

    out = call()
    torch.cuda.synchronize()
    row = _compare(case, {"OUT": out.view(torch.int16).cpu().numpy().view(np.uint16).ravel()}, entry["tolerances"])
    s = entry["shapes"][label]
    flop = 4.0 * s["batch"] * s["heads"] * s["seqlen"] ** 2 * s["head_dim"] / 2
    return row | _speed(_time(device, call, args.launches), {"unit": "flop", "amount": flop}) | {"sizes": dict(s)}


def _compare(case: cases.Case, outputs: Mapping[str, Any], tolerances: Mapping[str, float]) -> Row:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False

    def lift(array: Any) -> Any:
        if array.dtype == np.uint16:
            return torch.from_numpy(array.view(np.int16).copy()).cuda().view(torch.bfloat16).double()
        tensor = torch.from_numpy(np.array(array)).cuda()
        return tensor.long() if array.dtype.kind == "i" else tensor.double()

    reference = case.reference(torch, lift)
    errors = {
        key: cases.relative_error(torch, lift(value).reshape(reference[key].shape), reference[key])
        for key, value in outputs.items()
    }
    torch.cuda.synchronize()
    del reference
    torch.cuda.empty_cache()
    ok = all(errors[key] <= tolerances[key] for key in errors)
    # JSON has no infinity: an output that still holds poison is shown as null.
    return {
        "ok": ok,
        "errors": {k: v if v != float("inf") else None for k, v in errors.items()},
        "tolerances": dict(tolerances),
    }


def _time(device: Device, launch: Callable[[], Any], launches: int) -> list[float]:
    size = 2 * device.info.l2_bytes // 4 * 4
    scratch = device.allocate(size)
    pairs = [(device.event(), device.event()) for _ in range(launches)]
    try:
        for _ in range(5):
            launch()
        for start, end in pairs:
            device.fill(scratch, size, 0)
            start.record()
            launch()
            end.record()
        device.synchronize()
        return [device.elapsed_ns(start, end) for start, end in pairs]
    finally:
        device.free(scratch)


def _speed(nanoseconds: Sequence[float], work: Mapping[str, Any]) -> Row:
    median = statistics.median(nanoseconds)
    rate = work["amount"] / median / (1e3 if work["unit"] == "flop" else 1.0)
    unit = "TFLOP/s" if work["unit"] == "flop" else "GB/s"
    return {"median_us": median / 1e3, "min_us": min(nanoseconds) / 1e3, "rate": rate, "unit": unit}


def _line(row: Row) -> str:
    head = f"{'ok   ' if row['ok'] else 'WRONG'} {row['workload']:28} {row['variant']:14} {row['shape']:8}"
    if "error" in row:
        return f"{head} {row['error']}"
    errors = ", ".join(f"{k} {'not finite' if v is None else f'{v:.2e}'}" for k, v in row["errors"].items())
    return f"{head} {row['median_us']:9.1f} us {row['rate']:8.1f} {row['unit']:8} error {errors}"


if __name__ == "__main__":
    run(main)
