"""What a machine's calibration measures in one process: event times, flush sizes, original against original.

Raw readings only; :mod:`xtrace.runtime.calibrate` draws the conclusions.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

from xtrace.runtime.device import Device
from xtrace.runtime.timing import Arm, Flusher, PairedOptions, Sampler, group_size, run_paired

__all__ = ["FLUSH_FACTORS", "control_samples", "event_gaps", "flush_curve"]

FLUSH_FACTORS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)


def event_gaps(device: Device, count: int = 200, timeout_s: float = 60.0) -> list[float]:
    """Times between two events with nothing between them, ns."""
    pairs = [(device.event(), device.event()) for _ in range(count)]
    for start, end in pairs:
        start.record()
        end.record()
    device.synchronize(timeout_s)
    return [device.elapsed_ns(start, end) for start, end in pairs]


def flush_curve(
    device: Device,
    arm: Arm,
    rng: random.Random,
    *,
    factors: Sequence[float] = FLUSH_FACTORS,
    rounds: int = 12,
    timeout_s: float = 60.0,
) -> dict[float, list[float]]:
    """Launch times, ns, after overwriting ``factor`` L2 sizes; factors in a fresh random order every round.

    Every launch is on buffer set 0, the same that ran before: without a flush it is as warm as it can be.
    """
    times: dict[float, list[float]] = {f: [] for f in factors}
    flushers = {f: Flusher(device, f) for f in factors if f}
    start, end = device.event(), device.event()
    try:
        for _ in range(rounds):
            for factor in rng.sample(list(factors), len(factors)):
                arm.launch(0)
                if factor:
                    flushers[factor].run()
                start.record()
                arm.launch(0)
                end.record()
                device.synchronize(timeout_s)
                times[factor].append(device.elapsed_ns(start, end))
    finally:
        for flusher in flushers.values():
            flusher.free()
    return times


def control_samples(
    device: Device, original: Arm, again: Arm, rng: random.Random, options: PairedOptions
) -> dict[str, Any]:
    """A/A' blocks of one process, by the measuring protocol itself, with what a block costs in seconds."""
    started = time.monotonic()
    result = run_paired(device, original, again, again, rng, options)
    blocks = [{**block, "kind": "AA"} for block in result.blocks]
    return {
        "blocks": blocks,
        "launches_per_sample": result.launches_per_sample,
        "flush_bytes": result.flush_bytes,
        "late": result.late,
        "warm_up_settled": result.warm_up_settled,
        "seconds": round(time.monotonic() - started, 3),
        "block_seconds": round(_block_seconds(device, original, options), 4),
        "clocks": _clocks(blocks),
    }


def _block_seconds(device: Device, arm: Arm, options: PairedOptions) -> float:
    """Wall time of one block, flushes included."""
    flusher = Flusher(device, options.flush_factor)
    try:
        sampler = Sampler(device, flusher, group_size(device, arm, options))
        spent = []
        for _ in range(3):
            begin = time.monotonic()
            for slot in range(4):
                sampler.enqueue(slot, arm)
            sampler.collect(options.timeout_s)
            spent.append(time.monotonic() - begin)
        return statistics.median(spent)
    finally:
        flusher.free()


def _clocks(blocks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Range of the SM clock under load, and the throttle reasons seen."""
    readings = [c for b in blocks for c in b["sm_clock_mhz"] if c is not None]
    return {
        "lowest_mhz": min(readings, default=None),
        "highest_mhz": max(readings, default=None),
        "throttle": sorted({reason for b in blocks for reason in b["throttle"]}),
    }
