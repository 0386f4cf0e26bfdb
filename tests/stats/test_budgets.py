"""Which budget applies, and what is wrong with a budgets file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from xtrace.cli._gate_input import BUDGET_SCHEMA, read_budgets
from xtrace.config import check_schema, load_yaml
from xtrace.errors import BadInput
from xtrace.stats.budgets import Budgets, CellName, parse_budgets

CELLS = [
    CellName("softmax_triton", "softmax_rows", "pp", "NVIDIA H200", "xtrace"),
    CellName("softmax_triton", "softmax_rows", "sche", "NVIDIA H200", "xtrace"),
    CellName("gemm_triton", "gemm", "pp", "NVIDIA H200", "xtrace"),
    CellName("gemm_triton", "gemm", "pp", "NVIDIA H200", "proton"),
]


def budgets(*entries: dict[str, Any], **more: Any) -> Budgets:
    document = {"schema": "xtrace/budgets/1", "budgets": list(entries), **more}
    check_schema(document, load_yaml(BUDGET_SCHEMA), "b.yaml")
    return parse_budgets(document, "b.yaml")


@pytest.mark.parametrize(
    ("entries", "percent"),
    [
        ([{"budget": 2}], 2),
        ([{"budget": 2}, {"budget": 1, "probes": "pp"}], 1),
        ([{"budget": 1, "probes": "pp"}, {"budget": 2}], 1),  # the order in the file does not matter
        ([{"budget": 3, "kernel": "softmax*"}, {"budget": 2}], 3),
        ([{"budget": 3, "kernel": "softmax*"}, {"budget": 4, "kernel": "softmax_triton"}], 4),
        ([{"budget": 3, "kernel": "softmax_rows"}], 3),  # the kernel's own name
        ([{"budget": 3, "kernel": "softmax_triton"}, {"budget": 4, "probes": "pp"}], 3),
        ([{"budget": 3, "kernel": "softmax_triton"}, {"budget": 4, "probes": "pp", "gpu": "NVIDIA H200"}], 4),
        ([{"budget": 3, "gpu": "*H200*"}, {"budget": 2}], 3),
    ],
)
def test_the_most_specific_entry_wins(entries: list[dict[str, Any]], percent: float) -> None:
    found = budgets(*entries).find(CELLS[0])
    assert found is not None
    assert found.percent == percent


def test_other_tracers_have_no_budget_unless_named() -> None:
    assert budgets({"budget": 2}).find(CELLS[3]) is None
    found = budgets({"budget": 2}, {"budget": 9, "tracer": "proton"}).find(CELLS[3])
    assert found is not None
    assert found.percent == 9


def test_two_entries_with_equal_right_are_a_mistake() -> None:
    both = budgets({"budget": 1, "kernel": "soft*"}, {"budget": 2, "kernel": "*_triton"})
    with pytest.raises(BadInput, match=r"softmax_triton pp .* as much as b.yaml: budgets\[0\]") as caught:
        both.find(CELLS[0])
    assert "budgets[1]" in caught.value.where


@pytest.mark.parametrize(
    ("entry", "where", "words", "hint"),
    [
        (
            {"kernel": "sofmax_triton"},
            "budgets[1].kernel",
            "no cell has 'sofmax_triton'",
            "did you mean 'softmax_triton'",
        ),
        ({"probes": "ppp"}, "budgets[1].probes", "no cell has 'ppp'", "allowed: pp, sche"),
        ({"probes": "ppp@cta8"}, "budgets[1].probes", "no cell has 'ppp@cta8'", "allowed: pp, sche"),
        (
            {"kernel": "gemm_triton", "probes": "sche@cta8"},
            "budgets[1].probes",
            "no cell of kernel 'gemm_triton' has 'sche@cta8'",
            "allowed: pp",
        ),
        ({"gpu": "H200"}, "budgets[1].gpu", "no cell has 'H200'", "allowed: NVIDIA B300, NVIDIA H200"),
        ({"tracer": "porton"}, "budgets[1].tracer", "no cell has 'porton'", "did you mean 'proton'"),
        (
            {"kernel": "gemm_triton", "probes": "sche"},
            "budgets[1].probes",
            "no cell of kernel 'gemm_triton' has 'sche'",
            "allowed: pp",
        ),
    ],
)
def test_a_budget_without_a_cell_guards_nothing(entry: dict[str, Any], where: str, words: str, hint: str) -> None:
    with pytest.raises(BadInput) as caught:
        budgets({"budget": 2}, {"budget": 1, **entry}, gpus=["NVIDIA B300"]).check(CELLS)
    line = str(caught.value)
    assert f"b.yaml: {where}:" in line
    assert words in line
    assert hint in line
    assert "\n" not in line


def test_budgets_with_cells_are_accepted() -> None:
    budgets(
        {"budget": 2},
        {"budget": 1, "gpu": "NVIDIA B300", "kernel": "gemm*"},
        {"budget": 1, "tracer": "*"},
        {"budget": 1, "probes": "pp@cta8", "kernel": "gemm*"},  # no sampled set was measured yet
        {"budget": 1, "probes": "pp@*"},
        gpus=["NVIDIA B300"],
    ).check(CELLS)


def test_numbers_of_processes_of_an_entry() -> None:
    found = budgets({"budget": 2}, {"budget": 3, "kernel": "gemm", "processes": 12})
    assert (found.rule.processes, found.rule.extended) == (10, 20)
    rule = found.rule_for(found.entries[1])
    assert (rule.processes, rule.extended, rule.budget) == (12, 24, 0.03)


def test_percentages_become_fractions() -> None:
    rule = budgets({"budget": 2}, gate={"control_margin": 0.5, "max_voided": 20, "layout_shift": -0.5}).rule
    assert (rule.control_margin, rule.max_voided, rule.layout_shift) == pytest.approx((0.005, 0.2, -0.005))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("schema: xtrace/budgets/1\nbudgets: [{budgt: 2}]", "budgets[0].budgt: unknown key (did you mean 'budget'"),
        ("schema: xtrace/budgets/1\nbudgets: [{kernel: x}]", "budgets[0].budget: missing"),
        (
            "schema: xtrace/budgets/1\nbudgets: [{budget: 2, kernal: x}]",
            "budgets[0].kernal: unknown key (did you mean 'kernel'",
        ),
        ("schema: xtrace/budgets/1\nbudgets: [{budget: 0}]", "must be greater than 0"),
        ("schema: xtrace/budgets/1\nbudgets: []", "budgets: [] is not allowed, must be at least this many entries: 1"),
        ("schema: xtrace/budgets/2\nbudgets: [{budget: 2}]", "allowed: xtrace/budgets/1"),
        ("schema: xtrace/budgets/1\ngate: {processes: 20}\nbudgets: [{budget: 2}]", "gate: processes must be"),
        (
            "schema: xtrace/budgets/1\nbudgets: [{budget: 2, processes: 12, extended: 12}]",
            "budgets[0]: processes must be",
        ),
        ("schema: xtrace/budgets/1\nsuite: none.yaml\nbudgets: [{budget: 2}]", "none.yaml: cannot be read"),
        ("- 1", "must be a mapping"),
        ("a: [", "is not YAML"),
    ],
)
def test_mistakes_in_a_file_are_one_line(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "budgets.yaml"
    file.write_text(text)
    with pytest.raises(BadInput) as caught:
        read_budgets(file, [])
    line = str(caught.value)
    assert str(tmp_path) in line
    assert words in line
    assert "\n" not in line


def test_the_budgets_of_this_repository_fit_its_suite() -> None:
    file = Path(__file__).parents[2] / "configs" / "budgets.yaml"
    results = [{"cell": {"workload": "softmax_triton", "probes": "pp", "tracer": "xtrace", "device": "NVIDIA H200"}}]
    found = read_budgets(file, results)
    for workload in load_yaml(file.parent / "suite.yaml")["workloads"]:
        for probes in ("sche", "pp"):
            assert found.find(CellName(workload, "", probes, "NVIDIA H200", "xtrace")) is not None
