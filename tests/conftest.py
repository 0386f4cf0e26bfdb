"""Tiers, and the images that tests read.

Small images of our own kernels are committed in ``tests/golden``. Images of the suite's workloads
(``configs/suite.yaml``; third-party code is never committed) are looked up in ``results/corpus`` and ``.cache/corpus``
and built once into the latter. ``XTRACE_REQUIRE=golden,network`` turns "not available" from a visible skip into a
failure: a continuous integration run must not go green because nothing could be tested.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).resolve().parents[1]
TIERS = ("golden", "network", "gpu", "slurm", "fuzz")
REQUIRED = frozenset(filter(None, os.environ.get("XTRACE_REQUIRE", "").split(",")))


def have_gpu() -> bool:
    """Whether an NVIDIA GPU answers (asked of the driver's own tool, so that no test imports a driver binding)."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return False
    done = subprocess.run([tool, "-L"], capture_output=True, text=True, check=False, timeout=60)
    return done.returncode == 0 and "GPU" in done.stdout


def unavailable(tier: str, reason: str) -> NoReturn:
    """Skip visibly, or fail when this tier is required."""
    if tier in REQUIRED:
        pytest.fail(f"{tier} tests are required here, but {reason}")
    pytest.skip(reason)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    missing: dict[str, str] = {}
    wanted = {mark.name for item in items for mark in item.iter_markers()}
    if "gpu" in wanted and not have_gpu():
        missing["gpu"] = "no NVIDIA GPU here"
    if "slurm" in wanted and shutil.which("slurmctld") is None and "slurm" not in REQUIRED:
        missing["slurm"] = "slurmctld is not installed"
    if os.environ.get("XTRACE_OFFLINE") == "1":
        missing["network"] = "XTRACE_OFFLINE=1"
    for item in items:
        for tier, reason in missing.items():
            if item.get_closest_marker(tier):
                item.add_marker(pytest.mark.skip(reason=f"{tier}: {reason}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line per tier: how many tests really ran."""
    ran: dict[str, Counter[str]] = {tier: Counter() for tier in ("unit", *TIERS)}
    for outcome in ("passed", "failed", "skipped", "error"):
        for report in terminalreporter.stats.get(outcome, []):
            if outcome == "passed" and report.when != "call":
                continue
            tier = next((t for t in TIERS if t in getattr(report, "keywords", {})), "unit")
            ran[tier][outcome] += 1
    terminalreporter.section("tests by tier")
    for tier, count in ran.items():
        if count:
            terminalreporter.write_line(f"{tier:8s} " + ", ".join(f"{n} {outcome}" for outcome, n in count.items()))


@pytest.fixture(scope="session")
def golden_image() -> Callable[[str], Path]:
    """Path of a committed image: ``golden_image("triton_softmax")``."""

    def image(name: str) -> Path:
        path = ROOT / "tests" / "golden" / f"{name}.cubin"
        assert path.is_file(), f"no golden image {path}"
        return path

    return image


@pytest.fixture(scope="session")
def workload_image() -> Callable[[str], Path]:
    """Path of a workload's original image: ``workload_image("fa3_fwd_hd128_causal")``; may build or download it."""
    places = [ROOT / "results" / "corpus", ROOT / ".cache" / "corpus"]

    def find(workload: str) -> Path | None:
        return next((path for place in places if (path := place / workload / "original.cubin").is_file()), None)

    def image(workload: str) -> Path:
        if (path := find(workload)) is not None:
            return path
        script = ROOT / "workflow" / "scripts" / "build_corpus.py"
        command = [sys.executable, str(script), workload, "--out", str(places[1] / workload)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=900)
        if done.returncode != 0 or (path := find(workload)) is None:
            unavailable("golden", f"{workload} could not be built: {(done.stderr or done.stdout).strip()[-300:]}")
        return path

    return image
