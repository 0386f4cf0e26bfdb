"""``xtrace doctor``: what this machine can do, and what is missing. Never fails: a missing part is an answer."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import click

from xtrace import __version__
from xtrace.errors import MissingTool, XtraceError

__all__ = ["Finding", "command", "examine"]


@dataclass(frozen=True)
class Finding:
    """One line of the report. ``needed_for`` names what does not work without it; ``hint`` says what to do."""

    name: str
    ok: bool
    detail: str
    needed_for: str
    hint: str = ""


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _package(package: str, module: str, needed_for: str, hint: str) -> Finding:
    """An installed distribution; it is not imported, so that a broken one cannot break the report."""
    version = _version(package)
    found = version is not None or _importable(module)
    return Finding(
        package, found, version or ("found" if found else "not installed"), needed_for, "" if found else hint
    )


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _tool(name: str, path: str | None, needed_for: str, hint: str) -> Finding:
    """An external program and what it says its version is."""
    if path is None:
        return Finding(name, False, "not found", needed_for, hint)
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return Finding(name, False, f"cannot be run: {error}", needed_for, hint)
    lines = [line.strip() for line in done.stdout.splitlines() if "release" in line or line.startswith("Build")]
    return Finding(name, done.returncode == 0, (lines or done.stdout.splitlines() or ["?"])[0].strip(), needed_for)


def _in_package(package: str, *parts: str) -> str | None:
    """A program inside an installed package."""
    spec = importlib.util.find_spec(package) if _importable(package) else None
    for folder in (spec.submodule_search_locations or []) if spec else []:
        candidate = Path(folder).joinpath(*parts)
        if candidate.is_file():
            return str(candidate)
    return None


def _nvdisasm() -> Finding:
    from xtrace.isa.nvidia.disasm import find_nvdisasm

    needed, hint = "inspect, plan, splice, verify, diff", "pip install nvidia-cuda-nvdisasm"
    try:
        return _tool("nvdisasm", str(find_nvdisasm()), needed, hint)
    except MissingTool as error:
        return Finding("nvdisasm", False, error.what, needed, error.hint or hint)


def _ptxas() -> Finding:
    path = _in_package("triton", "backends", "nvidia", "bin", "ptxas") or shutil.which("ptxas")
    return _tool("ptxas", path, "compiling kernels, PTX baselines", "pip install 'xtrace[kernels]'")


def _gpu() -> list[Finding]:
    """Driver, GPU and telemetry; opening the device does not disturb a running job."""
    from xtrace.runtime.device import open_device
    from xtrace.runtime.nvml import Nvml

    needed = "running traced kernels, measuring overhead"
    try:
        device = open_device()
    except XtraceError as error:
        return [Finding("GPU", False, error.what, needed, "run on a machine with an NVIDIA GPU and driver")]
    info = device.info
    memory = f"{info.memory_bytes >> 30} GiB, {info.multiprocessors} SMs, L2 {info.l2_bytes >> 20} MiB"
    now = device.telemetry()
    state = f"SM clock {now.sm_clock_mhz} MHz, {now.temperature_c} C, throttle: {now.throttle}"
    return [
        Finding("driver", True, f"{info.driver or 'unknown'}, CUDA {info.cuda}", needed),
        Finding("GPU", True, f"{info.name} ({info.arch}), {memory}, {info.uuid}", needed),
        Finding("telemetry", Nvml(info.uuid).available, state, "clock and throttle checks of measurements"),
    ]


def _space() -> Finding:
    free = shutil.disk_usage(Path.cwd()).free >> 30
    return Finding(
        "disk", free >= 2, f"{free} GiB free here", "results and library copies", "" if free >= 2 else "free 2 GiB"
    )


def _cache() -> Finding:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "xtrace"
    used = sum(p.stat().st_size for p in base.rglob("*") if p.is_file()) >> 20 if base.is_dir() else 0
    parent = next(p for p in (base, *base.parents) if p.exists())
    writable = os.access(parent, os.W_OK)
    hint = "" if writable else "set XDG_CACHE_HOME to a writable folder"
    return Finding("cache", writable, f"{used} MiB used", "downloaded packages", hint)


def examine() -> list[Finding]:
    """Everything that Xtrace may need, with what was found."""
    gpu = "pip install 'xtrace[gpu]'"
    kernels = "pip install 'xtrace[kernels]'"
    probes: list[Callable[[], Finding | list[Finding]]] = [
        _nvdisasm,
        _ptxas,
        lambda: _package("cuda-bindings", "cuda.bindings", "running traced kernels", gpu),
        _gpu,
        lambda: _package("triton", "triton", "own kernels, the Proton baseline", kernels),
        lambda: _package("torch", "torch", "FlashAttention-3, reference checks", "pip install 'xtrace[torch]'"),
        lambda: _package(
            "fa3-fwd", "fa3_fwd_interface", "FlashAttention-3 on this machine", "pip install fa3-fwd==0.0.3"
        ),
        lambda: _package("snakemake", "snakemake", "the pipeline", "pip install xtrace"),
        _cache,
        _space,
    ]
    findings: list[Finding] = []
    for probe in probes:
        try:
            found = probe()
        except Exception as error:  # a broken part must not hide the others
            found = Finding(
                getattr(probe, "__name__", "?").strip("_<>"), False, f"{type(error).__name__}: {error}", "?"
            )
        findings += found if isinstance(found, list) else [found]
    return findings


def abilities(findings: list[Finding]) -> dict[str, bool]:
    """What follows for the user."""
    ok = {f.name: f.ok for f in findings}
    tools = ok.get("nvdisasm", False)
    running = ok.get("GPU", False) and ok.get("cuda-bindings", False)
    return {
        "inspect, plan, splice, verify, diff": tools,
        "compile the suite's Triton kernels": ok.get("triton", False) and ok.get("ptxas", False),
        "run traced kernels and measure overhead": running,
        "trace FlashAttention-3 inside PyTorch": running and ok.get("torch", False) and ok.get("fa3-fwd", False),
    }


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(as_json: bool) -> None:
    """Say what this machine can do, and what is missing. Always exits with 0."""
    findings = examine()
    able = abilities(findings)
    system = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    if as_json:
        document = {
            "xtrace": __version__,
            "system": system,
            "executable": Path(sys.executable).name,
            "findings": [asdict(f) for f in findings],
            "abilities": able,
        }
        click.echo(json.dumps(document, indent=1))
        return
    click.echo(f"xtrace {__version__}, {system}\n")
    width = max(len(f.name) for f in findings)
    for f in findings:
        click.echo(f"  {'ok     ' if f.ok else 'missing'}  {f.name:{width}}  {f.detail}")
        if not f.ok:
            click.echo(f"  {'':7}  {'':{width}}  needed for: {f.needed_for}" + (f"; {f.hint}" if f.hint else ""))
    click.echo("\nThis machine can")
    for what, yes in able.items():
        click.echo(f"  {'yes' if yes else 'no ':3}  {what}")
