"""One time axis for all warps: 32-bit clocks unwrapped, SM clocks mapped to the global timer.

**Unwrapping.** A record holds the low half of the SM's cycle counter (it wraps after about 2.2 s).
The 64-bit clock at the warp's entry (or at its exit, when the ring has overwritten the beginning)
fixes the upper half; each further record is at most 2**32 cycles after the one before. If the
records then end after the warp's exit, some clock ran backwards: steps of more than half the range
are read as negative and counted as violations.

**Mapping.** Each SM counts cycles from its own zero, so raw clocks of two SMs say nothing about
order. Every warp leaves two anchors, (clock, globaltimer) at entry and exit. All anchors of an SM lie
on one line while the SM clock does not change, so the line is fitted by least squares over the SM;
where the anchors stray from it by more than three timer steps, the clock did change and each warp of
that SM gets the line through its own two anchors instead. The global timer itself only moves in
steps (32 ns on H100, H200 and B300; here: the greatest common divisor of all readings), so no time
is known better than one step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from xtrace.trace.buffer import Records
from xtrace.trace.headers import MASK32, Headers

__all__ = ["TimeAxis", "Unwrapped", "fit", "unwrap"]

Array = npt.NDArray[Any]
WRAP = 1 << 32
DEFAULT_STEP_NS = 32.0
TOLERANCE_STEPS = 3.0
NOMINAL_NS_PER_CYCLE = 0.5  # only when no two anchors differ, and then a warning says so


@dataclass(frozen=True)
class Unwrapped:
    """64-bit clocks of all records.

    ``violations``: per warp, how many records are earlier than the record (or entry) before, or than
    allowed by the exit. ``ambiguous``: warps with a silence of more than 2**32 cycles somewhere.
    """

    clock: Array
    violations: Array
    ambiguous: int


def unwrap(records: Records, headers: Headers) -> Unwrapped:
    """Unwrap ``records.clock_lo``; see the module's text."""
    warps = len(headers.slot)
    n = len(records.warp)
    if not n:
        return Unwrapped(np.zeros(0, dtype=np.uint64), np.zeros(warps, dtype=np.int64), 0)
    count = np.bincount(records.warp, minlength=warps)
    first = np.cumsum(count) - count
    has = np.flatnonzero(count)
    first, last = first[has], (first + count - 1)[has]
    previous = np.empty(n, dtype=np.int64)
    previous[1:] = records.clock_lo[:-1]
    previous[first] = (headers.clock_entry[has] & MASK32).astype(np.int64)
    step = (records.clock_lo - previous) % WRAP
    span = np.minimum(headers.clock_exit - headers.clock_entry, np.uint64(1 << 62)).astype(np.int64)[has]

    since = _running(step, first, count[has])
    suspect = since[last] > span
    if suspect.any():
        signed = np.repeat(suspect, count[has]) & (step >= WRAP // 2)
        step = np.where(signed, step - WRAP, step)
        since = _running(step, first, count[has])
    rest = span - since[last]
    lost_start = records.seq[first] > 0
    turns = np.where(lost_start & (rest >= WRAP), rest // WRAP, 0)
    since += np.repeat(turns * WRAP, count[has])
    rest -= turns * WRAP

    violations = np.zeros(warps, dtype=np.int64)
    violations[has] = np.add.reduceat(step < 0, first, dtype=np.int64) + (rest < 0)
    clock = headers.clock_entry[records.warp] + since.astype(np.uint64)  # modulo 2**64, like the counter
    return Unwrapped(clock, violations, int(np.count_nonzero(rest >= WRAP)))


def _running(step: Array, first: Array, count: Array) -> Array:
    total = np.cumsum(step)
    result: Array = total - np.repeat(total[first] - step[first], count)
    return result


@dataclass(frozen=True)
class TimeAxis:
    """Affine map per warp: ``t_ns = offset + slope * (clock - reference)``, in ns after ``origin_ns``."""

    origin_ns: int
    reference: Array
    offset: Array
    slope: Array
    step_ns: float
    error_bound_ns: float
    sms: int
    sms_per_warp: int
    rate_known: bool

    def at(self, clock: Array, warp: Array) -> Array:
        """Time of ``clock`` values of the warps ``warp``, ns after the origin."""
        ticks = (clock - self.reference[warp]).view(np.int64).astype(np.float64)
        result: Array = self.offset[warp] + self.slope[warp] * ticks
        return result


def fit(headers: Headers) -> TimeAxis:
    """The time axis of all warps from their anchors."""
    warps = len(headers.slot)
    origin = headers.t_entry.min() if warps else np.uint64(0)
    sms, sm = np.unique(headers.sm, return_inverse=True)
    _, any_warp = np.unique(sm, return_index=True)
    reference = headers.clock_entry[any_warp][sm]

    def pair(clock: Array, time: Array) -> tuple[Array, Array, Array]:
        x = (clock - reference).view(np.int64).astype(np.float64)
        y = (time - origin).view(np.int64).astype(np.float64)
        return x, y, sm

    entry = pair(headers.clock_entry, headers.t_entry)
    leave = pair(headers.clock_exit, headers.t_exit)
    x, y, group = (np.concatenate(both) for both in zip(entry, leave, strict=True))
    step = _timer_step(y)

    k = len(sms)
    n = np.maximum(np.bincount(group, minlength=k), 1)
    mean_x, mean_y = np.bincount(group, x, k) / n, np.bincount(group, y, k) / n
    dx, dy = x - mean_x[group], y - mean_y[group]
    var, cov = np.bincount(group, dx * dx, k), np.bincount(group, dx * dy, k)
    pooled, known = NOMINAL_NS_PER_CYCLE, False
    if var.sum() > 0 and _plausible(cov.sum() / var.sum()):
        pooled, known = float(cov.sum() / var.sum()), True
    low, high = np.full(k, np.inf), np.full(k, -np.inf)
    np.minimum.at(low, group, y)
    np.maximum.at(high, group, y)
    # A line through anchors less than a thousand timer steps apart has a slope no better than 0.1 %:
    # all SMs of a device run from one clock, so the pooled rate is the better guess there.
    rate = cov / np.where(var > 0, var, 1.0)
    slope = np.where(_plausible(rate) & (high - low >= 1000 * step), rate, pooled)
    offset = mean_y - slope * mean_x
    stray = np.zeros(k)
    np.maximum.at(stray, group, np.abs(y - offset[group] - slope[group] * x))

    per_warp = (stray > TOLERANCE_STEPS * step)[sm]
    ticks = (headers.clock_exit - headers.clock_entry).astype(np.float64)
    ns = (headers.t_exit - headers.t_entry).astype(np.float64)
    rate_w = ns / np.where(ticks > 0, ticks, 1.0)
    slope_w = np.where(per_warp & _plausible(rate_w), rate_w, slope[sm])
    x0, y0, _ = entry
    offset_w = np.where(per_warp, y0 - slope_w * x0, offset[sm])
    return TimeAxis(
        origin_ns=int(origin),
        reference=reference,
        offset=offset_w,
        slope=slope_w,
        step_ns=step,
        error_bound_ns=float(step + (stray.max() if k else 0.0)),
        sms=k,
        sms_per_warp=int(np.count_nonzero(stray > TOLERANCE_STEPS * step)),
        rate_known=known,
    )


def _plausible(ns_per_cycle: Array) -> Array:
    """Rates of a real clock: 1 MHz to 100 GHz."""
    result: Array = (ns_per_cycle >= 0.01) & (ns_per_cycle <= 1000.0)
    return result


def _timer_step(y: Array) -> float:
    """Greatest common divisor of the readings: the timer's step, if there are enough of them to tell."""
    values = np.unique(y)
    if len(values) < 8:
        return DEFAULT_STEP_NS
    gaps = np.minimum(np.diff(values), 2.0**62).astype(np.int64)
    return float(max(1, int(np.gcd.reduce(gaps))))
