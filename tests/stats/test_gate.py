"""The verdict on one cell: which fact decides, in which order, and what is said about it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stats.simulated import CHECKS, summary
from xtrace.stats import Cell, Flag, Rule, Verdict, decide, decide_change, group, summarise, worst
from xtrace.stats.gate import judge, look
from xtrace.stats.modes import find_modes

QUIET = np.linspace(-0.0005, 0.0005, 20)
RULE = Rule()


def cell(percent: float, processes: int = 10, spread: float = 0.1, **changes: Any) -> Any:
    values = np.log1p(np.linspace(percent - spread, percent + spread, processes) / 100)
    return summary(values, changes.pop("control", QUIET[:processes]), **changes)


@pytest.mark.parametrize(
    ("percent", "verdict"), [(1.0, "PASS"), (3.0, "FAIL"), (2.0, "INCONCLUSIVE"), (0.0, "PASS"), (-0.1, "PASS")]
)
def test_the_interval_against_the_budget(percent: float, verdict: str) -> None:
    decision = decide(cell(percent), RULE)
    assert decision.verdict == verdict
    assert "budget of 2 %" in decision.reasons[0]


@pytest.mark.parametrize(
    ("processes", "verdict", "due", "words"),
    [
        (1, "INCONCLUSIVE", False, "1 process, at least 6"),
        (5, "INCONCLUSIVE", False, "5 processes, at least 6"),
        (6, "PASS", False, "6 of 10 declared"),
        (10, "PASS", False, "below"),
        (15, "INCONCLUSIVE", True, "second is due at 20"),
        (20, "PASS", False, "below"),
    ],
)
def test_looks_are_taken_where_they_were_declared(processes: int, verdict: str, due: bool, words: str) -> None:
    decision = judge(np.log1p(np.linspace(0.9, 1.1, processes) / 100), math.log1p(0.02), RULE)
    assert (decision.verdict, decision.extension_due) == (verdict, due)
    assert words in decision.reasons[0]


@pytest.mark.parametrize(("processes", "due"), [(6, True), (10, True), (20, False), (25, False)])
def test_one_extension_for_what_is_open(processes: int, due: bool) -> None:
    control = np.resize(QUIET, processes)
    decision = decide(cell(2.0, processes, control=control), RULE)
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert decision.extension_due is due


def test_both_opinions_must_agree() -> None:
    """One process far off widens Student's interval over the budget; the rank interval cares for its sign only."""
    values = np.log1p(np.array([2.3, 2.31, 2.32, 2.33, 2.34, 2.35, 2.36, 2.37, 2.38, 9.0]) / 100)
    decision = decide(summary(values, QUIET[:10]), RULE)
    assert decision.opinions == (Verdict.INCONCLUSIVE, Verdict.FAIL)
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert "disagree" in decision.reasons[0]


@pytest.mark.parametrize(
    ("checks", "words"),
    [
        ({"bit_identical": False}, "outputs differ"),
        ({"records_lost": 2}, "2 records lost"),
        ({"records_emitted": 0}, "nothing was recorded"),
        ({"records_emitted": 9}, "9 records emitted, 10 expected"),
        ({"monotonic": False}, "backwards"),
        ({"guards_intact": False}, "overwritten"),
    ],
)
def test_no_time_makes_up_for_a_broken_promise(checks: dict[str, Any], words: str) -> None:
    decision = decide(cell(0.5, checks=CHECKS | checks), RULE)
    assert decision.verdict is Verdict.FAIL
    assert words in decision.reasons[0]
    # not even an unfit machine hides it
    assert decide(cell(0.5, checks=CHECKS | checks, control=None), RULE).verdict is Verdict.FAIL


@pytest.mark.parametrize("missing", ["bit_identical", "records_emitted"])
def test_a_check_that_nobody_made_withholds_a_pass_only(missing: str) -> None:
    checks = {k: v for k, v in CHECKS.items() if k != missing}
    passing = decide(cell(0.5, checks=checks), RULE)
    assert passing.verdict is Verdict.INCONCLUSIVE
    assert not passing.extension_due
    assert decide(cell(5.0, checks=checks), RULE).verdict is Verdict.FAIL


def with_documents(change: dict[str, Any], **more: Any) -> Any:
    healthy = cell(0.5, **more)
    documents = [dict(d) for d in healthy.cell.documents]
    documents[3] |= change
    return cell(0.5, cell=Cell(healthy.cell.key, tuple(documents)), **more)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"machine": {"other_processes": 1}}, "other processes used the GPU (1 of 10"),
        ({"machine": {"ecc_errors": 2}}, "ECC"),
        ({"machine": {"xid": 79}}, "XID"),
    ],
)
def test_a_machine_that_is_not_fit(change: dict[str, Any], words: str) -> None:
    decision = decide(with_documents(change), RULE)
    assert decision.verdict is Verdict.INVALID_ENV
    assert words in decision.reasons[0]
    assert "by the times alone PASS" in decision.reasons[1]
    assert not decision.extension_due


def test_a_machine_without_a_fault_is_fit() -> None:
    quiet = {"machine": {"other_processes": 0, "ecc_errors": 0, "xid": 0}}
    assert decide(with_documents(quiet), RULE).verdict is Verdict.PASS
    assert decide(with_documents({"machine": None, "provenance": None}), RULE).verdict is Verdict.PASS


@pytest.mark.parametrize(("key", "what"), [("uuid", "GPUs"), ("driver", "drivers"), ("clocks", "clock policies")])
def test_one_cell_is_one_machine(key: str, what: str) -> None:
    documents = tuple({"process": p, "provenance": {key: "one" if p else "other"}} for p in range(10))
    decision = decide(cell(0.5, cell=Cell(("x",) * 7, documents)), RULE)
    assert decision.verdict is Verdict.INVALID_ENV
    assert f"2 {what} in one cell" in decision.reasons[0]


@pytest.mark.parametrize(
    ("control", "words"),
    [
        (np.full(10, 0.01), "not shown to be within +-0.75 %"),
        (np.linspace(-0.02, 0.02, 10), "not shown"),
        (QUIET[:8], "only 8 of 10 processes"),
    ],
)
def test_without_a_good_control_there_is_no_verdict(control: np.ndarray, words: str) -> None:
    decision = decide(cell(0.5, control=control), RULE)
    assert decision.verdict is Verdict.INVALID_ENV
    assert words in decision.reasons[0]


def test_a_missing_control_and_too_many_voided_blocks() -> None:
    assert decide(cell(0.5, control=None), RULE).reasons[0] == "no A/A' control"
    assert decide(cell(0.5, voided=28, blocks=280), RULE).verdict is Verdict.PASS
    assert decide(cell(0.5, voided=29, blocks=280), RULE).verdict is Verdict.INVALID_ENV


def test_no_sample_is_no_pass() -> None:
    decision = decide(cell(0.5, overhead=None), RULE)
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert decision.reasons == ("no usable block",)


def test_faster_than_the_original_is_flagged() -> None:
    decision = decide(cell(-1.0), RULE)
    assert decision.verdict is Verdict.PASS
    assert decision.flags == (Flag.LAYOUT_SHIFT,)
    assert any("faster than the original" in reason for reason in decision.reasons)


def test_two_groups_of_processes_are_not_averaged() -> None:
    """Seven processes far below the budget and three just above: the mean is below it, a user may still meet 2.3 %."""
    values = np.log1p(np.array([0.1, 0.11, 0.12, 0.13, 0.14, 0.15, 0.16, 2.3, 2.31, 2.32]) / 100)
    decision = decide(summary(values, QUIET[:10]), Rule(budget=0.021))
    assert decision.flags == (Flag.BIMODAL,)
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert "two groups" in decision.reasons[0]
    # both groups below a larger budget: a pass, still flagged, with both groups named
    passed = decide(summary(values, QUIET[:10]), Rule(budget=0.04))
    assert (passed.verdict, passed.flags) == (Verdict.PASS, (Flag.BIMODAL,))
    assert "+0.13 % and +2.31 %" in passed.reasons[1]


@pytest.mark.parametrize(
    ("values", "bimodal"),
    [
        ([0, 0, 0, 0, 0, 2, 2, 2, 2, 2], True),
        ([0, 0, 0, 0, 0, 0, 0, 0, 2, 2], True),
        ([0, 0, 0, 0, 0, 0, 0, 0, 0, 2], False),  # one value far off is an outlier
        ([0, 0, 0, 0, 0, 0.4, 0.4, 0.4, 0.4, 0.4], False),  # closer than half a percent
        ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], False),  # as far apart within as between
        ([1, 1, 2], False),
    ],
)
def test_what_counts_as_two_groups(values: list[float], bimodal: bool) -> None:
    assert bool(find_modes(np.array(values) / 100).bimodal) is bimodal
    assert bool(find_modes(-np.array(values[::-1]) / 100).bimodal) is bimodal


def test_groups_are_found_row_by_row() -> None:
    rows = np.array([[0.0, 0.0, 0.0, 0.0, 0.02, 0.02], [0.02, 0.0, 0.02, 0.02, 0.0, 0.02]])
    modes = find_modes(rows)
    assert modes.bimodal.all()
    assert modes.low == pytest.approx([0, 0])
    assert modes.high == pytest.approx([0.02, 0.02])


estimates = st.lists(st.floats(-0.05, 0.05), min_size=6, max_size=20).map(np.array)


@given(estimates, st.floats(-0.04, 0.04))
def test_swapping_original_and_traced_mirrors_every_opinion(values: np.ndarray, limit: float) -> None:
    one, other = look(values, limit, 0.025), look(-values, -limit, 0.025)
    assert (one.student, one.exact, one.side) == (-other.student, -other.exact, -other.side)
    assert one.bimodal == other.bimodal


@given(estimates, st.randoms(use_true_random=False))
def test_the_order_of_processes_does_not_matter(values: np.ndarray, random: Any) -> None:
    shuffled = values.tolist()
    random.shuffle(shuffled)
    one, other = judge(values, 0.02, RULE), judge(np.array(shuffled), 0.02, RULE)
    assert other.theta == pytest.approx(one.theta, abs=1e-12)
    assert other.student.high == pytest.approx(one.student.high, abs=1e-12)
    assert other.exact == one.exact


def raw(process: int, ratio: float, unit: float, old: float | None = None) -> dict[str, Any]:
    rng = np.random.default_rng([process, 7])
    blocks = []
    for kind, effect in (("AB", ratio), ("AA", 1.0), *((("AO", old),) if old else ())):
        for _ in range(4):
            a, b, c, d = 1000 * unit * np.exp(rng.normal(0, 0.001, 4))
            blocks.append({"kind": kind, "order": "ABBA", "ns": [a, b * effect, c * effect, d]})
    names = dict(zip(("workload", "kernel", "shape", "dtype", "device", "tracer", "probes"), "abcdefg", strict=True))
    return {
        "schema": "xtrace/overhead-raw/1",
        "cell": names,
        "process": process,
        "blocks": blocks,
        "checks": dict(CHECKS),
    }


def decided(ratio: float, unit: float = 1.0) -> Any:
    return decide(summarise(group([raw(p, ratio, unit) for p in range(10)])[0]), RULE)


@given(st.floats(1e-3, 1e3), st.sampled_from([1.0, 1.019, 1.02, 1.03]))
def test_the_unit_of_time_does_not_matter(unit: float, ratio: float) -> None:
    one, other = decided(ratio), decided(ratio, unit)
    assert (one.verdict, one.reasons, one.flags) == (other.verdict, other.reasons, other.flags)
    assert other.student.high == pytest.approx(one.student.high, abs=1e-9)


@pytest.mark.parametrize(
    ("new", "old", "verdict"), [(1.011, 1.01, "PASS"), (1.02, 1.01, "FAIL"), (1.0, 1.02, "PASS"), (1.015, 1.01, None)]
)
def test_change_against_an_older_version(new: float, old: float, verdict: str | None) -> None:
    found = summarise(group([raw(p, new, 1.0, old) for p in range(10)])[0])
    assert found.old is not None
    assert found.old.percent == pytest.approx(100 * (old - 1), abs=0.1)
    change = decide_change(found, RULE)
    assert change is not None
    assert change.theta == pytest.approx(math.log(new / old), abs=0.001)
    assert change.verdict == (verdict or Verdict.INCONCLUSIVE)
    assert Flag.LAYOUT_SHIFT not in change.flags  # faster than the older version is an improvement


def test_processes_without_the_older_version_do_not_count_for_the_change() -> None:
    documents = [raw(p, 1.01, 1.0, 1.01 if p < 7 else None) for p in range(10)]
    found = summarise(group(documents)[0])
    assert found.change is not None
    assert found.change.processes == 7
    assert summarise(group([raw(0, 1.01, 1.0)])[0]).change is None
    assert decide_change(summarise(group([raw(0, 1.01, 1.0)])[0]), RULE) is None


def test_the_worst_verdict_of_many() -> None:
    order = [Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.INVALID_ENV, Verdict.FAIL]
    for count in range(1, 5):
        assert worst(order[:count]) is order[count - 1]


@pytest.mark.parametrize(
    "numbers",
    [
        {"budget": 0.0},
        {"budget": math.inf},
        {"alpha": 0.0},
        {"minimum": 5},
        {"processes": 5},
        {"processes": 20},
        {"control_margin": 0.0},
        {"max_voided": 1.0},
        {"layout_shift": 0.1},
    ],
)
def test_a_rule_that_contradicts_itself_is_refused(numbers: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"."):
        Rule(**numbers)  # type: ignore[arg-type]
