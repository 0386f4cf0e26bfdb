"""Raw sample documents to cells: what counts, what is voided, what makes a cell doubtful."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest

from xtrace.errors import BadInput
from xtrace.stats import group, summarise

CELL = {
    "workload": "softmax",
    "kernel": "softmax_kernel",
    "shape": "4096x4096",
    "dtype": "bf16",
    "device": "GPU",
    "tracer": "xtrace",
    "probes": "pp",
}


def document(process: int = 0, ratio: float = 1.01, control: float = 1.0, **more: Any) -> dict[str, Any]:
    jitter = 1 + 1e-4 * process
    blocks = []
    for i in range(4):
        a = 1000.0 * (1 + 1e-4 * i)
        b = a * ratio * jitter
        blocks.append({"kind": "AB", "order": "ABBA", "ns": [a, b, b, a], "sm_clock_mhz": 1980, "throttle": "none"})
        c = a * control * jitter
        blocks.append({"kind": "AA", "order": "ABBA", "ns": [a, c, c, a], "sm_clock_mhz": 1980, "throttle": "none"})
    return {
        "schema": "xtrace/overhead-raw/1",
        "cell": dict(CELL),
        "process": process,
        "blocks": blocks,
        "checks": {
            "bit_identical": True,
            "records_expected": 10,
            "records_emitted": 10,
            "records_lost": 0,
            "monotonic": True,
        },
        **more,
    }


def test_cells_collect_processes() -> None:
    other = document()
    other["cell"] = dict(CELL, probes="sche")
    cells = group([document(1), other, document(0)])
    assert [(c.names["probes"], [d["process"] for d in c.documents]) for c in cells] == [("pp", [0, 1]), ("sche", [0])]


def test_a_shape_may_be_a_mapping() -> None:
    doc = document()
    doc["cell"]["shape"] = {"m": 1, "n": 2}
    assert group([doc])[0].names["shape"] == "m=1 n=2"


@pytest.mark.parametrize("change", [{"schema": "x"}, {"cell": {}}, {"process": "one"}, {"blocks": None}])
def test_what_is_no_sample_document_is_refused_with_its_place(change: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=r"document|schema|blocks") as caught:
        group([document(), {**document(1), **change, "file": "raw/b.json"}])
    assert caught.value.where == "raw/b.json"


def test_the_same_process_twice_is_refused() -> None:
    with pytest.raises(BadInput, match="twice"):
        group([document(0), document(0)])


def test_a_healthy_cell() -> None:
    summary = summarise(group([document(p) for p in range(6)])[0])
    assert summary.overhead is not None
    assert summary.overhead.percent == pytest.approx(1.0, abs=0.06)
    assert summary.control_test is not None
    assert summary.control_test.holds
    assert summary.problems == ()
    assert summary.median_a_ns == pytest.approx(1000.15)
    assert summary.checks["records_emitted"] == 60


def test_launches_per_sample_scale_the_absolute_time_only() -> None:
    one, many = (summarise(group([document(launches_per_sample=m)])[0]) for m in (1, 10))
    assert one.overhead is not None
    assert many.overhead is not None
    assert many.median_a_ns == pytest.approx(one.median_a_ns / 10)
    assert many.overhead.theta == one.overhead.theta


def test_a_block_is_voided_for_machine_facts_only() -> None:
    doc = document()
    doc["blocks"][0]["ns"] = [1.0, 1e6, 1e6, 1.0]  # absurd, but no machine fact speaks against it
    doc["blocks"][2]["sm_clock_mhz"] = [1980, 1900]
    doc["blocks"][4]["throttle"] = ["none", "power"]
    summary = summarise(group([doc])[0])
    assert summary.voided == 2
    assert summary.overhead is not None
    assert summary.overhead.blocks == 2
    assert any("2 of 8 blocks voided" in p for p in summary.problems)


@pytest.mark.parametrize(
    ("checks", "words"),
    [
        ({"bit_identical": False}, "outputs differ"),
        ({"monotonic": False}, "backwards"),
        ({"records_lost": 3}, "3 records lost"),
        ({"records_emitted": 9}, "9 records emitted, 10 expected"),
    ],
)
def test_a_broken_promise_is_a_problem(checks: dict[str, Any], words: str) -> None:
    doc = document()
    doc["checks"].update(checks)
    assert any(words in p for p in summarise(group([doc])[0]).problems)


def test_one_bad_process_spoils_the_cell() -> None:
    docs = [document(p) for p in range(3)]
    docs[1]["checks"]["bit_identical"] = False
    assert not summarise(group(docs)[0]).valid


def test_the_control_decides_whether_the_machine_is_fit() -> None:
    bad = summarise(group([document(p, control=1.02) for p in range(6)])[0])
    assert any("control" in p for p in bad.problems)
    docs = [document(p) for p in range(6)]
    for doc in docs:
        doc["blocks"] = [b for b in doc["blocks"] if b["kind"] == "AB"]
    assert "no A/A' control" in summarise(group(docs)[0]).problems


def test_identical_bytes_show_no_overhead() -> None:
    summary = summarise(group([document(p, ratio=1.0) for p in range(6)])[0])
    assert summary.overhead is not None
    assert summary.overhead.student.low <= 0.001
    assert summary.overhead.high_percent < 0.1


def slow_start(doc: dict[str, Any], by: float) -> dict[str, Any]:
    """The first sample of each block contains host time; blocks begin with either arm, not equally often."""
    for n, block in enumerate(doc["blocks"]):
        if n in (0, 1, 2, 4):
            a, b = block["ns"][0], block["ns"][1]
            block["order"], block["ns"] = "BAAB", [b, a, a, b]
        block["ns"][0] *= by
    return doc


@pytest.mark.parametrize("by", [1.0, 1.2])
def test_where_samples_were_late_no_first_sample_of_a_block_counts(by: float) -> None:
    """Documents of before the device was kept busy say only how many were; it can only be the first of a block."""
    documents = [slow_start(document(p), by) for p in range(3)]
    for doc in documents:
        doc["checks"]["late_samples"] = 5
    summary = summarise(group(documents)[0])
    assert summary.overhead is not None
    assert summary.control is not None
    assert summary.overhead.theta == pytest.approx(math.log(1.01), abs=2e-4)
    assert summary.control.theta == pytest.approx(0, abs=2e-4)
    assert (summary.trimmed, summary.voided) == (3, 0)
    assert summary.median_b_ns / summary.median_a_ns == pytest.approx(1.01, abs=1e-3)


def test_where_none_was_late_every_sample_counts() -> None:
    documents = [slow_start(document(p), 1.2) for p in range(3)]
    for doc in documents:
        doc["checks"]["late_samples"] = 0
    summary = summarise(group(documents)[0])
    assert summary.trimmed == 0
    assert summary.overhead is not None
    assert abs(summary.overhead.theta - math.log(1.01)) > 0.02


def test_blocks_that_say_which_of_their_samples_were_late_are_voided_for_it() -> None:
    documents = [document(p) for p in range(3)]
    for doc in documents:
        doc["checks"]["late_samples"] = 1
        for n, block in enumerate(doc["blocks"]):
            block["late"] = [False, False, n == 0, False]
            if n == 0:
                block["ns"][2] *= 1.5
    summary = summarise(group(documents)[0])
    assert (summary.trimmed, summary.voided, summary.blocks) == (0, 3, 24)
    assert summary.overhead is not None
    assert summary.overhead.theta == pytest.approx(math.log(1.01), abs=2e-4)


def test_no_block_left_is_said_not_zero() -> None:
    doc = copy.deepcopy(document())
    doc["blocks"] = []
    summary = summarise(group([doc])[0])
    assert summary.overhead is None
    assert math.isnan(summary.median_a_ns)
    assert "no usable block" in summary.problems


def test_a_malformed_block_names_its_cell_and_process() -> None:
    doc = document(3)
    doc["blocks"][0]["order"] = "ABAA"
    with pytest.raises(BadInput, match="ABAA") as caught:
        summarise(group([doc])[0])
    assert "process 3" in caught.value.where
