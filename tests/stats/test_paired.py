"""The overhead estimate: algebra of one block, invariances, and error rates by seeded simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xtrace.stats import compare, hodges_lehmann, log_ratio, percent, signed_rank_interval, t_interval

times = st.lists(st.floats(1.0, 1e9), min_size=4, max_size=4)


def test_a_block_of_known_ratio() -> None:
    assert log_ratio([100, 102, 102, 100], "ABBA") == pytest.approx(math.log(1.02))
    assert log_ratio([102, 100, 100, 102], "BAAB") == pytest.approx(math.log(1.02))


def test_linear_drift_cancels() -> None:
    drift = [math.exp(0.01 * i) for i in range(4)]
    assert log_ratio([100 * f for f in drift], "ABBA") == pytest.approx(0, abs=1e-15)


def test_launches_left_out_at_the_start_do_not_count() -> None:
    assert log_ratio([500, 102, 102, 100], "ABBA", 1) == pytest.approx(math.log(1.02))
    assert log_ratio([500, 100, 100, 102], "BAAB", 1) == pytest.approx(math.log(1.02))
    with pytest.raises(ValueError, match="nothing to compare"):
        log_ratio([100, 102, 102, 100], "ABBA", 3)


@given(times, st.floats(1e-3, 1e3))
def test_the_unit_does_not_matter(ns: list[float], scale: float) -> None:
    assert log_ratio([t * scale for t in ns], "ABBA") == pytest.approx(log_ratio(ns, "ABBA"), abs=1e-9)


@given(times)
def test_swapping_the_labels_flips_the_sign(ns: list[float]) -> None:
    assert log_ratio(ns, "BAAB") == pytest.approx(-log_ratio(ns, "ABBA"), abs=1e-12)


@pytest.mark.parametrize(
    ("ns", "order"),
    [
        ([1, 1, 1], "ABBA"),
        ([1, 1, 1, 1], "ABBB"),
        ([1, 1, 1, 1], "ABCA"),
        ([], ""),
        ([1, 0, 1, 1], "ABBA"),
        ([1, math.nan, 1, 1], "ABBA"),
    ],
)
def test_a_block_that_is_none_is_refused(ns: list[float], order: str) -> None:
    with pytest.raises(ValueError, match=r"block|order|time"):
        log_ratio(ns, order)


def test_percent() -> None:
    assert percent(math.log(1.02)) == pytest.approx(2.0)
    assert percent(math.log(0.5)) == pytest.approx(-50.0)
    assert percent(math.inf) == math.inf


def simulate(rng: np.random.Generator, overhead: float, processes: int, blocks: int = 20) -> list[np.ndarray]:
    """Block statistics per process: random-walk drift, launch noise, spikes, and a placement effect per process."""
    n = 4 * blocks
    b = np.tile([0.0, 1.0, 1.0, 0.0], blocks)
    drift = np.cumsum(rng.normal(0, 0.03 / math.sqrt(n), (processes, n)), axis=1)
    noise = rng.normal(0, 0.006, (processes, n))
    noise += (rng.random((processes, n)) < 0.03) * rng.exponential(0.05, (processes, n))
    effect = math.log1p(overhead) + rng.normal(0, 0.004, (processes, 1))
    y = (drift + noise + b * effect).reshape(processes, blocks, 4)
    return list((y[..., 1] + y[..., 2] - y[..., 0] - y[..., 3]) / 2)


def rates(overhead: float, processes: int, trials: int, seed: int) -> tuple[float, float]:
    """How often U < ln(1.02) and L > ln(1.02), at the one-sided 5 % level that a single look uses."""
    rng = np.random.default_rng(seed)
    budget = math.log1p(0.02)
    below = above = 0
    for _ in range(trials):
        interval = compare(simulate(rng, overhead, processes), alpha=0.05).student
        below += interval.high < budget
        above += interval.low > budget
    return below / trials, above / trials


def test_false_pass_rate_at_the_budget() -> None:
    """True overhead = budget: declared below it in about 5 % of 4,000 trials, and as often above it."""
    below, above = rates(0.02, 10, 4000, seed=11)
    assert 0.03 <= below <= 0.07
    assert 0.03 <= above <= 0.07


def test_power_around_the_budget() -> None:
    below, _ = rates(0.012, 10, 300, seed=12)
    _, above = rates(0.028, 10, 300, seed=13)
    assert below >= 0.97
    assert above >= 0.97


def test_pooling_blocks_over_processes_would_be_wrong() -> None:
    """Why the process is the replicate: the same data, blocks pooled, breaks the level several times over."""
    rng = np.random.default_rng(14)
    wrong = sum(t_interval(np.concatenate(simulate(rng, 0.02, 10)), 0.05).high < math.log1p(0.02) for _ in range(2000))
    assert wrong / 2000 > 0.12


def test_both_intervals_cover_the_truth() -> None:
    rng = np.random.default_rng(15)
    student = exact = 0
    for _ in range(2000):
        x = rng.normal(0.01, 0.004, 8)
        a, b = t_interval(x), signed_rank_interval(x)
        student += a.low <= 0.01 <= a.high
        exact += b.low <= 0.01 <= b.high
    assert 0.935 <= student / 2000 <= 0.965
    assert exact / 2000 >= 0.94


def test_compare_gives_one_estimate_a_process() -> None:
    result = compare([[0.01, 0.011, 0.012], [0.02, 0.021, 0.022]])
    assert result.processes == 2
    assert result.blocks == 6
    assert result.thetas == pytest.approx((0.011, 0.021))
    assert result.theta == pytest.approx(0.016)
    assert result.percent == pytest.approx(100 * math.expm1(0.016))


def test_order_of_processes_and_blocks_does_not_matter() -> None:
    rng = np.random.default_rng(3)
    data = simulate(rng, 0.01, 6)
    shuffled = [rng.permutation(data[i]) for i in rng.permutation(6)]
    a, b = compare(data), compare(shuffled)
    assert (a.theta, a.student.low, a.exact.high) == pytest.approx((b.theta, b.student.low, b.exact.high))


def test_a_constant_shift_shifts_everything() -> None:
    data = simulate(np.random.default_rng(4), 0.0, 6)
    a, b = compare(data), compare([d + 0.05 for d in data])
    assert b.theta - a.theta == pytest.approx(0.05)
    assert b.student.low - a.student.low == pytest.approx(0.05)
    assert b.exact.high - a.exact.high == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("processes", "note"),
    [(1, "1 process: no interval"), (5, "t interval over 5 processes; an exact interval needs >= 6"), (6, "")],
)
def test_few_processes_are_said(processes: int, note: str) -> None:
    assert compare([[0.01, 0.02]] * processes).note == note


def test_nothing_is_not_zero() -> None:
    with pytest.raises(ValueError, match="no process"):
        compare([])
    with pytest.raises(ValueError, match="sample"):
        compare([[0.01], []])


def test_hodges_lehmann_resists_spikes_better_than_the_mean() -> None:
    rng = np.random.default_rng(5)
    d = rng.normal(0, 0.003, (300, 20)) + (rng.random((300, 20)) < 0.1) * 0.05
    assert np.std([hodges_lehmann(row) for row in d]) < 0.7 * np.std(d.mean(axis=1))
