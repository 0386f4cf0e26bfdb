"""The examples for continuous integration do what they say: the verdict decides, and every command exists."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
ACTIONS = ROOT / "docs" / "examples" / "github-actions-gpu.yml"
SBATCH = ROOT / "docs" / "examples" / "slurm" / "gate.sbatch"


def steps() -> dict[str, str]:
    """Shell of the workflow's steps, by name."""
    document = yaml.safe_load(ACTIONS.read_text())
    return {s["name"]: s["run"] for s in document["jobs"]["gate"]["steps"] if "run" in s}


def program(folder: Path, name: str, script: str) -> None:
    path = folder / ".venv" / "bin" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)


def bash(script: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "GITHUB_STEP_SUMMARY": str(folder / "summary"), "SLURM_SUBMIT_DIR": str(folder)}
    command = ["bash", "-e", "-c", script, "step", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("gate", "code", "words"),
    [
        (0, 0, ""),
        (1, 1, "::error title=overhead::a cell is above its budget"),
        (2, 0, "::warning title=overhead::undecided"),
        (3, 3, "::error title=overhead::the machine was not fit"),
        (4, 4, "::error title=overhead::the gate could not be asked"),
    ],
)
def test_the_check_of_a_pull_request_is_the_verdict(tmp_path: Path, gate: int, code: int, words: str) -> None:
    program(tmp_path, "xtrace", f'echo "| cell | verdict |" > gate.md; exit {gate}')
    done = bash(steps()["verdict"], tmp_path)
    assert done.returncode == code
    assert words in done.stdout
    assert (tmp_path / "summary").read_text() == "| cell | verdict |\n"


@pytest.mark.parametrize(("snakemake", "gate", "code"), [(0, 0, 0), (0, 1, 1), (0, 2, 2), (0, 3, 3), (1, 0, 5)])
def test_the_exit_code_of_the_slurm_job_is_the_verdict(tmp_path: Path, snakemake: int, gate: int, code: int) -> None:
    program(tmp_path, "snakemake", f"echo snakemake $@; exit {snakemake}")
    program(tmp_path, "xtrace", f"exit {gate}")
    done = bash(SBATCH.read_text(), tmp_path, "v1.0")
    assert done.returncode == code, done.stderr
    assert "--config overhead=measure base=v1.0" in done.stdout


def test_the_older_revision_is_the_merge_base(tmp_path: Path) -> None:
    program(tmp_path, "snakemake", "echo snakemake $@")
    git = "git -c user.name=n -c user.email=e@example.org"
    made = bash(
        f"git init -q -b main; {git} commit -q --allow-empty -m one; git update-ref refs/remotes/origin/main HEAD;"
        f"{git} commit -q --allow-empty -m two; git rev-parse HEAD~1",
        tmp_path,
    )
    done = bash("export BASE_REF=main\n" + steps()["measure"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"base={made.stdout.strip()}" in done.stdout
    assert "snakemake gate" in done.stdout


def test_forks_never_reach_the_runner() -> None:
    job = yaml.safe_load(ACTIONS.read_text())["jobs"]["gate"]
    assert "head.repo.full_name == github.repository" in job["if"]
    assert "self-hosted" in job["runs-on"]
