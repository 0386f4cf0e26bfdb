"""The words of the gate, and the numbers that are declared before a measurement."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from xtrace.stats.intervals import signed_rank_minimum

__all__ = ["REGRESSION", "Flag", "Rule", "Verdict", "worst"]

REGRESSION = math.log1p(0.005)  # largest allowed change against an older version: half a percentage point


class Verdict(StrEnum):
    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    INVALID_ENV = "INVALID-ENV"


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """One verdict for many cells: FAIL, then INVALID-ENV, then INCONCLUSIVE, then PASS.

    A shown failure stays a failure whatever else could not be shown. A machine that is not fit outranks an open
    question, because more samples from it would not help.
    """
    order = [Verdict.FAIL, Verdict.INVALID_ENV, Verdict.INCONCLUSIVE, Verdict.PASS]
    return min(verdicts, key=order.index)


class Flag(StrEnum):
    """What a reader must know besides the verdict."""

    LAYOUT_SHIFT = "LAYOUT_SHIFT"  # traced code is faster: moving the code around had an effect of its own
    BIMODAL = "BIMODAL"  # processes fall into two groups: the mean describes neither


@dataclass(frozen=True, slots=True)
class Rule:
    """Everything that is declared before the measurement. Fractions, not percentages: ``0.02`` is 2 %.

    Raises
    ------
    ValueError
        The numbers contradict one another, e.g. fewer processes than an exact interval needs.
    """

    budget: float = 0.02
    processes: int = 10  # of the first look
    extended: int = 20  # of the second and last look
    minimum: int = 6  # fewer processes decide nothing
    alpha: float = 0.025  # one-sided, of the first look
    last_alpha: float = 0.015  # of the second one: two looks at 2.5 % would leave less than 93 % coverage
    control_margin: float = 0.0075
    control_alpha: float = 0.05
    max_voided: float = 0.10  # share of blocks
    layout_shift: float = -0.003

    def __post_init__(self) -> None:
        if not 0 < self.budget < math.inf:
            raise ValueError(f"a budget must be positive, not {self.budget}")
        if not 0 < self.last_alpha <= self.alpha < 0.5 or not 0 < self.control_alpha < 0.5:
            raise ValueError("a one-sided level lies between 0 and 0.5")
        if self.minimum < signed_rank_minimum(self.alpha):
            needed = signed_rank_minimum(self.alpha)
            raise ValueError(f"an exact interval at level {self.alpha} needs at least {needed} processes")
        if not self.minimum <= self.processes < self.extended:
            raise ValueError("processes must be at least the minimum and fewer than after the extension")
        if self.control_margin <= 0 or not 0 <= self.max_voided < 1 or not -1 < self.layout_shift < 0:
            raise ValueError("control margin, share of voided blocks or layout-shift threshold out of range")

    def level(self, processes: int) -> float:
        """One-sided level of the look that so many processes belong to."""
        return self.alpha if processes <= self.processes else self.last_alpha
