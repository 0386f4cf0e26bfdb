"""Dose and response: how the overhead grows with the number of records.

A line is fitted in every process replicate over all doses it measured; the interval of the slope is taken over the
processes' slopes, like every other interval here. Doses measured in one process share its luck of placement, which
moves the line up or down and leaves its slope alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xtrace.stats.intervals import Interval, t_interval

__all__ = ["DoseResponse", "dose_response"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class DoseResponse:
    """``overhead = intercept + slope * dose``, overhead as a fraction of the original time (0.01 is 1 %)."""

    doses: tuple[float, ...]
    overheads: tuple[float, ...]  # mean over processes, one for each dose
    processes: int
    slope: float
    slope_interval: Interval
    intercept: float
    intercept_interval: Interval
    r_squared: float  # of the mean line; 1 when every mean lies on it
    worst_residual: float  # largest distance of a mean from the line, same unit as the overheads: what bends shows here

    def ns_per_record(self, original_ns: float) -> tuple[float, float, float]:
        """By how many ns one more unit of dose lengthens a launch of ``original_ns``: value, low, high."""
        interval = self.slope_interval
        return self.slope * original_ns, interval.low * original_ns, interval.high * original_ns


def dose_response(doses: Sequence[float], thetas: Sequence[Sequence[float]], alpha: float = 0.025) -> DoseResponse:
    """Fit the line.

    Parameters
    ----------
    doses
        Records per warp, or per iteration, at least two different ones. Include 0 only if it was measured.
    thetas
        ``thetas[process][dose]``: log ratios of process replicates, every process with every dose.

    Raises
    ------
    ValueError
        Fewer than two different doses, no process, a missing or a non-finite value.
    """
    x = np.asarray(doses, dtype=np.float64)
    lengths = {len(row) for row in thetas}
    if lengths != {x.size}:
        raise ValueError(f"every process needs one value for each of the {x.size} doses")
    y = np.expm1(np.asarray(thetas, dtype=np.float64))
    if not np.isfinite(x).all() or not np.isfinite(y).all():
        raise ValueError("a dose or an overhead is not finite")
    centred = x - x.mean()
    spread = float(centred @ centred)
    if spread == 0:
        raise ValueError("a slope needs at least two different doses")
    slopes = y @ centred / spread
    intercepts = y.mean(axis=1) - slopes * x.mean()
    means = y.mean(axis=0)
    residuals = means - (intercepts.mean() + slopes.mean() * x)
    variation = float(np.sum((means - means.mean()) ** 2))
    return DoseResponse(
        doses=tuple(map(float, x)),
        overheads=tuple(map(float, means)),
        processes=len(thetas),
        slope=float(slopes.mean()),
        slope_interval=t_interval(slopes, alpha),
        intercept=float(intercepts.mean()),
        intercept_interval=t_interval(intercepts, alpha),
        r_squared=1 - float(residuals @ residuals) / variation if variation > 0 else 1.0,
        worst_residual=float(np.abs(residuals).max()),
    )
