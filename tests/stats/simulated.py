"""A simulated machine for the gate: launch times with drift, noise, spikes and a placement effect of each process.

The magnitudes are assumptions about a GPU, chosen so that careless designs fail: a random walk of 3 % over a process,
0.6 % noise from launch to launch, 3 % of launches with a spike of 5 % on average, and 0.4 % between processes that
differs between the original and the traced kernel.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from xtrace.stats import Cell, CellSummary, Comparison, equivalence, signed_rank_interval, t_interval

Floats = npt.NDArray[np.float64]

DRIFT, NOISE, PLACEMENT, SPIKES, SPIKE = 0.03, 0.006, 0.004, 0.03, 0.05
ORDER = np.array([0.0, 1.0, 1.0, 0.0])


def ratios(rng: np.random.Generator, overhead: float, trials: int, processes: int, blocks: int = 20) -> Floats:
    """Block log ratios, shape ``(trials, processes, blocks)``."""
    shape = (trials, processes, 4 * blocks)
    times = np.cumsum(rng.normal(0, DRIFT / math.sqrt(shape[-1]), shape), axis=-1)
    times += rng.normal(0, NOISE, shape)
    spikes = np.nonzero(rng.random(shape) < SPIKES)
    times[spikes] += rng.exponential(SPIKE, spikes[0].size)
    effect = math.log1p(overhead) + rng.normal(0, PLACEMENT, shape[:2])
    y = times.reshape(*shape[:2], blocks, 4) + effect[..., None, None] * ORDER
    return (y[..., 1] + y[..., 2] - y[..., 0] - y[..., 3]) / 2


def location(d: Floats) -> Floats:
    """Hodges-Lehmann estimates along the last axis."""
    i, j = np.triu_indices(d.shape[-1])
    return np.concatenate([np.median((part[..., i] + part[..., j]) / 2, axis=-1) for part in np.array_split(d, 20)])


def thetas(rng: np.random.Generator, overhead: float, trials: int, processes: int, blocks: int = 20) -> Floats:
    """Process estimates, shape ``(trials, processes)``."""
    return location(ratios(rng, overhead, trials, processes, blocks))


def comparison(values: Floats, alpha: float = 0.025) -> Comparison:
    """What ``compare`` gives for processes with these estimates."""
    listed = tuple(float(v) for v in values)
    return Comparison(
        processes=len(listed),
        blocks=20 * len(listed),
        thetas=listed,
        theta=math.fsum(listed) / len(listed),
        student=t_interval(values, alpha),
        exact=signed_rank_interval(values, alpha),
    )


CHECKS = {"bit_identical": True, "records_emitted": 10, "records_expected": 10, "records_lost": 0, "monotonic": True}
CELL = ("softmax", "softmax_kernel", "rows=1", "bf16", "GPU", "xtrace", "pp")


def summary(values: Floats, control: Floats | None, **changes: Any) -> CellSummary:
    """A cell whose processes gave these estimates, in order otherwise."""
    aa = None if control is None else comparison(control)
    documents = tuple({"process": p} for p in range(len(values)))
    fields: dict[str, Any] = {
        "cell": Cell(CELL, documents),
        "overhead": comparison(values),
        "control": aa,
        "control_test": equivalence(aa.thetas, math.log1p(0.0075)) if aa else None,
        "voided": 0,
        "median_a_ns": 1000.0,
        "median_b_ns": 1010.0,
        "checks": CHECKS,
        "blocks": 28 * len(values),
        **changes,
    }
    return CellSummary(**fields)


def at_most(count: int, trials: int, level: float = 0.99) -> float:
    """Upper confidence limit of a rate (Clopper and Pearson)."""
    return float(stats.beta.ppf(level, count + 1, trials - count)) if count < trials else 1.0


def at_least(count: int, trials: int, level: float = 0.99) -> float:
    """Lower confidence limit of a rate."""
    return 1 - at_most(trials - count, trials, level)
