"""The pipeline in a real Slurm: scheduling, GPUs, lost jobs. Only the GPUs are make-believe.

A first run builds, splices and traces, and loses a build job. A second one measures two workloads on a simulated
device. A third one loses a timed job.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from workflow.scripts import overhead_table
from workflow.scripts.common import read_json, read_table

pytestmark = pytest.mark.slurm

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("Snakefile", "workflow", "configs", "baselines", "xtrace", "profiles")
WORKLOADS = ("rmsnorm_triton", "softmax_triton")
SAMPLES = "results/overhead/devices/sim"
LOST = {"CANCELLED", "FAILED"}
CONFIG = """\
suite: configs/suite.yaml
matched_sites: configs/matched_sites.yaml
arch: sm_90a
devices:
  - {name: sim, vendor: simulated, arch: sm_90a, gpu_model: h200}
  - {name: b300, vendor: nvidia, arch: sm_103a, gpu_model: b300}
  - {name: mi300x, vendor: amd, arch: gfx942, gpu_model: mi300x}
workloads: [rmsnorm_triton, softmax_triton]
probes: [sche]
baselines: {tracers: [], groups: [pp]}
overhead: measure
recorded: results/recorded
timelines: []
measurement: {processes: 3, blocks: 4, control_blocks: 4, seed: 1, shape: check}
"""


@dataclass(frozen=True)
class Job:
    """A line of squeue; ``rule`` is what the executor writes into the comment."""

    number: int
    state: str
    start: str
    end: str
    memory: str
    rule: str

    @property
    def details(self) -> str:
        """What Slurm knows of it."""
        command = ["scontrol", "show", "job", "--oneliner", str(self.number)]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@dataclass(frozen=True)
class Run:
    """One call of snakemake, ended."""

    tree: Path
    code: int
    output: str
    jobs: list[Job]

    def of(self, rule: str) -> list[Job]:
        return [job for job in self.jobs if job.rule.startswith(f"rule_{rule}")]


def squeue() -> list[Job]:
    command = ["squeue", "-h", "-a", "-t", "all", "-o", "%i|%T|%S|%e|%m|%k"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    fields = (line.split("|") for line in done.stdout.splitlines())
    return sorted((Job(int(n), *rest) for n, *rest in fields), key=lambda job: job.number)


def run(tree: Path, *arguments: str, kill: str = "") -> Run:
    """Run the pipeline; if ``kill`` is given, kill the first job whose comment starts so as soon as it works."""
    earlier = {job.number for job in squeue()}
    snakemake = Path(sys.executable).with_name("snakemake")
    command = [str(snakemake), *arguments, "--workflow-profile", "profiles/slurm-ci", "--configfile", "config.yaml"]
    environment = {**os.environ, "XTRACE_DEVICE": "simulated"}
    log = tree / "snakemake.log"
    with log.open("w") as stream:
        child = subprocess.Popen(command, cwd=tree, env=environment, stdout=stream, stderr=subprocess.STDOUT)
    victim = None
    try:
        deadline = time.monotonic() + 300
        while child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.3)
            if not kill or victim is not None:
                continue
            for job in squeue():
                if job.number not in earlier and job.rule.startswith(kill) and job.state == "RUNNING":
                    victim = job.number
                    subprocess.run(["scancel", "--signal=KILL", "--full", str(victim)], check=True, timeout=60)
                    break
        code = child.poll()
    finally:
        child.kill()
        child.wait()
    assert code is not None, f"snakemake did not end\n{log.read_text()[-4000:]}"
    assert victim is not None or not kill, f"no job of {kill} ever ran\n{log.read_text()[-4000:]}"
    return Run(tree, code, log.read_text(), [job for job in squeue() if job.number not in earlier])


@pytest.fixture(scope="module")
def built(cluster: None, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Images of two workloads, one of them traced; the first job that builds the other one is killed."""
    tree = tmp_path_factory.mktemp("slurm")
    for part in PARTS:
        (tree / part).symlink_to(ROOT / part)
    (tree / "results" / "recorded").mkdir(parents=True)
    (tree / "config.yaml").write_text(CONFIG)
    images = [f"results/traced/{workload}/sche.cubin" for workload in WORKLOADS]
    trace = "results/traces/rmsnorm_triton.pp.xtrace"
    done = run(tree, *images, trace, kill="rule_corpus_wildcards_softmax_triton")
    assert done.code == 0, done.output[-6000:]
    return done


@pytest.fixture(scope="module")
def measured(built: Run) -> Run:
    """The table of both workloads: two jobs that are ready at the same time."""
    done = run(built.tree, "results/overhead.csv")
    assert done.code == 0, done.output[-6000:]
    return done


def test_a_killed_build_job_is_tried_again_with_more_memory(built: Run) -> None:
    first, second = built.of("corpus_wildcards_softmax_triton")
    assert first.state in LOST
    assert second.state == "COMPLETED"
    assert (first.memory, second.memory) == ("800M", "1600M")
    assert read_json(built.tree / "results/corpus/softmax_triton/meta.json")["kernel"] == "softmax_rows"


def test_a_trace_is_taken_in_a_job_of_its_own(built: Run) -> None:
    (job,) = built.of("trace")
    assert "gres:gpu:1" in job.details
    facts = read_json(built.tree / "results/traces/rmsnorm_triton.pp.facts.json")
    assert facts["failures"] == []
    assert facts["provenance"]["driver"] == "simulated"


def test_timed_jobs_work_at_the_same_time_on_different_gpus(measured: Run) -> None:
    one, two = measured.of("measure_on")
    assert one.start < two.end
    assert two.start < one.end
    for job in (one, two):
        assert "gres:gpu:h200:1" in job.details
        assert "Requeue=0" in job.details
    uuids = {
        workload: {read_json(p)["provenance"]["uuid"] for p in measured.tree.glob(f"{SAMPLES}/{workload}/*.json")}
        for workload in WORKLOADS
    }
    assert all(len(found) == 1 for found in uuids.values())
    assert {found.pop()[-2:] for found in uuids.values()} == {"00", "01"}


def test_every_device_has_its_rows_and_simulated_ones_say_so(measured: Run) -> None:
    rows = read_table(measured.tree / "results/overhead.csv", overhead_table.COLUMNS).to_dict("records")
    ours = [r for r in rows if r["source"] == "measured"]
    assert {(r["workload"], r["device"], r["driver"]) for r in ours} == {
        (workload, "Simulated GPU", "simulated") for workload in WORKLOADS
    }
    assert {r["processes"] for r in ours} == {"3"}
    others = {(r["workload"], r["device"]): r for r in rows if r["source"] == "not measured"}
    assert set(others) == set(itertools.product(WORKLOADS, ("b300", "mi300x")))
    assert "gfx942 is not modelled yet" in others["softmax_triton", "mi300x"]["note"]


def test_a_timed_job_is_never_tried_again(measured: Run) -> None:
    """Not even on request: a measurement that is repeated until it works out proves nothing."""
    folder = f"{SAMPLES}/softmax_triton"
    shutil.rmtree(measured.tree / folder)
    again = run(measured.tree, folder, "--retries", "3", kill="rule_measure_on_wildcards_sim_softmax_triton")
    assert again.code == 1, again.output[-4000:]
    (job,) = again.jobs
    assert job.state in LOST
    assert not (measured.tree / folder).exists()
