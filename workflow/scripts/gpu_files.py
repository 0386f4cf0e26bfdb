"""Files around a measurement: names of cells, corpus and traced images, generated inputs, provenance."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import xtrace
from workflow.kernels import cases
from xtrace.errors import BadInput, Unsupported
from xtrace.runtime.device import Device

__all__ = ["CellName", "Folders", "flat_bytes", "load_inputs", "provenance", "read_bytes", "read_json"]


class CellName(NamedTuple):
    """One unit of the overhead table; written ``workload:tracer:probes``."""

    workload: str
    tracer: str
    probes: str

    @classmethod
    def parse(cls, text: str) -> CellName:
        parts = text.split(":")
        if len(parts) != 3 or not all(parts):
            raise BadInput("XT7431", f"not a cell: {text!r}", hint="write workload:tracer:probes")
        return cls(*parts)

    def __str__(self) -> str:
        return ":".join(self)

    def file(self, folder: Path, process: int) -> Path:
        return folder / f"{self.workload}.{self.tracer}.{self.probes}.{process}.json"


@dataclass(frozen=True)
class Folders:
    """Where the pipeline keeps its files."""

    corpus: Path
    traced: Path
    baselines: Path
    library: Path | None = None  # wheel or directory of the attention package; None: as installed
    inputs: Path | None = None  # cache of generated inputs
    base: Path | None = None  # traced images that an older revision made

    def original(self, workload: str) -> tuple[bytes, dict[str, Any]]:
        folder = self.corpus / workload
        meta = read_json(folder / "meta.json")
        image = read_bytes(folder / "original.cubin")
        if hashlib.sha256(image).hexdigest() != meta["sha256"]:
            raise BadInput("XT7432", "the image is not the one of its meta.json", where=str(folder))
        return image, meta

    def traced_image(self, workload: str, probes: str) -> tuple[bytes, dict[str, Any]]:
        return _traced_image(self.traced, workload, probes)

    def image_hashes(self, cell: CellName) -> dict[str, str]:
        """SHA-256 of the images that a measurement of ``cell`` times; those that are there."""
        instrumented = self.traced / cell.workload / f"{cell.probes}.cubin"
        if cell.tracer != "xtrace":
            instrumented = self.baselines / cell.tracer / cell.workload / cell.probes / "instrumented.cubin"
        files = {"original": self.corpus / cell.workload / "original.cubin", "instrumented": instrumented}
        return {name: hashlib.sha256(read_bytes(p)).hexdigest() for name, p in files.items() if p.is_file()}

    def base_image(self, workload: str, probes: str) -> tuple[bytes, dict[str, Any]]:
        """The traced image of the older revision."""
        if self.base is None:
            raise BadInput("XT7433", "no folder of older traced images was given", where=workload)
        failed = self.base / workload / f"{probes}.failed.txt"
        if failed.is_file():
            reason = read_bytes(failed).decode(errors="replace").strip()
            raise Unsupported("XT7435", f"the older revision cannot trace this: {reason}", where=workload)
        return _traced_image(self.base, workload, probes)


def _traced_image(folder: Path, workload: str, probes: str) -> tuple[bytes, dict[str, Any]]:
    image = folder / workload / f"{probes}.cubin"
    maps = [image.with_name(image.name + ".map.json"), image.with_name(f"{probes}.map.json")]
    found = next((m for m in maps if m.is_file()), maps[0])
    return read_bytes(image), read_json(found)


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput("XT7433", f"cannot be read: {error.strerror}", where=str(path)) from error


def read_json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(read_bytes(path))
    except ValueError as error:
        raise BadInput("XT7433", f"is not JSON: {error}", where=str(path)) from error
    if not isinstance(document, dict):
        raise BadInput("XT7433", "must be a JSON object", where=str(path))
    return document


def load_inputs(workload: str, sizes: Mapping[str, int], seed: int, cache: Path | None) -> dict[str, np.ndarray]:
    """Random inputs, from the cache folder if they were made before."""
    key = hashlib.sha256(json.dumps([workload, dict(sizes), seed]).encode()).hexdigest()[:16]
    folder = None if cache is None else cache / f"{workload}-{key}"
    if folder is not None and (folder / "done").is_file():
        return {p.stem: np.load(p, mmap_mode="r", allow_pickle=False) for p in sorted(folder.glob("*.npy"))}
    made = cases.make(workload, sizes, seed).inputs
    if folder is not None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Whole or not at all: jobs on other GPUs may be reading, or making, the same inputs.
        fresh = Path(tempfile.mkdtemp(prefix=".inputs-", dir=folder.parent))
        for name, array in made.items():
            np.save(fresh / f"{name}.npy", array, allow_pickle=False)
        (fresh / "done").touch()
        try:
            fresh.rename(folder)
        except OSError:  # another job was faster
            shutil.rmtree(fresh, ignore_errors=True)
    return made


def flat_bytes(array: np.ndarray) -> memoryview:
    return memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def provenance(device: Device, clocks: str = "unlocked") -> dict[str, Any]:
    """Everything about the machine and the software that a number depends on; ``clocks`` as the operator set them."""
    info = device.info
    return {
        "device": info.name,
        "uuid": info.uuid,
        "driver": info.driver,
        "cuda": info.cuda,
        "multiprocessors": info.multiprocessors,
        "l2_bytes": info.l2_bytes,
        "torch": _version("torch"),
        "triton": _version("triton"),
        "cuda_bindings": _version("cuda-bindings"),
        "python": ".".join(map(str, sys.version_info[:3])),
        "clocks": clocks,
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "git": git_commit(),
        "xtrace": xtrace.__version__,
    }


def _version(package: str) -> str:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return ""


def git_commit() -> str:
    """Commit of the working tree (``+`` appended if it has changes); ``$XTRACE_GIT`` where there is no repository."""
    if given := os.environ.get("XTRACE_GIT"):
        return given
    root = Path(__file__).resolve().parents[2]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        head = subprocess.run(
            ["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=20, check=True
        )
        dirty = subprocess.run(
            ["git", "-C", root, "status", "--porcelain", "-uno"], capture_output=True, text=True, timeout=20
        )
        return head.stdout.strip() + ("+" if dirty.stdout.strip() else "")
    return ""
