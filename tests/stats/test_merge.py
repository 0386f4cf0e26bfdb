"""Samples of several machines stand side by side only if they may; whoever may not is told which two files disagree."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from xtrace.errors import BadInput
from xtrace.stats import group
from xtrace.stats.machine import is_simulated
from xtrace.stats.merge import merge


def sample(process: int = 0, file: str = "a.json", **change: Any) -> dict[str, Any]:
    provenance = {
        "device": "NVIDIA H200",
        "uuid": "GPU-11111111-2222",
        "driver": "580.1",
        "git": "abc",
        "triton": "3.6.0",
    }
    cell = {"workload": "w", "kernel": "k", "shape": {"n": 8}, "dtype": "bf16", "tracer": "xtrace", "probes": "pp"}
    made = {
        "file": file,
        "schema": "xtrace/overhead-raw/1",
        "cell": {**cell, "device": "NVIDIA H200"},
        "provenance": provenance,
        "process": process,
        "interval": "kernel",
        "images": {"original": "aa", "instrumented": "bb"},
        "blocks": [{"kind": "AB", "order": "ABBA", "ns": [1.0, 1.1, 1.1, 1.0]}],
    }
    for key, value in change.items():
        if key in provenance:
            made["provenance"][key] = value
        else:
            made[key] = value
    return made


def other_gpu(process: int = 0, **change: Any) -> dict[str, Any]:
    return sample(process, "b.json", **{"uuid": "GPU-99999999-2222", **change})


def refusal(*documents: dict[str, Any]) -> str:
    with pytest.raises(BadInput) as caught:
        merge(documents)
    return str(caught.value)


def test_processes_of_one_cell_come_together_in_order() -> None:
    (cell,) = merge([sample(2), sample(0), sample(1)])
    assert cell.processes == [0, 1, 2]
    assert cell.device == "NVIDIA H200"


def test_another_gpu_of_the_same_model_is_another_cell() -> None:
    cells = merge([sample(0), other_gpu(0), other_gpu(1)])
    assert [c.processes for c in cells] == [[0], [0, 1]]
    assert {c.device for c in cells} == {
        "NVIDIA H200 [GPU-11111111, driver 580.1]",
        "NVIDIA H200 [GPU-99999999, driver 580.1]",
    }


def test_another_driver_is_another_cell() -> None:
    assert len(merge([sample(0), sample(0, "b.json", driver="590.2")])) == 2


def test_merged_samples_are_separate_cells_for_every_table() -> None:
    cells = merge([sample(0), other_gpu(0)])
    documents = [{**d, "cell": {**d["cell"], "device": c.device}} for c in cells for d in c.documents]
    assert len(group(documents)) == 2


def test_a_name_stays_plain_when_no_cell_is_on_two_gpus() -> None:
    elsewhere = other_gpu(0)
    elsewhere["cell"]["probes"] = "sche"
    assert {c.device for c in merge([sample(0), elsewhere])} == {"NVIDIA H200"}


@pytest.mark.parametrize("renamed", [False, True])
def test_the_same_process_twice_is_refused(renamed: bool) -> None:
    again = sample(3, "copy.json")
    if renamed:  # by an earlier merge
        again["cell"]["device"] = "NVIDIA H200 [GPU-11111111, driver 580.1]"
    line = refusal(sample(3), again)
    assert "copy.json: process 3 of w:xtrace:pp" in line
    assert "the other: a.json" in line


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"git": "def"}, "mixes git def and abc"),
        ({"triton": "3.7"}, "mixes triton 3.7 and 3.6.0"),
        ({"interval": "library call"}, "different timed intervals"),
        ({"images": {"original": "aa", "instrumented": "cc"}}, "different images (instrumented)"),
        ({"images": None}, "different images (instrumented, original)"),
    ],
)
def test_a_cell_is_never_a_mixture(change: dict[str, Any], words: str) -> None:
    line = refusal(sample(0), sample(1, "b.json", **change))
    assert words in line
    assert "a.json" in line
    assert "b.json" in line


def test_other_cells_may_come_from_other_commits() -> None:
    later = sample(0, git="def")
    later["cell"]["probes"] = "sche"
    assert len(merge([sample(0), later])) == 2


def test_simulated_samples_do_not_mix_with_real_ones() -> None:
    made_up = sample(0, "sim.json", driver="simulated", device="Simulated GPU")
    made_up["cell"]["device"] = "Simulated GPU"
    assert is_simulated(made_up)
    assert len(merge([made_up])) == 1
    assert "simulated samples and real ones do not mix" in refusal(sample(0), made_up)


def test_rows_without_samples_go_along_with_anything() -> None:
    empty = {**sample(0, "c.json"), "provenance": {}, "blocks": [], "unsupported": "no model of it"}
    empty["cell"] = {**empty["cell"], "device": "mi300x"}
    cells = merge([sample(0), empty])
    assert [c.measured for c in cells] == [True, False]


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "xtrace/overhead-raw/2"},
        {"process": -1},
        {"process": True},
        {"cell": {}},
        {"cell": 3},
        {"blocks": {}},
    ],
)
def test_what_is_no_sample_is_refused(change: dict[str, Any]) -> None:
    document = copy.deepcopy(sample(0)) | change
    assert "a.json" in refusal(document)
