"""Error rates of the whole rule, with its extension: seeded simulation of a machine with realistic faults.

A rate that must be at most 5 % is accepted only if its 99 % upper confidence limit is: at the number of trials used
here the limit lies about 0.6 points above the rate. The rule's true rate of false PASS is near 3.5 %, so a healthy rule
passes and one that is broken in a usual way (blocks pooled over processes, looking after every process) does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from tests.stats.simulated import Floats, at_least, at_most, location, ratios, summary, thetas
from xtrace.stats import Rule, Verdict, decide, suite_mean, t_interval
from xtrace.stats.dose import dose_response
from xtrace.stats.gate import look
from xtrace.stats.intervals import signed_rank_bounds, t_bounds

RULE = Rule()
LIMIT = math.log1p(RULE.budget)
Outcome = Callable[[Floats], Floats]  # block ratios (trials, 20, blocks) -> -1 PASS, 0 open, +1 FAIL


def whole_rule(d: Floats) -> Floats:
    """First look at 10 processes, second at 20 for what is open."""
    estimates = location(d)
    first = look(estimates[:, : RULE.processes], LIMIT, RULE.alpha).side
    return np.where(first != 0, first, look(estimates, LIMIT, RULE.last_alpha).side)


def pooled_blocks(d: Floats) -> Floats:
    """Broken on purpose: every block counts as a replicate."""
    sides = []
    for processes in (RULE.processes, RULE.extended):
        low, high = t_bounds(d[:, :processes].reshape(len(d), -1), RULE.alpha)
        sides.append(np.where(high < LIMIT, -1, np.where(low > LIMIT, 1, 0)))
    return np.where(sides[0] != 0, sides[0], sides[1])


def peeking(d: Floats) -> Floats:
    """Broken on purpose: a look after every process until one decides."""
    estimates = location(d)
    side = np.zeros(len(d), dtype=np.int8)
    for processes in range(RULE.minimum, RULE.extended + 1):
        side = np.where(side != 0, side, look(estimates[:, :processes], LIMIT, RULE.alpha).side)
    return side


def assert_error_rates(rule: Outcome, trials: int) -> None:
    """At a true overhead equal to the budget neither answer is given in more than 5 % of the trials."""
    side = rule(ratios(np.random.default_rng(101), RULE.budget, trials, RULE.extended))
    assert at_most(int((side < 0).sum()), trials) <= 0.05
    assert at_most(int((side > 0).sum()), trials) <= 0.05


def test_false_pass_and_false_fail_at_the_budget() -> None:
    assert_error_rates(whole_rule, 6000)


@pytest.mark.parametrize("broken", [pooled_blocks, peeking])
def test_a_broken_rule_is_caught_by_the_same_simulation(broken: Outcome) -> None:
    with pytest.raises(AssertionError):
        assert_error_rates(broken, 2000)


@pytest.mark.parametrize(("truth", "side"), [(0.015, -1), (0.025, 1)])
def test_power_half_a_point_from_the_budget(truth: float, side: int) -> None:
    found = whole_rule(ratios(np.random.default_rng(102), truth, 2000, RULE.extended))
    assert at_least(int((found == side).sum()), 2000) >= 0.95
    assert not (found == -side).any()


def by_decide(estimates: Floats, control: Floats) -> list[Verdict]:
    """The verdicts that ``decide`` gives, with the extension where it asks for one."""
    verdicts = []
    for values, aa in zip(estimates, control, strict=True):
        decision = decide(summary(values[: RULE.processes], aa[: RULE.processes]), RULE)
        if decision.extension_due:
            decision = decide(summary(values, aa), RULE)
            assert not decision.extension_due
        verdicts.append(decision.verdict)
    return verdicts


@pytest.mark.parametrize(
    ("truth", "accept"),
    [
        (RULE.budget, lambda passed, failed: max(at_most(passed, 2000), at_most(failed, 2000)) <= 0.05),
        (0.015, lambda passed, failed: at_least(passed, 2000) >= 0.95 and failed == 0),
        (0.025, lambda passed, failed: at_least(failed, 2000) >= 0.95 and passed == 0),
        (0.0, lambda passed, failed: at_least(passed, 2000) >= 0.97 and failed == 0),
    ],
)
def test_the_verdicts_of_decide(truth: float, accept: Callable[[int, int], bool]) -> None:
    """The same rates through the function that the command uses, its control included (8 control blocks)."""
    rng = np.random.default_rng(103)
    estimates = thetas(rng, truth, 2000, RULE.extended)
    control = thetas(rng, 0.0, 2000, RULE.extended, blocks=8)
    verdicts = by_decide(estimates, control)
    assert accept(verdicts.count(Verdict.PASS), verdicts.count(Verdict.FAIL))
    # a healthy machine is rarely called unfit: the control may fail at the first look, then no second is taken
    assert verdicts.count(Verdict.INVALID_ENV) <= 0.03 * 2000


def test_decide_is_the_rule_that_was_simulated() -> None:
    d = ratios(np.random.default_rng(104), RULE.budget, 600, RULE.extended)
    estimates = location(d)
    quiet = np.zeros_like(estimates)
    names = {-1: Verdict.PASS, 0: Verdict.INCONCLUSIVE, 1: Verdict.FAIL}
    assert by_decide(estimates, quiet) == [names[int(side)] for side in whole_rule(d)]


def test_identical_bytes_never_fail() -> None:
    """A against A': no FAIL in 4,000 trials, whatever the budget from half a percent."""
    estimates = thetas(np.random.default_rng(105), 0.0, 4000, RULE.extended)
    for budget in (0.005, 0.01, 0.02):
        assert not (look(estimates[:, : RULE.processes], math.log1p(budget), RULE.alpha).side > 0).any()
        assert not (look(estimates, math.log1p(budget), RULE.last_alpha).side > 0).any()


@pytest.mark.parametrize("processes", [6, 10, 20])
def test_coverage_of_the_reported_intervals(processes: int) -> None:
    estimates = thetas(np.random.default_rng(106), 0.03, 3000, processes)
    for bounds in (t_bounds, signed_rank_bounds):
        low, high = bounds(estimates, RULE.alpha)
        inside = (low <= math.log1p(0.03)) & (math.log1p(0.03) <= high)
        assert at_least(int(inside.sum()), 3000) >= 0.93


@pytest.mark.parametrize(("truth", "least"), [(0.01, 0.94), (0.015, 0.94), (0.02, 0.93), (0.025, 0.94)])
def test_coverage_of_the_interval_that_the_rule_ends_with(truth: float, least: float) -> None:
    """The interval that spans both opinions, after one look or two.

    Two looks cost coverage: with the truth on the budget itself every wrong verdict of either look is a miss, and
    94.1 % remain (24,000 trials; 93.0 % if the second look were at 2.5 % too). Elsewhere it is 95 % or more.
    """
    estimates = thetas(np.random.default_rng(107), truth, 4000, RULE.extended)
    ends = []
    for part, alpha in ((estimates[:, : RULE.processes], RULE.alpha), (estimates, RULE.last_alpha)):
        student, exact = t_bounds(part, alpha), signed_rank_bounds(part, alpha)
        ends.append((np.minimum(student[0], exact[0]), np.maximum(student[1], exact[1])))
    open_ = look(estimates[:, : RULE.processes], LIMIT, RULE.alpha).side == 0
    low, high = (np.where(open_, ends[1][side], ends[0][side]) for side in (0, 1))
    inside = (low <= math.log1p(truth)) & (math.log1p(truth) <= high)
    assert at_least(int(inside.sum()), 4000) >= least


def test_coverage_of_the_mean_of_a_suite() -> None:
    """Few processes in each of few cells, cells of different noise: the bootstrap must not be too narrow."""
    rng = np.random.default_rng(108)
    truth = np.array([0.01, 0.03, 0.0, 0.1])
    spread = np.array([0.002, 0.004, 0.001, 0.008])
    inside = 0
    for _ in range(2000):
        cells = truth[:, None] + spread[:, None] * rng.normal(size=(4, 6))
        interval = suite_mean(list(cells), seed=1, resamples=500).interval
        inside += interval.low <= truth.mean() <= interval.high
    assert inside / 2000 >= 0.93


def test_coverage_of_the_slope() -> None:
    rng = np.random.default_rng(109)
    doses = np.array([0.0, 100.0, 300.0])
    inside = 0
    for _ in range(2000):
        y = 0.002 + 1e-4 * doses + rng.normal(0, 0.004, (8, 1)) + rng.normal(0, 0.002, (8, 3))
        interval = dose_response(doses, np.log1p(y)).slope_interval
        inside += interval.low <= 1e-4 <= interval.high
    assert at_least(inside, 2000) >= 0.93


def test_the_interval_of_the_report_is_the_one_that_decides() -> None:
    values = thetas(np.random.default_rng(111), 0.015, 1, RULE.processes)[0]
    decision = decide(summary(values, np.zeros(RULE.processes)), RULE)
    assert decision.student == t_interval(values, RULE.alpha)
    assert (decision.verdict is Verdict.PASS) == (
        decision.student.high < LIMIT and decision.exact.high < LIMIT and not decision.flags
    )
