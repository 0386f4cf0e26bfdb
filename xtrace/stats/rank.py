"""Rank correlation: whether what is predicted to cost more does cost more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import spearmanr

__all__ = ["RankCorrelation", "rank_correlation"]

LEAST = 3  # pairs: with two, every correlation is perfect


@dataclass(frozen=True, slots=True)
class RankCorrelation:
    rho: float | None  # Spearman's; None: fewer than three pairs, or one side is constant
    pairs: int


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> RankCorrelation:
    """Spearman's rho of pairs, ties at their mean rank.

    Raises
    ------
    ValueError
        Different lengths, or a value that is not finite.
    """
    if len(x) != len(y) or not all(map(math.isfinite, (*x, *y))):
        raise ValueError("rank correlation needs pairs of finite values")
    if len(x) < LEAST or len(set(x)) == 1 or len(set(y)) == 1:
        return RankCorrelation(None, len(x))
    return RankCorrelation(float(spearmanr(x, y).statistic), len(x))
