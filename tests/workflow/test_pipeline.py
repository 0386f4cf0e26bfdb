"""The whole pipeline on two small kernels, in a copy of the tree; and what it says before it starts anything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conftest import have_gpu
from workflow.scripts import certificate_table, overhead_table, preservation_table
from workflow.scripts.common import read_table

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("Snakefile", "workflow", "configs", "baselines", "xtrace", "profiles")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources without any result."""
    folder = tmp_path_factory.mktemp("tree")
    for part in PARTS:
        (folder / part).symlink_to(ROOT / part)
    (folder / "results").mkdir()
    (folder / "results" / "recorded").mkdir()
    return folder


def snakemake(tree: Path, *arguments: str, code: int = 0) -> str:
    command = [str(Path(sys.executable).with_name("snakemake")), "--cores", "2", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tree, timeout=900)
    output = done.stdout + done.stderr
    assert done.returncode == code, output[-4000:]
    return output


def test_the_default_configuration_has_a_complete_plan(tree: Path) -> None:
    output = snakemake(tree, "--dry-run", "--quiet", "reason")
    for rule in (
        "corpus",
        "splice",
        "verify",
        "baseline",
        "preservation",
        "statistics",
        "plot_overhead",
        "report",
        "enforce",
    ):
        assert rule in output


def test_the_linter_has_nothing_to_say(tree: Path) -> None:
    assert "Congratulations" in snakemake(tree, "--lint")


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("overhead=sometimes", "--config: overhead: 'sometimes' is not allowed (allowed: auto, measure, recorded)"),
        ("probes=[sche,ppp]", "probes[1]: 'ppp' is not defined in configs/matched_sites.yaml (did you mean 'pp'?"),
        ("workloadz=1", "workloadz: unknown key (did you mean 'workloads'?"),
    ],
)
def test_a_mistake_in_the_configuration_is_one_line(tree: Path, override: str, words: str) -> None:
    output = snakemake(tree, "--dry-run", "--config", override, code=2)
    lines = [line for line in output.splitlines() if line.startswith("error[")]
    assert len(lines) == 1
    assert words in lines[0]
    assert "Traceback" not in output


@pytest.mark.skipif(have_gpu(), reason="there is a GPU here")
def test_measuring_without_a_gpu_is_refused_before_anything_runs(tree: Path) -> None:
    output = snakemake(tree, "--dry-run", "--config", "overhead=measure", code=2)
    assert "needs an NVIDIA GPU, and none answers" in output


@pytest.mark.golden
def test_from_source_to_report(tree: Path) -> None:
    snakemake(tree, "--configfile", "configs/quick.yaml")
    results = tree / "results"
    certificates = read_table(results / "certificates.csv", certificate_table.COLUMNS)
    assert set(certificates["status"]) == {"PASS"}
    preservation = read_table(results / "preservation.csv", preservation_table.COLUMNS)
    ours = preservation[preservation["tracer"] == "xtrace"]
    assert set(ours["relocated"]) == {"1.0"}
    assert set(preservation["tracer"]) == {"xtrace", "proton", "ptx-probe"}
    assert (preservation[preservation["status"] == "ok"]["sites"] != "").all()
    overhead = read_table(results / "overhead.csv", overhead_table.COLUMNS)
    assert set(overhead["source"]) == {"not measured"}
    report = (results / "report.html").read_text()
    assert "Not available" not in report
    assert "Overhead was not measured" in report
    assert "promises" in (results / "verified.txt").read_text()
    trace_map = json.loads((results / "traced" / "softmax_triton" / "pp.cubin.map.json").read_text())
    assert trace_map["schema"] == "xtrace/map/5"  # short clocks, stripes

    again = snakemake(tree, "--configfile", "configs/quick.yaml")
    assert "Nothing to be done" in again

    snakemake(tree, "--configfile", "configs/quick.yaml", "--report", "report.zip")
    assert len(zipfile.ZipFile(tree / "report.zip").namelist()) > 10


def test_with_a_gpu_every_cell_is_measured_in_fresh_processes(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text('#!/bin/sh\necho "GPU 0: a model (UUID: GPU-0)"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    log = snakemake(
        tree,
        "--dry-run",
        "--printshellcmds",
        "--configfile",
        "configs/quick.yaml",
        "--config",
        "overhead=auto",
        "timelines=[softmax_triton]",
    )
    jobs = dict(line.split() for line in log.splitlines() if len(line.split()) == 2 and line.split()[1].isdigit())
    assert jobs["measure"] == "2"
    assert "--cells xtrace:sche xtrace:pp proton:sche ptx-probe:sche --processes 6" in log
    assert jobs["trace"] == "1"
    assert jobs["plot_timeline"] == "1"


def test_devices_of_a_cluster_are_jobs_of_their_own(tree: Path) -> None:
    """Planned without a GPU at hand; what cannot be traced needs none."""
    two = ["--config", "workloads=[softmax_triton,rmsnorm_triton]"]
    log = snakemake(tree, "--dry-run", "--configfile", "configs/cluster.yaml", *two)
    jobs = dict(line.split() for line in log.splitlines() if len(line.split()) == 2 and line.split()[1].isdigit())
    assert (jobs["measure_on"], jobs["no_device"]) == ("4", "4")
    assert "trace" not in jobs
    assert "no measurement: softmax_triton on mi300x, AMD architecture gfx942 is not modelled yet" in log


RULES = """
import json
from pathlib import Path
from snakemake.api import SnakemakeApi
from snakemake.settings.types import OutputSettings, Quietness, ResourceSettings
with SnakemakeApi(OutputSettings(quiet={Quietness.ALL})) as api:
    workflow = api.workflow(resource_settings=ResourceSettings(cores=1), snakefile=Path("Snakefile"))
    rules = {r.name: ["gpu" in r.resources.keys(), r._restart_times] for r in workflow._workflow.rules}
print(json.dumps(rules))
"""


def test_timed_rules_are_never_tried_again_and_build_rules_are(tree: Path) -> None:
    """Whatever a profile says: a measurement that is repeated until it works out proves nothing."""
    done = subprocess.run([sys.executable, "-c", RULES], capture_output=True, text=True, check=True, cwd=tree)
    rules = json.loads(done.stdout.splitlines()[-1])
    timed = {name for name, (gpu, _) in rules.items() if gpu}
    assert {"measure", "measure_on", "trace", "measure_gate", "calibrate"} <= timed
    assert {rules[name][1] for name in timed} == {0}
    assert {rules[name][1] for name in ("corpus", "splice", "verify", "baseline")} == {2}
