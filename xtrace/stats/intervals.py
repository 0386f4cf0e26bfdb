"""Location estimates and intervals of one small sample.

All levels are one-sided error rates per side: ``alpha = 0.025`` gives the usual two-sided 95 % interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import special

__all__ = [
    "Equivalence",
    "Interval",
    "equivalence",
    "hodges_lehmann",
    "signed_rank_bounds",
    "signed_rank_interval",
    "signed_rank_minimum",
    "t_bounds",
    "t_interval",
    "walsh_averages",
]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval for a location. An undecidable side is infinite, never a guess."""

    low: float
    high: float
    alpha: float

    @property
    def finite(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)


@dataclass(frozen=True, slots=True)
class Equivalence:
    """Result of two one-sided t tests (TOST) against ``+-margin``."""

    margin: float
    p_low: float  # of "location <= -margin"
    p_high: float  # of "location >= +margin"
    alpha: float

    @property
    def holds(self) -> bool:
        """Both directions are rejected: the location lies within the margin."""
        return max(self.p_low, self.p_high) < self.alpha


def _vector(values: Sequence[float] | Floats) -> Floats:
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or x.size == 0:
        raise ValueError("need a non-empty one-dimensional sample")
    if not np.isfinite(x).all():
        raise ValueError("the sample holds a value that is not finite")
    return x


def walsh_averages(values: Sequence[float] | Floats) -> Floats:
    """Sorted means of all pairs, each value with itself included: ``n (n + 1) / 2`` of them."""
    x = _vector(values)
    i, j = _pairs(x.size)
    return np.sort((x[i] + x[j]) / 2)


@lru_cache(maxsize=64)
def _pairs(n: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    i, j = np.triu_indices(n)
    return i, j


def hodges_lehmann(values: Sequence[float] | Floats) -> float:
    """Median of the Walsh averages: as robust as needed here, and efficient where the noise is Gaussian.

    Source: Hodges and Lehmann, Annals of Mathematical Statistics 34 (1963).
    """
    w = walsh_averages(values)
    middle = w.size // 2
    return float(w[middle]) if w.size % 2 else float((w[middle - 1] + w[middle]) / 2)


def t_interval(values: Sequence[float] | Floats, alpha: float = 0.025) -> Interval:
    """Student's interval for the mean; infinite for fewer than two values."""
    low, high = t_bounds(_vector(values), alpha)
    return Interval(float(low), float(high), alpha)


def t_bounds(samples: Floats, alpha: float) -> tuple[Floats, Floats]:
    """Student's interval of every sample along the last axis, shape ``(..., n)``: arrays ``low`` and ``high``."""
    n = samples.shape[-1]
    if n < 2:
        return _unbounded(samples.shape[:-1])
    mean = samples.mean(axis=-1)
    half = _t_quantile(n - 1, alpha) * samples.std(axis=-1, ddof=1) / math.sqrt(n)
    return mean - half, mean + half


def _unbounded(shape: tuple[int, ...]) -> tuple[Floats, Floats]:
    return np.full(shape, -np.inf), np.full(shape, np.inf)


@lru_cache(maxsize=256)
def _t_quantile(dof: int, alpha: float) -> float:
    return float(special.stdtrit(dof, 1 - alpha))


def signed_rank_interval(values: Sequence[float] | Floats, alpha: float = 0.025) -> Interval:
    """Exact interval from Wilcoxon's signed-rank distribution, between two Walsh averages.

    With too few values for ``alpha`` no exact interval exists and both sides are infinite
    (``alpha = 0.025`` needs at least six: with five the smallest tail is 1/32).
    """
    low, high = signed_rank_bounds(_vector(values), alpha)
    return Interval(float(low), float(high), alpha)


def signed_rank_bounds(samples: Floats, alpha: float) -> tuple[Floats, Floats]:
    """The exact interval of every sample along the last axis, shape ``(..., n)``: arrays ``low`` and ``high``."""
    n = samples.shape[-1]
    k = _signed_rank_rank(n, alpha)
    if k == 0:
        return _unbounded(samples.shape[:-1])
    i, j = _pairs(n)
    w = (samples[..., i] + samples[..., j]) / 2
    w.partition((k - 1, w.shape[-1] - k), axis=-1)
    return w[..., k - 1], w[..., -k]


def signed_rank_minimum(alpha: float) -> int:
    """Fewest values for which :func:`signed_rank_interval` is finite: the smallest n with ``2**-n <= alpha``."""
    return math.ceil(-math.log2(alpha))


@lru_cache(maxsize=256)
def _signed_rank_rank(n: int, alpha: float) -> int:
    """How many of the smallest rank sums have a total probability of at most ``alpha``."""
    count = [1]  # count[s]: subsets of {1..rank} with sum s, in exact integers
    for rank in range(1, n + 1):
        grown = count + [0] * rank
        for s, c in enumerate(count):
            grown[s + rank] += c
        count = grown
    tail, k = 0, 0
    limit = alpha * 2**n
    for c in count:
        tail += c
        if tail > limit:
            break
        k += 1
    return k


def equivalence(values: Sequence[float] | Floats, margin: float, alpha: float = 0.05) -> Equivalence:
    """TOST: is the mean shown to lie within ``+-margin``? Fewer than two values show nothing (p = 1).

    Source: Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15 (1987).
    """
    if margin <= 0:
        raise ValueError("the margin of an equivalence test must be positive")
    x = _vector(values)
    if x.size < 2:
        return Equivalence(margin, 1.0, 1.0, alpha)
    mean, error = float(x.mean()), float(x.std(ddof=1)) / math.sqrt(x.size)
    if error == 0:
        return Equivalence(margin, float(mean <= -margin), float(mean >= margin), alpha)
    dof = x.size - 1
    p_low = float(special.stdtr(dof, -(mean + margin) / error))
    p_high = float(special.stdtr(dof, (mean - margin) / error))
    return Equivalence(margin, p_low, p_high, alpha)
