"""Slurm tests run in the cluster that ``make test-slurm`` starts, never in another one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conftest import unavailable

STATE = Path("/run/xtrace-slurm-test")  # tests/slurm/single_node.sh


@pytest.fixture(scope="session")
def cluster() -> None:
    """The one-node test cluster with two make-believe GPUs."""
    if not STATE.is_dir():
        unavailable("slurm", "the test cluster is not up (make test-slurm starts it)")
    done = subprocess.run(["sinfo", "-h", "-o", "%G"], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0 or "gpu:h200:2" not in done.stdout:
        unavailable("slurm", f"the test cluster does not answer with two GPUs: {done.stdout} {done.stderr}")
