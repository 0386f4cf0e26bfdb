"""The benchmark command: complete times, honest targets, and a generated kernel that is as large as it says."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import xtrace
from workflow.scripts import benchmark
from workflow.scripts.benchmark import HEADLINE, LARGE, Command, judge
from workflow.scripts.benchmark_steps import STEPS, KernelTimes, per_site
from xtrace.errors import BadInput, MissingTool


def times(image: str, milliseconds: list[float], *, placed: int = 10, refused: int = 0, size: int = 100) -> KernelTimes:
    seconds = {step: [1e-3 * ms for ms in milliseconds] for step in STEPS}
    return KernelTimes(image, "k", size, placed, refused, seconds)


def test_one_image_is_timed_step_by_step(
    golden_image: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = golden_image("triton_rmsnorm")
    assert benchmark.main(["--image", str(path), "--kernel", "rms*", "--runs", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (plan,) = xtrace.plan(xtrace.load(path), probes="pp").kernels
    (kernel,) = document["kernels"]
    assert kernel["kernel"] == "rmsnorm_residual"
    assert kernel["instructions"] == len(plan.analysis.instructions)
    assert (kernel["placed"], kernel["refused"]) == (len(plan.placed), len(plan.refused))
    assert set(kernel["seconds"]) == set(STEPS)
    assert all(len(runs) == 2 and min(runs) > 0 for runs in kernel["seconds"].values())
    assert document["ms_per_site_all"] > document["ms_per_site"] == kernel["ms_per_site"] > 0
    assert document["targets"] == document["commands"] == []
    (islands,) = document["islands"]
    assert islands["shapes"] >= islands["compared"] == islands["equal"] > 0 == islands["worst_gap"]


def test_pinning_to_one_core_ends_with_the_benchmark() -> None:
    before = os.sched_getaffinity(0)
    with benchmark.one_core():
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == before


def test_a_kernel_that_cannot_be_traced_is_planned_only(
    golden_image: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert benchmark.main(["--image", str(golden_image("call_rel")), "--runs", "1", "--json"]) == 0
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    assert kernel["placed"] == 0 < kernel["refused"]
    assert len(kernel["seconds"]["planning"]) == 1
    assert kernel["seconds"]["splice"] == kernel["seconds"]["verify"] == []
    assert kernel["ms_per_site"] is None  # refusing the whole kernel at once says nothing about a site


def test_the_time_for_a_site_is_a_median_over_runs_and_then_over_kernels() -> None:
    kernels = [times("a", [10, 500, 20]), times("b", [30], placed=2, refused=1), times("c", [9], placed=1)]
    assert [k.per_site() for k in kernels] == pytest.approx([2, 10, 9])
    assert per_site(kernels) == pytest.approx(9)
    assert kernels[0].per_site(("decode", "planning")) == pytest.approx(4)
    assert per_site([]) is None


def test_targets_are_met_missed_or_not_measured() -> None:
    large = times(LARGE, [400], placed=600, size=15_000)
    commands = [Command("plan", HEADLINE, [1, 9, 1.4], []), Command("splice", LARGE, [5.1], [])]
    verdicts = [t.verdict for t in judge([times("a", [10]), large], commands)]
    assert verdicts == ["ok", "ok", "not measured", "MISSED"]
    small = times(LARGE, [400], placed=499, size=15_000)
    assert [t.verdict for t in judge([small], commands)][-1] == "not measured"


@pytest.mark.parametrize("enforce", [False, True])
def test_speed_fails_nothing_unless_enforced(
    enforce: bool,
    golden_image: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def missing(root: Path) -> Path:
        raise MissingTool("XT6101", "Triton is not installed")

    monkeypatch.setattr(benchmark, "read_suite", lambda: {"rmsnorm_triton": {}})
    monkeypatch.setattr(benchmark, "suite_image", lambda name, root: golden_image("triton_rmsnorm"))
    monkeypatch.setattr(benchmark, "large_image", missing)
    assert benchmark.main(["--runs", "1", *(["--enforce"] if enforce else [])]) == int(enforce)
    shown = capsys.readouterr()
    assert "not measured" in shown.out
    assert "is left out" in shown.err
    assert "rmsnorm_triton" in shown.out


def test_a_command_is_timed_with_and_without_what_it_keeps(golden_image: Callable[[str], Path]) -> None:
    done = benchmark.time_command("splice", "x", golden_image("odd_block"), "*", "sche", 1)
    assert len(done.first) == len(done.again) == 1
    with pytest.raises(BadInput, match="XT1020"):
        benchmark.time_command("plan", "x", golden_image("odd_block"), "nosuch", "sche", 1)


@pytest.mark.parametrize("arguments", [["--runs", "0"], ["--probes", "nosuch"]])
def test_bad_arguments(arguments: list[str]) -> None:
    with pytest.raises(BadInput):
        benchmark.main(arguments)


@pytest.mark.golden
def test_the_generated_kernel_is_large_and_traceable(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    path = benchmark.large_image(tmp_path)
    assert benchmark.large_image(tmp_path) == path  # kept
    assert len(list((tmp_path / ".cache" / "benchmark").iterdir())) == 1
    (plan,) = xtrace.plan(xtrace.load(path), probes="pp").kernels
    assert len(plan.analysis.instructions) >= benchmark.LARGE_INSTRUCTIONS
    assert len(plan.placed) >= benchmark.LARGE_SITES
    assert len(plan.analysis.loops) > 10
