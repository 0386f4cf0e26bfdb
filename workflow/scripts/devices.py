"""The devices of a run: which of them can be measured, what the others' rows say, and which GPU a job uses."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workflow.scripts.common import write_json
from xtrace.errors import MissingTool, Unsupported
from xtrace.isa import for_arch
from xtrace.stats.samples import CELL_KEYS, SCHEMA

__all__ = ["Target", "choose_gpu", "empty_folder", "gpu_answers", "listed_gpus", "measures", "targets", "write_empty"]

SIMULATED = "simulated"
DECISION = "XTRACE_MEASURES"


@dataclass(frozen=True)
class Target:
    """One entry of ``devices`` in the configuration. ``reason`` says why it cannot be measured; empty: it can."""

    name: str
    vendor: str
    arch: str
    gpu_model: str
    reason: str

    @property
    def options(self) -> str:
        """What the measuring script has to know about it."""
        model = f" --gpu-model {self.gpu_model}" if self.gpu_model else ""
        return f"--device {self.name} --vendor {self.vendor}{model}"


def targets(config: Mapping[str, Any]) -> dict[str, Target]:
    """The configured devices by name, in order; empty when the run measures on whatever GPU this machine has."""
    found = {}
    for entry in config.get("devices", ()):
        values = {key: str(entry.get(key, "")) for key in ("name", "vendor", "arch", "gpu_model")}
        found[values["name"]] = Target(**values, reason=_obstacle(values["vendor"], values["arch"], config["arch"]))
    return found


def _obstacle(vendor: str, arch: str, images: str) -> str:
    try:
        for_arch(arch)
    except Unsupported as error:
        return error.what
    if vendor == "amd":
        return "Xtrace drives no AMD device yet"
    if arch != images:
        return f"the images of this run are for {images}; {arch} needs a run with arch: {arch}"
    return ""


def listed_gpus() -> list[tuple[str, str]]:
    """(name, UUID) of the GPUs that the NVIDIA driver lists; empty without driver or GPU."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    done = subprocess.run([tool, "-L"], capture_output=True, text=True, check=False)
    return re.findall(r"^GPU \d+: (.+) \(UUID: (\S+)\)", done.stdout, re.MULTILINE) if done.returncode == 0 else []


def gpu_answers() -> bool:
    """Whether a job could measure here: the driver lists a GPU, or the user asked for the simulated one."""
    return os.environ.get("XTRACE_DEVICE") == SIMULATED or bool(listed_gpus())


def measures(config: Mapping[str, Any], file: str, *, decide: bool) -> bool:
    """Whether this run takes fresh samples.

    The main process decides, and jobs are told through the environment: a cluster's nodes may have other GPUs than the
    machine that plans the run. XT7411: measuring is asked for, no device is configured, and no GPU answers here.
    """
    if not decide and DECISION in os.environ:
        return os.environ[DECISION] == "1"
    wanted = config["overhead"] == "measure" or (config["overhead"] == "auto" and gpu_answers())
    if wanted and not config.get("devices") and not gpu_answers():
        raise MissingTool(
            "XT7411",
            "overhead: measure needs an NVIDIA GPU, and none answers",
            where=file,
            hint="use auto or recorded, or list the GPUs of a cluster under devices",
        )
    os.environ[DECISION] = "1" if wanted else "0"
    return wanted


def choose_gpu(vendor: str, model: str) -> str:
    """Make this process and its children use a GPU of this model; returns why that is impossible, or nothing.

    A scheduler's choice (``CUDA_VISIBLE_DEVICES``) is kept: it gave this job one GPU of the model that was asked for.
    """
    if vendor == SIMULATED:
        os.environ["XTRACE_DEVICE"] = SIMULATED
    if vendor == SIMULATED or not model:
        return ""
    gpus = listed_gpus()
    fitting = [uuid for name, uuid in gpus if re.search(rf"\b{re.escape(model)}\b", name, re.IGNORECASE)]
    if not fitting:
        there = ", ".join(sorted({name for name, _ in gpus})) or "no GPU"
        return f"no {model} here (the driver lists {there})"
    if not os.environ.get("CUDA_VISIBLE_DEVICES"):
        os.environ["CUDA_VISIBLE_DEVICES"] = fitting[0]
    return ""


def write_empty(
    path: Path, workload: str, tracer: str, probes: str, reason: str, *, device: str = "", process: int = 0
) -> None:
    """A sample document without samples: the tables show the cell as not measured, with the reason."""
    key = dict.fromkeys(CELL_KEYS, "") | {"workload": workload, "device": device, "tracer": tracer, "probes": probes}
    document: dict[str, Any] = {"schema": SCHEMA, "cell": key, "provenance": {}, "process": process}
    write_json(path, document | {"blocks": [], "checks": {}, "unsupported": reason})


def empty_folder(out: Path, workload: str, cells: Sequence[str], device: str, reason: str) -> None:
    """One document for every cell ``tracer:probes`` of a workload on a device that cannot be measured."""
    for cell in cells:
        tracer, probes = cell.split(":")
        path = out / f"{workload}.{tracer}.{probes}.0.json"
        write_empty(path, workload, tracer, probes, reason, device=device)
