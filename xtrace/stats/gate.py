"""The gate: from the samples of one cell to PASS, FAIL, INCONCLUSIVE or INVALID-ENV.

The replicate is the process. A budget is decided by two intervals over processes, Student's and the exact signed-rank
one, at one-sided 2.5 % each; they have to agree. What is undecided after the declared number of processes gets one
extension, declared beforehand, after which all processes are analysed again at the same level. Two looks at 2.5 % keep
the chance of passing a kernel that costs exactly its budget below 5 %. A third look is never taken.

Nothing is decided by times on a machine that is not fit: the original bytes, loaded twice, must be shown to run equally
fast. And no time is good enough for a kernel whose results changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from xtrace.stats.intervals import (
    Interval,
    equivalence,
    signed_rank_bounds,
    signed_rank_interval,
    signed_rank_minimum,
    t_bounds,
    t_interval,
)
from xtrace.stats.modes import find_modes
from xtrace.stats.paired import percent
from xtrace.stats.samples import CellSummary, broken_promises

__all__ = ["Decision", "Flag", "Look", "Rule", "Verdict", "decide", "judge", "look", "unfit_machine"]

Floats = npt.NDArray[np.float64]
Signs = npt.NDArray[np.int8]
BELOW, OPEN, ABOVE = -1, 0, 1


class Verdict(StrEnum):
    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    INVALID_ENV = "INVALID-ENV"


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
    alpha: float = 0.025  # one-sided, for each look
    control_margin: float = 0.0075
    control_alpha: float = 0.05
    max_voided: float = 0.10  # share of blocks
    layout_shift: float = -0.003

    def __post_init__(self) -> None:
        if not 0 < self.budget < math.inf:
            raise ValueError(f"a budget must be positive, not {self.budget}")
        if not 0 < self.alpha < 0.5 or not 0 < self.control_alpha < 0.5:
            raise ValueError("a one-sided level lies between 0 and 0.5")
        if self.minimum < signed_rank_minimum(self.alpha):
            needed = signed_rank_minimum(self.alpha)
            raise ValueError(f"an exact interval at level {self.alpha} needs at least {needed} processes")
        if not self.minimum <= self.processes < self.extended:
            raise ValueError("processes must be at least the minimum and fewer than after the extension")
        if self.control_margin <= 0 or not 0 <= self.max_voided < 1 or not -1 < self.layout_shift < 0:
            raise ValueError("control margin, share of voided blocks or layout-shift threshold out of range")


@dataclass(frozen=True, slots=True)
class Look:
    """Where samples lie relative to a limit, for an array of samples: -1 shown below, +1 shown above, 0 neither."""

    student: Signs
    exact: Signs
    bimodal: npt.NDArray[np.bool_]
    straddles: npt.NDArray[np.bool_]  # bimodal, one mode on each side of the limit

    @property
    def side(self) -> Signs:
        """The common opinion; 0 where opinions differ, or where the mean hides that one mode is on the other side."""
        agreed: Signs = np.where((self.student == self.exact) & ~self.straddles, self.student, OPEN).astype(np.int8)
        return agreed


def look(thetas: Floats, limit: float, alpha: float) -> Look:
    """Compare samples of process estimates (log ratios, along the last axis) with ``limit`` at level ``alpha``."""
    modes = find_modes(thetas)
    return Look(
        student=_side(t_bounds(thetas, alpha), limit),
        exact=_side(signed_rank_bounds(thetas, alpha), limit),
        bimodal=modes.bimodal,
        straddles=modes.bimodal & (modes.low < limit) & (modes.high > limit),
    )


def _side(bounds: tuple[Floats, Floats], limit: float) -> Signs:
    low, high = bounds
    signs: Signs = np.where(high < limit, BELOW, np.where(low > limit, ABOVE, OPEN)).astype(np.int8)
    return signs


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict on one cell. Intervals are natural-log ratios at the rule's level."""

    verdict: Verdict
    reasons: tuple[str, ...]  # plain sentences, the decisive one first
    flags: tuple[Flag, ...]
    extension_due: bool  # measure up to Rule.extended processes and decide again
    rule: Rule
    processes: int
    theta: float
    student: Interval
    exact: Interval
    opinions: tuple[Verdict, Verdict]  # Student's t, exact signed-rank


_OPINION = {BELOW: Verdict.PASS, OPEN: Verdict.INCONCLUSIVE, ABOVE: Verdict.FAIL}


def decide(summary: CellSummary, rule: Rule) -> Decision:
    """Apply the rule to one cell.

    Broken promises about results come first (FAIL whatever the times say), then the machine (INVALID-ENV), then the
    number of processes, then the two intervals. Checks that nobody made withhold a PASS: a tracer that recorded
    nothing is cheap.
    """
    thetas = np.array(summary.overhead.thetas if summary.overhead else (), dtype=np.float64)
    decision = judge(thetas, rule)
    reasons = decision.reasons
    verdict = decision.verdict
    unchecked = tuple(_unchecked(summary.checks))
    if broken := tuple(broken_promises(summary.checks)):
        verdict, reasons = Verdict.FAIL, (*broken, *unfit_machine(summary, rule), *reasons)
    elif unfit := tuple(unfit_machine(summary, rule)):
        verdict, reasons = Verdict.INVALID_ENV, (*unfit, *reasons)
    elif unchecked and verdict is Verdict.PASS:
        verdict, reasons = Verdict.INCONCLUSIVE, (*unchecked, *reasons)
    return Decision(
        verdict=verdict,
        reasons=reasons,
        flags=decision.flags,
        extension_due=decision.extension_due and verdict is Verdict.INCONCLUSIVE,
        rule=rule,
        processes=decision.processes,
        theta=decision.theta,
        student=decision.student,
        exact=decision.exact,
        opinions=decision.opinions,
    )


def judge(thetas: Floats, rule: Rule) -> Decision:
    """The decision from process estimates alone, as if everything else were in order."""
    n = thetas.size
    if n == 0:
        nothing = Interval(-math.inf, math.inf, rule.alpha)
        undecided = (Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE)
        return Decision(
            Verdict.INCONCLUSIVE, ("no usable block",), (), False, rule, 0, math.nan, nothing, nothing, undecided
        )
    seen = look(thetas, math.log1p(rule.budget), rule.alpha)
    student, exact = t_interval(thetas, rule.alpha), signed_rank_interval(thetas, rule.alpha)
    opinions = (_OPINION[int(seen.student)], _OPINION[int(seen.exact)])
    verdict, reason = _verdict(n, seen, opinions, rule)
    flags = []
    if student.high < math.log1p(rule.layout_shift):
        flags.append(Flag.LAYOUT_SHIFT)
    if seen.bimodal:
        flags.append(Flag.BIMODAL)
    return Decision(
        verdict=verdict,
        reasons=(reason, *_explain(flags, thetas)),
        flags=tuple(flags),
        extension_due=verdict is Verdict.INCONCLUSIVE and n < rule.extended,
        rule=rule,
        processes=n,
        theta=float(thetas.mean()),
        student=student,
        exact=exact,
        opinions=opinions,
    )


def _verdict(n: int, seen: Look, opinions: tuple[Verdict, Verdict], rule: Rule) -> tuple[Verdict, str]:
    budget = f"the budget of {100 * rule.budget:g} %"
    if n < rule.minimum:
        return Verdict.INCONCLUSIVE, f"{n} process{'es' * (n != 1)}, at least {rule.minimum} are needed"
    if rule.processes < n < rule.extended:
        # Deciding here would be a third look: the first was due at `processes`, the second is at `extended`.
        return Verdict.INCONCLUSIVE, f"unfinished extension: {n} of {rule.extended} processes"
    few = f" ({n} of {rule.processes} declared processes)" if n < rule.processes else ""
    if seen.side == BELOW:
        return Verdict.PASS, f"the whole interval is below {budget}{few}"
    if seen.side == ABOVE:
        return Verdict.FAIL, f"the whole interval is above {budget}{few}"
    if seen.straddles:
        return Verdict.INCONCLUSIVE, f"processes fall into two groups, one below and one above {budget}{few}"
    if opinions[0] != opinions[1]:
        return (
            Verdict.INCONCLUSIVE,
            f"the two intervals disagree about {budget} (t: {opinions[0]}, signed-rank: {opinions[1]}){few}",
        )
    return Verdict.INCONCLUSIVE, f"the interval contains {budget}{few}"


def _explain(flags: list[Flag], thetas: Floats) -> Iterable[str]:
    if Flag.LAYOUT_SHIFT in flags:
        yield "the traced kernel is faster than the original: its code moved; look at the pad control"
    if Flag.BIMODAL in flags:
        modes = find_modes(thetas)
        low, high = percent(float(modes.low)), percent(float(modes.high))
        yield f"two groups of processes, around {low:+.2f} % and {high:+.2f} %"


def _unchecked(checks: Mapping[str, Any]) -> Iterable[str]:
    if checks.get("bit_identical") is None:
        yield "outputs were not compared with the original kernel's"
    if checks.get("records_emitted") is None:
        yield "records were not counted"


_MACHINE = {
    "other_processes": "other processes used the GPU",
    "ecc_errors": "memory errors (ECC) were counted",
    "xid": "the driver reported a fault (XID)",
}
_ONE_MACHINE = {"uuid": "GPUs", "driver": "drivers", "clocks": "clock policies"}


def unfit_machine(summary: CellSummary, rule: Rule) -> Iterable[str]:
    """Why the times of a cell cannot be trusted."""
    control = summary.control
    if control is None:
        yield "no A/A' control"
    elif not equivalence(control.thetas, math.log1p(rule.control_margin), rule.control_alpha).holds:
        yield (
            f"A/A' control: two loads of the original are not shown to be within +-{100 * rule.control_margin:g} % "
            f"({control.percent:+.2f} %, {control.low_percent:+.2f} to {control.high_percent:+.2f} %)"
        )
    elif summary.overhead is not None and control.processes < summary.overhead.processes:
        yield f"only {control.processes} of {summary.overhead.processes} processes ran the A/A' control"
    documents = summary.cell.documents
    for key, what in _MACHINE.items():
        count = sum(1 for d in documents if (d.get("machine") or {}).get(key))
        if count:
            yield f"{what} ({count} of {len(documents)} processes)"
    for key, what in _ONE_MACHINE.items():
        found = {str(v) for d in documents if (v := (d.get("provenance") or {}).get(key)) is not None}
        if len(found) > 1:
            yield f"processes of {len(found)} {what} in one cell"
    if summary.voided > rule.max_voided * summary.blocks:
        yield f"{summary.voided} of {summary.blocks} blocks voided by machine facts"
