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
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from xtrace.stats.intervals import (
    Interval,
    signed_rank_bounds,
    signed_rank_interval,
    t_bounds,
    t_interval,
)
from xtrace.stats.machine import unfit_machine
from xtrace.stats.modes import find_modes
from xtrace.stats.paired import percent
from xtrace.stats.rule import REGRESSION, Flag, Rule, Verdict, worst
from xtrace.stats.samples import CellSummary, broken_promises

__all__ = [
    "Decision",
    "Flag",
    "Look",
    "Rule",
    "REGRESSION",
    "Verdict",
    "decide",
    "decide_change",
    "judge",
    "look",
    "unfit_machine",
    "worst",
]

Floats = npt.NDArray[np.float64]
Signs = npt.NDArray[np.int8]
BELOW, OPEN, ABOVE = -1, 0, 1


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

    def instead(self, verdict: Verdict, reasons: Iterable[str]) -> Decision:
        """Another verdict for reasons that come before those of the times; more processes would not change it."""
        first, *rest = self.reasons
        reasons = (*reasons, f"by the times alone {self.verdict}: {first}", *rest)
        return replace(self, verdict=verdict, reasons=reasons, extension_due=False)


_OPINION = {BELOW: Verdict.PASS, OPEN: Verdict.INCONCLUSIVE, ABOVE: Verdict.FAIL}


def decide(summary: CellSummary, rule: Rule) -> Decision:
    """Apply the rule to one cell.

    Broken promises about results come first (FAIL whatever the times say), then the machine (INVALID-ENV), then the
    number of processes, then the two intervals. Checks that nobody made withhold a PASS: a tracer that recorded
    nothing is cheap.
    """
    thetas = np.array(summary.overhead.thetas if summary.overhead else (), dtype=np.float64)
    decision = judge(thetas, math.log1p(rule.budget), rule)
    if decision.student.high < math.log1p(rule.layout_shift):
        decision = replace(
            decision,
            flags=(Flag.LAYOUT_SHIFT, *decision.flags),
            reasons=(
                *decision.reasons,
                "faster than the original: moving the code had an effect of its own, see the pad control",
            ),
        )
    unchecked = tuple(_unchecked(summary.checks))
    if broken := tuple(broken_promises(summary.checks)):
        return decision.instead(Verdict.FAIL, (*broken, *unfit_machine(summary, rule)))
    if unfit := tuple(unfit_machine(summary, rule)):
        return decision.instead(Verdict.INVALID_ENV, unfit)
    if unchecked and decision.verdict is Verdict.PASS:
        return decision.instead(Verdict.INCONCLUSIVE, unchecked)
    return decision


def decide_change(summary: CellSummary, rule: Rule, limit: float = REGRESSION) -> Decision | None:
    """The same for ``theta_new - theta_old < limit``; None if no process ran an older version beside the new one."""
    if summary.change is None:
        return None
    what = f"the allowed change of {100 * math.expm1(limit):.2g} percentage points"
    decision = judge(np.array(summary.change.thetas), limit, rule, what)
    if unfit := tuple(unfit_machine(summary, rule)):
        return decision.instead(Verdict.INVALID_ENV, unfit)
    return decision


def judge(thetas: Floats, limit: float, rule: Rule, what: str = "") -> Decision:
    """The decision from process estimates (log ratios) alone, as if everything else were in order.

    ``what`` names the limit in the reasons; the rule's budget unless given.
    """
    what = what or f"the budget of {100 * rule.budget:g} %"
    n = thetas.size
    if n == 0:
        nothing = Interval(-math.inf, math.inf, rule.alpha)
        undecided = (Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE)
        return Decision(
            Verdict.INCONCLUSIVE, ("no usable block",), (), False, rule, 0, math.nan, nothing, nothing, undecided
        )
    alpha = rule.level(n)
    seen = look(thetas, limit, alpha)
    student, exact = t_interval(thetas, alpha), signed_rank_interval(thetas, alpha)
    opinions = (_OPINION[int(seen.student)], _OPINION[int(seen.exact)])
    verdict, reason = _verdict(n, seen, opinions, rule, what)
    reasons, flags = [reason], []
    if seen.bimodal:
        modes = find_modes(thetas)
        low, high = percent(float(modes.low)), percent(float(modes.high))
        reasons.append(f"two groups of processes, around {low:+.2f} % and {high:+.2f} %")
        flags.append(Flag.BIMODAL)
    return Decision(
        verdict=verdict,
        reasons=tuple(reasons),
        flags=tuple(flags),
        extension_due=verdict is Verdict.INCONCLUSIVE and rule.minimum <= n < rule.extended,
        rule=rule,
        processes=n,
        theta=float(thetas.mean()),
        student=student,
        exact=exact,
        opinions=opinions,
    )


def _verdict(n: int, seen: Look, opinions: tuple[Verdict, Verdict], rule: Rule, budget: str) -> tuple[Verdict, str]:
    if n < rule.minimum:
        return Verdict.INCONCLUSIVE, f"{n} process{'es' * (n != 1)}, at least {rule.minimum} are needed"
    if rule.processes < n < rule.extended:
        # Deciding here would be a third look: the first was due at `processes`, the second is at `extended`.
        return (
            Verdict.INCONCLUSIVE,
            f"{n} processes are past the first look (at {rule.processes}), the second is due at {rule.extended}",
        )
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


def _unchecked(checks: Mapping[str, Any]) -> Iterable[str]:
    if checks.get("bit_identical") is None:
        yield "outputs were not compared with the original kernel's"
    if checks.get("records_emitted") is None:
        yield "records were not counted"
