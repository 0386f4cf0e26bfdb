"""From interleaved blocks of launch times to one overhead figure with an interval.

The replicate is the process, not the launch: interleaving removes drift, and only fresh processes average over the luck
of code and data placement. Each process therefore gives one number, and intervals are taken over processes. Pooling
blocks of all processes instead would call a true overhead "below budget" four times as often as the stated level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from xtrace.stats.intervals import (
    Interval,
    hodges_lehmann,
    signed_rank_interval,
    signed_rank_minimum,
    t_interval,
)

__all__ = ["Comparison", "compare", "log_ratio", "percent"]


def log_ratio(ns: Sequence[float], order: str, skip: int = 0) -> float:
    """``ln(B/A)`` of one block: mean log of its B launches minus mean log of its A launches.

    Parameters
    ----------
    ns
        Launch times in launch order, any unit.
    order
        One letter a launch, as many ``A`` as ``B``, e.g. ``"ABBA"``: symmetric orders cancel linear drift.
    skip
        Launches at the start that do not count. Then drift cancels over blocks of both orders, not within one.

    Raises
    ------
    ValueError
        Lengths differ, letters are unbalanced, none of one letter is left, or a time is not a positive finite number.
    """
    if len(ns) != len(order) or not order:
        raise ValueError(f"a block of order {order!r} needs {len(order)} times, not {len(ns)}")
    if set(order) != {"A", "B"} or order.count("A") != order.count("B"):
        raise ValueError(f"the order {order!r} is not a balanced word of A and B")
    if not all(math.isfinite(t) and t > 0 for t in ns):
        raise ValueError("a launch time is not a positive finite number")
    logs: dict[str, list[float]] = {"A": [], "B": []}
    for t, letter in zip(ns[skip:], order[skip:], strict=True):
        logs[letter].append(math.log(t))
    if not logs["A"] or not logs["B"]:
        raise ValueError(f"{skip} launches left out of {order!r} leave nothing to compare")
    return math.fsum(logs["B"]) / len(logs["B"]) - math.fsum(logs["A"]) / len(logs["A"])


def percent(theta: float) -> float:
    """A log ratio as overhead in percent: ``100 (exp(theta) - 1)``."""
    if theta == math.inf:
        return math.inf
    return 100 * math.expm1(theta)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Overhead of B over A. All fields but the percentages are natural-log ratios."""

    processes: int
    blocks: int
    thetas: tuple[float, ...]  # one Hodges-Lehmann estimate a process
    theta: float  # their mean
    student: Interval
    exact: Interval  # signed-rank interval: second opinion at the same level

    @property
    def percent(self) -> float:
        return percent(self.theta)

    @property
    def low_percent(self) -> float:
        return percent(self.student.low)

    @property
    def high_percent(self) -> float:
        return percent(self.student.high)

    @property
    def note(self) -> str:
        """What a reader must know about the interval; empty when both kinds exist."""
        if self.processes < 2:
            return f"{self.processes} process: no interval"
        if not self.exact.finite:
            needed = signed_rank_minimum(self.exact.alpha)
            return f"t interval over {self.processes} processes; an exact interval needs >= {needed}"
        return ""


def compare(processes: Sequence[Sequence[float]], alpha: float = 0.025) -> Comparison:
    """Combine the block log ratios of every process; a process without blocks is an error, not a zero.

    Parameters
    ----------
    processes
        For each process replicate its block statistics from :func:`log_ratio`.
    alpha
        One-sided level of each side of both intervals.
    """
    if not processes:
        raise ValueError("no process replicate")
    thetas = tuple(hodges_lehmann(blocks) for blocks in processes)
    return Comparison(
        processes=len(thetas),
        blocks=sum(len(blocks) for blocks in processes),
        thetas=thetas,
        theta=math.fsum(thetas) / len(thetas),
        student=t_interval(thetas, alpha),
        exact=signed_rank_interval(thetas, alpha),
    )
