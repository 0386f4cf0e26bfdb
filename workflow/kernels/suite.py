"""Reads the suite file, and makes the corpus folder of one workload out of it."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from workflow.kernels import wheels
from workflow.kernels.spec import KernelSpec, Variant
from xtrace.errors import BadInput, Unsupported
from xtrace.files import write_atomic

__all__ = ["SUITE", "launch_of", "make_corpus", "read_suite"]

SUITE = Path(__file__).resolve().parents[2] / "configs" / "suite.yaml"
KEYS = {"title", "kind", "kernel", "dtype", "seed", "shapes", "tolerances", "records_per_warp", "groups"}

Say = Callable[[str], None]
Made = tuple[dict[str, Any], dict[str, Any]]  # files by name, content of meta.json


def read_suite(path: Path = SUITE) -> dict[str, dict[str, Any]]:
    """Workloads by name. Raises ``BadInput`` XT7108 naming the workload and the key that is wrong."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        workloads = dict(document["workloads"])
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise BadInput("XT7108", f"not a suite: {error}", where=str(path)) from error
    for name, entry in workloads.items():
        if not isinstance(entry, dict):
            raise BadInput("XT7108", "a workload is a mapping", where=f"{path}: {name}")
        if missing := KEYS - entry.keys():
            raise BadInput("XT7108", f"lacks {', '.join(sorted(missing))}", where=f"{path}: {name}")
        if entry["kind"] not in ("triton", "library"):
            raise BadInput("XT7108", f"kind is {entry['kind']!r}", where=f"{path}: {name}", hint="triton or library")
        layouts = entry.get("layouts", {})
        if not isinstance(layouts, dict) or any(type(n) is not int for n in layouts.values()):
            raise BadInput("XT7108", "layouts gives numbers by group", where=f"{path}: {name}", hint="e.g. {pp: 4}")
        if "default" not in entry["shapes"]:
            raise BadInput("XT7108", "has no shape named default", where=f"{path}: {name}")
    return workloads


def make_corpus(
    workload: str, out: Path, variant: str = "default", say: Say = print, suite: Path = SUITE, arch: str = "sm_90a"
) -> None:
    """Write ``original.cubin`` and ``meta.json`` (Triton: also ``kernel.ptx`` and ``kernel.ttgir``) to ``out``.

    The same inputs give the same bytes. ``meta.json`` comes last: where it is, the folder is whole.
    Raises ``BadInput`` XT7101 for a workload that the suite does not have, ``Unsupported`` XT7109 for an architecture
    that a library's image is not pinned for, and the errors of compiling and downloading.
    """
    workloads = read_suite(suite)
    if workload not in workloads:
        raise BadInput(
            "XT7101", f"no workload named {workload!r}", where=str(suite), hint=f"known: {', '.join(workloads)}"
        )
    out.mkdir(parents=True, exist_ok=True)
    make = _from_source if workloads[workload]["kind"] == "triton" else _from_library
    files, meta = make(workload, workloads[workload], variant, arch, say)
    for name, data in files.items():
        write_atomic(out / name, data)
    write_atomic(out / "meta.json", json.dumps(meta, indent=1) + "\n")
    say(f"{workload}: {len(files['original.cubin'])} bytes, sha256 {meta['sha256'][:16]}")


def launch_of(spec: KernelSpec, choice: Variant, shape: Mapping[str, int]) -> dict[str, Any]:
    """Grid, buffers (bytes, who fills them) and scalar arguments of one launch.

    ``launch.parameters`` of ``meta.json`` gives the order of all of them. Its last two, appended by the compiler, are
    null as long as ``*_scratch_per_cta`` are 0.
    """
    buffers = {
        a.name: {"bytes": a.buffer_bytes(shape), "role": "output" if a.output else "input"}
        for a in spec.arguments
        if a.is_pointer
    }
    scalars = {a.name: a.value(shape) for a in spec.arguments if a.value is not None}
    kind, amount = spec.work(shape)
    grid = list(spec.grid(shape, choice.constants))
    return {"grid": grid, "buffers": buffers, "scalars": scalars, "work": {"unit": kind, "amount": amount}}


def _from_source(name: str, entry: Mapping[str, Any], variant: str, arch: str, say: Say) -> Made:
    from workflow.kernels.build import build
    from workflow.kernels.registry import spec

    kernel = spec(name)
    say(f"{name}: compiling {kernel.source}")
    built = build(kernel, arch, variant)
    meta = {"schema": "xtrace/corpus/1", **built.meta, "dtype": entry["dtype"], "seed": entry["seed"]}
    shapes = {
        label: {"sizes": dict(shape), **launch_of(kernel, kernel.variants[variant], shape)}
        for label, shape in entry["shapes"].items()
    }
    meta["launch"] = {**built.meta["launch"], "shapes": shapes}
    return {"original.cubin": built.cubin, "kernel.ptx": built.ptx, "kernel.ttgir": built.ttgir}, meta


def _from_library(name: str, entry: Mapping[str, Any], variant: str, arch: str, say: Say) -> Made:
    from xtrace import image

    library = entry["library"]
    if arch != library["arch"]:
        raise Unsupported("XT7109", f"is taken from the package for {library['arch']}, not for {arch}", where=name)
    wheels.fetch(library["package"], say)
    say(f"{name}: taking fatbin {library['fatbin']}, entry {library['entry']} out of {library['file']}")
    with tempfile.TemporaryDirectory(prefix="xtrace-library-") as folder:
        path = wheels.extract(library["package"], library["file"], Path(folder, Path(library["file"]).name))
        cubin = _fatbin_image(path, library["fatbin"], library["entry"])
    digest = hashlib.sha256(cubin).hexdigest()
    if digest != library["image_sha256"]:
        raise BadInput("XT7107", f"sha256 of the image is {digest}, pinned is {library['image_sha256']}", where=name)
    found = image.parse(cubin, name)
    (main,) = found.select(entry["kernel"])
    pin = wheels.pins()[library["package"]]
    meta = {
        "schema": "xtrace/corpus/1",
        "workload": name,
        "kernel": main.name,
        "kernels": [kernel.name for kernel in found.kernels],
        "arch": library["arch"],
        "variant": "default",
        "sha256": digest,
        "source": {
            "package": library["package"],
            "version": pin["version"],
            "wheel": pin["wheel"],
            "wheel_sha256": pin["sha256"],
            "file": library["file"],
            "file_sha256": pin["files"][library["file"]]["sha256"],
            "fatbin": library["fatbin"],
            "entry": library["entry"],
        },
        "toolchain": {library["package"]: pin["version"]},
        "dtype": entry["dtype"],
        "seed": entry["seed"],
        "launch": {
            "python": library["python"],
            "shapes": {label: {"sizes": dict(shape)} for label, shape in entry["shapes"].items()},
        },
        "loops": [],
    }
    return {"original.cubin": cubin}, meta


def _fatbin_image(path: Path, fatbin: int, entry: int) -> bytes:
    from xtrace.image import fatbin as reader

    with reader.open_library(path) as data:
        for container in reader.scan(data):
            if container.number == fatbin and entry < len(container.entries):
                return reader.payload(data, container.entries[entry], path.name)
    raise BadInput("XT7107", f"has no fatbin {fatbin} with an entry {entry}", where=path.name)
