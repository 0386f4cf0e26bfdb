"""Statements about several cells and several doses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from xtrace.stats import dose_response, holm, suite_mean
from xtrace.stats.families import above_limit


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
    with pytest.raises(ValueError, match="between 0 and 1"):
        holm([1.1])


def test_holm_names_a_healthy_cell_rarely() -> None:
    """Twenty cells at their budget: one or more is named in at most 5 % of 2,000 families; without Holm in most."""
    rng = np.random.default_rng(1)
    named = naive = 0
    for _ in range(2000):
        p = scipy_stats.t.sf(rng.standard_t(9, 20), 9)
        named += min(holm(p.tolist())) <= 0.05
        naive += p.min() <= 0.05
    assert named / 2000 <= 0.065
    assert naive / 2000 > 0.5


def test_one_sided_p_agrees_with_scipy() -> None:
    x = np.random.default_rng(2).normal(0.022, 0.004, 10)
    expected = scipy_stats.ttest_1samp(x, 0.02, alternative="greater").pvalue
    assert above_limit(x, 0.02) == pytest.approx(expected)
    assert above_limit([0.03], 0.02) == 1.0
    assert above_limit([0.03, 0.03], 0.02) == 0.0
    assert above_limit([0.01, 0.01], 0.02) == 1.0


def test_suite_mean_is_the_geometric_mean_of_the_ratios() -> None:
    cells = [[math.log(1.0)] * 6, [math.log(1.1)] * 6]
    mean = suite_mean(cells, seed=1)
    assert mean.percent == pytest.approx(100 * (math.sqrt(1.1) - 1))
    assert mean.interval.low == pytest.approx(mean.interval.high)


def test_suite_mean_is_repeatable_and_widens_with_the_spread() -> None:
    rng = np.random.default_rng(3)
    cells = rng.normal(0.01, 0.003, (4, 8))
    one, again = suite_mean(list(cells), seed=5), suite_mean(list(cells), seed=5)
    assert one == again
    assert one.interval.low < one.theta < one.interval.high
    wide = suite_mean(list(cells.mean() + 3 * (cells - cells.mean())), seed=5)
    assert wide.interval.high - wide.interval.low > 2 * (one.interval.high - one.interval.low)


def test_suite_mean_without_replicates_has_no_interval() -> None:
    assert not suite_mean([[0.01], [0.02, 0.03]], seed=1).interval.finite
    for nothing in ([], [[]]):
        with pytest.raises(ValueError, match="suite"):
            suite_mean(nothing, seed=1)


def test_a_line_is_found_again() -> None:
    doses = [0, 50, 100, 400]
    placement = np.array([0.0, 0.003, -0.002, 0.001, 0.0, -0.001])
    y = 0.004 + placement[:, None] + 2e-5 * np.array(doses)
    fit = dose_response(doses, np.log1p(y))
    assert fit.slope == pytest.approx(2e-5)
    assert fit.slope_interval.low == pytest.approx(2e-5)  # luck of placement moves lines, it does not tilt them
    assert fit.intercept == pytest.approx(0.004 + placement.mean())
    assert fit.r_squared == pytest.approx(1)
    assert fit.ns_per_record(500_000) == pytest.approx((10, 10, 10))


def test_what_bends_shows_in_the_fit() -> None:
    doses = np.array([0.0, 1.0, 2.0, 3.0])
    fit = dose_response(doses, np.log1p(np.tile(0.01 * doses**2, (6, 1))))
    assert fit.r_squared < 0.95
    assert fit.worst_residual == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("doses", "thetas", "words"),
    [
        ([1, 1], [[0.1, 0.1]], "two different"),
        ([1, 2], [[0.1]], "each of the 2 doses"),
        ([1, 2], [], "each of the 2 doses"),
        ([1, math.nan], [[0.1, 0.1]], "finite"),
        ([1, 2], [[0.1, math.inf]], "finite"),
    ],
)
def test_doses_that_give_no_line(doses: list[float], thetas: list[list[float]], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        dose_response(doses, thetas)
