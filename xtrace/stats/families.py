"""Statements about many cells: which ones regressed, and what a suite costs as a whole.

"Every cell is below its budget" needs no correction: each cell is tested at its own level, and all must pass (an
intersection-union test). "These cells are above theirs" does: among many healthy cells some exceed by chance, and
Holm's procedure bounds the chance of naming even one wrongly. The mean of a suite is a summary and never the gate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from xtrace.stats.intervals import Interval
from xtrace.stats.paired import percent

__all__ = ["SuiteMean", "above_limit", "holm", "suite_mean"]

Floats = npt.NDArray[np.float64]


def above_limit(thetas: Sequence[float] | Floats, limit: float) -> float:
    """One-sided p value of Student's test of "the mean of these process estimates is at most ``limit``"."""
    x = np.asarray(thetas, dtype=np.float64)
    if x.size < 2:
        return 1.0
    excess, error = float(x.mean()) - limit, float(x.std(ddof=1)) / math.sqrt(x.size)
    if error == 0:
        return 0.0 if excess > 0 else 1.0
    return float(special.stdtr(x.size - 1, -excess / error))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p values: reject those at or below the wanted family-wise level.

    Source: Holm, Scandinavian Journal of Statistics 6 (1979).
    """
    if any(not 0 <= p <= 1 for p in p_values):
        raise ValueError("a p value lies between 0 and 1")
    count = len(p_values)
    adjusted = [1.0] * count
    running = 0.0
    for rank, index in enumerate(sorted(range(count), key=lambda i: p_values[i])):
        running = max(running, min(1.0, (count - rank) * p_values[index]))
        adjusted[index] = running
    return adjusted


@dataclass(frozen=True, slots=True)
class SuiteMean:
    """Geometric mean of the time ratios of several cells. ``theta`` and ``interval`` are natural-log ratios."""

    cells: int
    theta: float
    interval: Interval
    resamples: int
    seed: int

    @property
    def percent(self) -> float:
        return percent(self.theta)

    @property
    def low_percent(self) -> float:
        return percent(self.interval.low)

    @property
    def high_percent(self) -> float:
        return percent(self.interval.high)


def suite_mean(
    cells: Sequence[Sequence[float]], *, seed: int, resamples: int = 4000, alpha: float = 0.025
) -> SuiteMean:
    """Geometric mean over cells with a bootstrap interval: processes are resampled within each cell.

    The cells are this suite, not a sample of all kernels, so they are not resampled. A bootstrap of n values is too
    narrow: by ``sqrt(n / (n - 1))``, and because it takes the spread as known. So deviations are stretched by that root
    in each cell, and all of them by the ratio of Student's quantile to the Gaussian one, with degrees of freedom after
    Satterthwaite (Biometrics Bulletin 2, 1946). Six processes in four unequal cells then cover 95 %, not 91 %.

    Parameters
    ----------
    cells
        Process estimates (log ratios) of each cell; two or more in each, or the interval is infinite.
    seed
        Of the resampling, so that the same results give the same figures.
    """
    if not cells or any(len(cell) == 0 for cell in cells):
        raise ValueError("a suite needs cells, and every cell a process replicate")
    theta = math.fsum(math.fsum(cell) / len(cell) for cell in cells) / len(cells)
    if any(len(cell) < 2 for cell in cells):
        return SuiteMean(len(cells), theta, Interval(-math.inf, math.inf, alpha), 0, seed)
    rng = np.random.default_rng(seed)
    deviation = np.zeros(resamples)
    variances, dofs = [], []
    for cell in cells:
        x = np.asarray(cell, dtype=np.float64)
        picked = rng.integers(0, x.size, (resamples, x.size))
        deviation += (x[picked].mean(axis=1) - x.mean()) * math.sqrt(x.size / (x.size - 1))
        variances.append(float(x.var(ddof=1)) / x.size)
        dofs.append(x.size - 1)
    deviation *= _student_stretch(variances, dofs, alpha)
    low, high = theta + np.quantile(deviation / len(cells), (alpha, 1 - alpha))
    return SuiteMean(len(cells), theta, Interval(float(low), float(high), alpha), resamples, seed)


def _student_stretch(variances: Sequence[float], dofs: Sequence[int], alpha: float) -> float:
    """Student's quantile over the Gaussian one for a sum of means with these variances."""
    if not any(variances):
        return 1.0
    dof = sum(variances) ** 2 / sum(v * v / d for v, d in zip(variances, dofs, strict=True))
    return float(special.stdtrit(dof, 1 - alpha) / special.ndtri(1 - alpha))
