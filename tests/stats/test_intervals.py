"""Estimators against independent references: enumeration, scipy, hand-made cases."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from xtrace.stats import equivalence, hodges_lehmann, signed_rank_interval, t_interval, walsh_averages
from xtrace.stats.intervals import signed_rank_minimum


def test_walsh_averages_of_a_small_sample() -> None:
    assert walsh_averages([3.0, 1.0]).tolist() == [1.0, 2.0, 3.0]


def test_hodges_lehmann_ignores_one_wild_value() -> None:
    assert hodges_lehmann([1.0, 1.0, 1.0, 1.0, 1e6]) == 1.0


@pytest.mark.parametrize("bad", [[], [math.nan], [1.0, math.inf]])
def test_values_that_are_no_sample_are_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="sample"):
        hodges_lehmann(bad)


@pytest.mark.parametrize("alpha", [0.025, 0.05])
def test_t_interval_agrees_with_scipy(alpha: float) -> None:
    x = np.random.default_rng(1).normal(0.01, 0.004, 10)
    mine = t_interval(x, alpha)
    theirs = scipy_stats.ttest_1samp(x, 0).confidence_interval(1 - 2 * alpha)
    assert (mine.low, mine.high) == pytest.approx((theirs.low, theirs.high))


def test_one_value_has_no_interval() -> None:
    assert not t_interval([0.01]).finite
    assert not signed_rank_interval([0.01]).finite


@pytest.mark.parametrize("n", range(1, 11))
@pytest.mark.parametrize("alpha", [0.01, 0.025, 0.05, 0.1])
def test_signed_rank_level_by_enumeration(n: int, alpha: float) -> None:
    """Over all 2**n sign patterns the interval misses 0 on one side with probability <= alpha, the closest there is."""
    size = np.arange(1, n + 1) + np.linspace(0, 0.3, n)  # distinct ranks, no tied Walsh averages at zero
    misses = [signed_rank_interval(size * signs, alpha).low > 0 for signs in itertools.product((-1, 1), repeat=n)]
    share = sum(misses) / 2**n
    assert share <= alpha
    tails = (
        np.cumsum(
            np.bincount(
                [
                    sum(s)
                    for s in itertools.chain.from_iterable(
                        itertools.combinations(range(1, n + 1), r) for r in range(n + 1)
                    )
                ]
            )
        )
        / 2**n
    )
    assert share == max([0.0, *(t for t in tails if t <= alpha)])


@pytest.mark.parametrize(("alpha", "n"), [(0.025, 6), (0.05, 5), (0.005, 8)])
def test_fewest_values_for_an_exact_interval(alpha: float, n: int) -> None:
    assert signed_rank_minimum(alpha) == n
    values = list(np.linspace(0.01, 0.02, n))
    assert signed_rank_interval(values, alpha).finite
    assert not signed_rank_interval(values[:-1], alpha).finite


def test_equivalence_agrees_with_two_scipy_t_tests() -> None:
    x = np.random.default_rng(2).normal(0.002, 0.003, 10)
    mine = equivalence(x, 0.0075)
    low = scipy_stats.ttest_1samp(x, -0.0075, alternative="greater").pvalue
    high = scipy_stats.ttest_1samp(x, 0.0075, alternative="less").pvalue
    assert (mine.p_low, mine.p_high) == pytest.approx((low, high))


def test_equivalence_needs_evidence() -> None:
    assert not equivalence([0.0], 0.0075).holds
    assert equivalence([0.0] * 6, 0.0075).holds
    assert not equivalence([0.01] * 6, 0.0075).holds
    with pytest.raises(ValueError, match="margin"):
        equivalence([0.0], 0.0)
