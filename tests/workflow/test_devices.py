"""Several devices in one run: each has its rows, with samples or with the reason for having none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.workflow.samples import SOFTMAX, raw_sample
from workflow.scripts import devices, empty_cells, measure_workload
from workflow.scripts.common import read_json
from workflow.scripts.devices import choose_gpu, measures, targets
from xtrace.errors import MissingTool
from xtrace.stats.budgets import parse_budgets
from xtrace.stats.verdicts import Selection, gate_report

H200 = {"name": "h200", "vendor": "nvidia", "arch": "sm_90a", "gpu_model": "H200"}


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is decided yet; what a test decides ends with it."""
    for name in ("CUDA_VISIBLE_DEVICES", "XTRACE_DEVICE", devices.DECISION):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose driver lists an H100 and two H200."""
    tool = tmp_path / "nvidia-smi"
    lines = ["NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA H200"]
    text = "\n".join(f"GPU {n}: {name} (UUID: GPU-{n})" for n, name in enumerate(lines))
    tool.write_text(f"#!/bin/sh\ncat <<END\n{text}\nEND\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    forget(monkeypatch)


@pytest.fixture
def no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    forget(monkeypatch)


def config(*entries: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"arch": "sm_90a", "overhead": "auto", "devices": list(entries), **more}


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (H200, ""),
        ({"name": "s", "vendor": "simulated", "arch": "sm_90a"}, ""),
        ({"name": "b300", "vendor": "nvidia", "arch": "sm_103a"}, "sm_103a"),
        ({"name": "mi300x", "vendor": "amd", "arch": "gfx942"}, "gfx942"),
        ({"name": "old", "vendor": "nvidia", "arch": "sm_90"}, "the images of this run are for sm_90a"),
    ],
)
def test_what_cannot_be_measured_says_why(entry: dict[str, Any], reason: str) -> None:
    (target,) = targets(config(entry)).values()
    assert reason in target.reason
    assert bool(target.reason) == bool(reason)


def test_a_job_uses_a_gpu_of_its_model(gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert choose_gpu("nvidia", "h200") == ""
    assert devices.os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-1"


def test_the_gpu_that_a_scheduler_chose_is_kept(gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    assert choose_gpu("nvidia", "h200") == ""
    assert devices.os.environ["CUDA_VISIBLE_DEVICES"] == "2"


def test_a_model_that_is_not_here_gives_rows_that_say_so(gpus: None, tmp_path: Path) -> None:
    def never(arguments: object) -> int:
        raise AssertionError("measured on another model")

    options = ["--device", "b200", "--gpu-model", "b200", "--processes", "2", "--out", str(tmp_path / "out")]
    measure_workload.main(["--workload", SOFTMAX, "--cells", "xtrace:pp", "proton:pp", *options], never)
    documents = [read_json(path) for path in sorted((tmp_path / "out").glob("*.json"))]
    assert {d["cell"]["tracer"] for d in documents} == {"xtrace", "proton"}
    for document in documents:
        assert document["unsupported"] == "no b200 here (the driver lists NVIDIA H100 80GB HBM3, NVIDIA H200)"
        assert document["cell"]["device"] == "b200"
        assert document["blocks"] == []


def test_the_main_process_decides_and_jobs_follow(no_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert measures(config(H200, overhead="measure"), "c.yaml", decide=True)
    assert devices.os.environ[devices.DECISION] == "1"
    assert measures(config(H200), "c.yaml", decide=False), "a node without GPU must not plan another run"
    assert not measures(config(H200), "c.yaml", decide=True)


def test_without_gpu_and_devices_there_is_nothing_to_measure(no_gpu: None) -> None:
    with pytest.raises(MissingTool, match="none answers"):
        measures({"arch": "sm_90a", "overhead": "measure"}, "c.yaml", decide=True)


def gate(*documents: dict[str, Any]) -> dict[str, Any]:
    budgets = parse_budgets({"schema": "xtrace/budgets/1", "budgets": [{"budget": 5}]}, "b.yaml")
    return gate_report(documents, budgets, Selection(), "here")


def test_what_one_device_cannot_do_leaves_the_verdict_of_another_alone(tmp_path: Path) -> None:
    options = ["--device", "mi300x", "--reason", "not yet", "--cells", "xtrace:pp", "--out", str(tmp_path)]
    empty_cells.main(["--workload", SOFTMAX, *options])
    (gap,) = (read_json(path) for path in tmp_path.glob("*.json"))
    measured = [raw_sample(process) for process in range(10)]
    (alone,) = gate(*measured)["cells"]
    with_gap = {c["device"]: c for c in gate(*measured, gap)["cells"]}
    assert with_gap["NVIDIA H200"]["verdict"] == alone["verdict"]
    assert with_gap["NVIDIA H200"]["reasons"] == alone["reasons"]
    assert with_gap["mi300x"]["reasons"] == ["not measured: not yet"]


def test_simulated_times_never_pass() -> None:
    measured = [raw_sample(process) for process in range(10)]
    for document in measured:
        document["provenance"]["driver"] = "simulated"
    report = gate(*measured)
    assert report["verdict"] == "INVALID-ENV"
    assert any("make-believe" in reason for reason in report["cells"][0]["reasons"])
