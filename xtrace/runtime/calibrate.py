"""From the noise of one machine to the repeats that a measurement on it needs. Pure: numbers in, numbers out.

What is measured (:mod:`xtrace.runtime.calibration`) and what follows from it:

* the smallest step of an event's time -> how long a timed sample must be;
* time of a kernel against the memory overwritten before it -> how much must be overwritten until it starts cold;
* original against original, loaded twice (A/A'), in several processes -> the two variances below.

Model: block statistic ``d = placement(process) + block noise``. A process of ``n`` blocks gives the Hodges-Lehmann
estimate of its ``d``, whose variance under Gaussian block noise is ``(pi/3) block_sd^2 / n`` (asymptotic efficiency
``3/pi`` against the mean: Hodges and Lehmann 1963). Over ``S`` processes the interval's half-width is

    half(S, n) = t(0.975, S - 1) * sqrt((placement_sd^2 + (pi/3) block_sd^2 / n) / S)

Chosen are the ``S`` and ``n`` with the least time, ``S (startup + n block)``, whose half-width is within the target.
Because the variance between a few processes is itself uncertain, its one-sided 80 % upper limit is used.
The control blocks are the fewest with which the A/A' equivalence test at the gate's margin holds in about 97.5 % of
healthy measurements: ``(t(0.95, S - 1) + 1.96) * sqrt((placement_sd^2 + (pi/3) block_sd^2 / c) / S) <= margin``.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from xtrace.errors import BadInput
from xtrace.stats import hodges_lehmann

__all__ = [
    "SCHEMA",
    "Limits",
    "Noise",
    "Repeats",
    "cold_factor",
    "event_step",
    "half_width",
    "noise",
    "repeats",
    "sample_length",
]

SCHEMA = "xtrace/calibration/1"
_HL = math.pi / 3  # variance of the Hodges-Lehmann estimate relative to that of the mean
_UPPER = 0.2  # the variance between processes is taken at its 80 % upper limit


@dataclass(frozen=True, slots=True)
class Noise:
    """Standard deviations of natural-log ratios."""

    block_sd: float  # of one block, robust (1.4826 MAD)
    process_sd: float  # of the estimates of processes, as observed with ``blocks`` blocks each
    placement_sd: float  # the part that more blocks do not remove
    placement_upper: float  # its upper limit, which is planned with
    mean: float  # of A/A' over processes: should be 0
    processes: int
    blocks: float  # a process, on average


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be chosen. The least numbers are those of the gate's rule."""

    processes: tuple[int, int] = (10, 40)
    blocks: tuple[int, int] = (8, 100)
    control_blocks: tuple[int, int] = (8, 100)
    control_margin: float = math.log1p(0.0075)


@dataclass(frozen=True, slots=True)
class Repeats:
    processes: int
    blocks: int
    control_blocks: int
    half_width: float  # predicted, log ratio
    reached: bool  # within the target
    control_reached: bool
    seconds: float  # for one cell, all processes


def noise(groups: Sequence[Sequence[Sequence[float]]]) -> Noise:
    """Noise of A/A' samples: for every workload, for every process, its block log ratios.

    Workloads may have means of their own; variances are pooled over them. Raises BadInput XT5060 unless some workload
    has two processes and every process two blocks.
    """
    if not any(len(g) > 1 for g in groups) or any(len(d) < 2 for g in groups for d in g):
        raise BadInput("XT5060", "the noise between processes needs two processes with two blocks each")
    robust = []
    squares, freedom, thetas_all = 0.0, 0, []
    for group in groups:
        for d in group:
            middle = statistics.median(d)
            robust.append((1.4826 * statistics.median(abs(x - middle) for x in d)) ** 2)
        thetas = [hodges_lehmann(d) for d in group]
        thetas_all += thetas
        squares += sum((t - statistics.fmean(thetas)) ** 2 for t in thetas)
        freedom += len(thetas) - 1
    block_sd = math.sqrt(statistics.fmean(robust))
    count = sum(len(g) for g in groups)
    blocks = statistics.fmean(len(d) for g in groups for d in g)
    within = _HL * block_sd**2 / blocks
    variance = squares / freedom
    upper = variance * freedom / float(stats.chi2.ppf(_UPPER, freedom))
    return Noise(
        block_sd=block_sd,
        process_sd=math.sqrt(variance),
        placement_sd=math.sqrt(max(variance - within, 0.0)),
        placement_upper=math.sqrt(max(upper - within, 0.0)),
        mean=statistics.fmean(thetas_all),
        processes=count,
        blocks=blocks,
    )


def half_width(placement_sd: float, block_sd: float, processes: int, blocks: int) -> float:
    """Half-width of the 95 % interval over processes, as a log ratio; see the module for the formula."""
    t = float(stats.t.ppf(0.975, processes - 1))
    return t * math.sqrt((placement_sd**2 + _HL * block_sd**2 / blocks) / processes)


def repeats(found: Noise, target: float, *, startup_s: float, block_s: float, limits: Limits | None = None) -> Repeats:
    """Processes and blocks for a half-width of at most ``target`` (log ratio) in the least time.

    Where no allowed choice reaches the target, the most precise one is returned with ``reached`` False.
    """
    bound = limits or Limits()
    if not 0 < target < 1 or startup_s < 0 or block_s <= 0:
        raise BadInput("XT5060", f"target {target}, {startup_s} s a process, {block_s} s a block")
    placement, block = found.placement_upper, found.block_sd
    best: tuple[float, int, int] | None = None
    for processes in range(bound.processes[0], bound.processes[1] + 1):
        blocks = _fewest(bound.blocks, lambda n, s=processes: half_width(placement, block, s, n) <= target)
        if blocks is not None:
            seconds = processes * (startup_s + blocks * block_s)
            best = min(best, (seconds, processes, blocks)) if best else (seconds, processes, blocks)
    reached = best is not None
    _, processes, blocks = best or (0.0, bound.processes[1], bound.blocks[1])

    def control_holds(c: int) -> bool:
        quantile = float(stats.t.ppf(0.95, processes - 1)) + 1.96
        return quantile * math.sqrt((placement**2 + _HL * block**2 / c) / processes) <= bound.control_margin

    control = _fewest(bound.control_blocks, control_holds)
    control_blocks = control or bound.control_blocks[1]
    return Repeats(
        processes=processes,
        blocks=blocks,
        control_blocks=control_blocks,
        half_width=half_width(placement, block, processes, blocks),
        reached=reached,
        control_reached=control is not None,
        seconds=processes * (startup_s + (blocks + control_blocks) * block_s),
    )


def _fewest(bounds: tuple[int, int], holds: Any) -> int | None:
    return next((n for n in range(bounds[0], bounds[1] + 1) if holds(n)), None)


def event_step(gaps_ns: Sequence[float]) -> float:
    """The smallest difference between distinct event times, ns: the clock's resolution; 0 if all are equal."""
    values = np.unique(np.round(np.asarray(gaps_ns, dtype=np.float64), 1))
    steps = np.diff(values)
    return float(steps.min()) if steps.size else 0.0


def sample_length(step_ns: float, target: float) -> float:
    """Shortest sample, ns, of which one step of the clock is no more than the target: ``step / target``.

    Errors of single samples are a fraction of a step and average out, because times vary by more than one step.
    """
    return step_ns / target


def cold_factor(curve: Mapping[float, Sequence[float]], tolerance: float = 0.005) -> float:
    """The smallest flush, in L2 sizes, from which on the median time stays within ``tolerance`` of the largest's.

    ``curve`` gives times by flush factor. Raises BadInput XT5060 for an empty curve.
    """
    if not curve or any(not times for times in curve.values()):
        raise BadInput("XT5060", "no times for a flush factor")
    factors = sorted(curve)
    cold = statistics.median(curve[factors[-1]])
    found = factors[-1]
    for factor in reversed(factors):
        if abs(math.log(statistics.median(curve[factor]) / cold)) > tolerance:
            break
        found = factor
    return found
