"""The timing protocol PAIRED: interleaved blocks of original and traced launches, with an A/A' control.

One process is one replicate. Blocks run A B B A or B A A B (drawn at random), mixed with control blocks in which B is
A', the original bytes loaded a second time, and, where asked for, with blocks in which B is a pad image (kind ``AP``:
the traced image with NOPs for probes) or the image that an older Xtrace made (kind ``AO``). Before every timed launch
the L2 cache is overwritten. Nothing is thrown away and nothing is estimated here: the result is the list of raw samples
(:mod:`xtrace.stats` does the rest).
Method and its simulation: facts on overhead statistics of this project, summarised in the workflow's report.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from xtrace.errors import BadInput
from xtrace.runtime.device import Device, Telemetry

__all__ = [
    "EXTRA_KINDS",
    "Arm",
    "Flusher",
    "PairedOptions",
    "PairedResult",
    "Sampler",
    "group_size",
    "hide_host_time",
    "run_arms",
    "run_paired",
    "warm_up",
]

ORDERS = ("ABBA", "BAAB")
# Times the host's median time that a flush lasts. With 1.5 the first sample of every block was late, and blocks of a
# library call that takes the host 110 us spread by +-10 % (results/recorded, FlashAttention-3 at adb525f).
_OUTLAST = 3.0
EXTRA_KINDS = ("AP", "AO")


class Arm(Protocol):
    """One way to run the workload: ``launch(i)`` enqueues one launch on buffer set ``i`` modulo their number."""

    def launch(self, index: int) -> None: ...


@dataclass(frozen=True)
class PairedOptions:
    """Knobs of a replicate. Times are nanoseconds unless the name says otherwise."""

    blocks: int = 20
    control_blocks: int = 8
    flush_factor: float = 2.0  # times the L2 size that is written before a launch
    short_ns: float = 50_000.0  # kernels faster than this are timed in groups
    group_ns: float = 200_000.0  # a group lasts at least this long
    max_group: int = 1000
    drift: float = 0.005  # warm-up ends when two medians over 20 blocks differ by less
    warm_up_s: float = 10.0  # ... or after this many seconds
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        if self.blocks < 1 or self.control_blocks < 0 or not 1 <= self.max_group <= 100_000:
            raise BadInput("XT5043", f"{self.blocks} blocks, {self.control_blocks} control blocks")


@dataclass
class PairedResult:
    """Raw samples of one cell in one process. ``ns`` of a sample covers ``launches_per_sample`` launches."""

    launches_per_sample: int
    flush_bytes: int
    blocks: list[dict[str, Any]] = field(default_factory=list)
    warm_up_launches: int = 0
    warm_up_settled: bool = False
    host_ns: float = 0.0  # the host's time to enqueue one sample

    @property
    def late(self) -> int:
        """Samples whose launch reached the device after the flush had ended."""
        return sum(sum(block["late"]) for block in self.blocks)


class Flusher:
    """Memory that is overwritten before each timed launch; long enough to hide the host's time to enqueue it."""

    def __init__(self, device: Device, factor: float) -> None:
        self._device = device
        self.size = max(int(factor * device.info.l2_bytes), 1 << 16) // 4 * 4
        self._address = device.allocate(self.size)
        self.repeats = 1
        self._byte = 0

    def run(self) -> None:
        self._device.release_l2()  # else what a traced arm's headers keep would be missing from the original's cache
        for _ in range(self.repeats):
            self._byte = (self._byte + 1) & 0xFF
            self._device.fill(self._address, self.size, self._byte)

    def free(self) -> None:
        self._device.free(self._address)


class Sampler:
    """Enqueues timed samples; reads them after the block."""

    def __init__(self, device: Device, flusher: Flusher, group: int) -> None:
        self._device = device
        self._flusher = flusher
        self.group = group
        self._events = [(device.event(), device.event()) for _ in range(4)]
        self._next = 0

    def prime(self, arm: Arm) -> None:
        """A launch that is not timed: it keeps the device busy while the host enqueues the first sample."""
        self._flusher.run()
        arm.launch(self._next)

    def enqueue(self, slot: int, arm: Arm) -> bool:
        """One sample; whether its launch came late, when the flush was over and the device waited for the host."""
        start, end = self._events[slot]
        self._flusher.run()
        start.record()
        arm.launch(self._next)
        late = start.done()  # then the sample contains host time
        for i in range(1, self.group):
            arm.launch(self._next + i)
        end.record()
        return late

    def collect(self, timeout_s: float) -> list[float]:
        self._device.synchronize(timeout_s)
        self._next += self.group  # only between blocks: all samples of a block see the same buffer sets
        return [self._device.elapsed_ns(start, end) for start, end in self._events]


def _block(
    device: Device, sampler: Sampler, arms: Mapping[str, Arm], order: str, timeout_s: float
) -> tuple[list[float], list[bool], list[Telemetry]]:
    """One block of four samples, enqueued without waiting, so that the device stays busy inside it.

    Before the first one the device has stood idle: without a launch ahead of it that sample was up to 20 % longer than
    the others (FlashAttention-3 called from Python) and at least 0.2 % on every kernel, its clock having dropped.
    """
    readings, late = [], []
    sampler.prime(arms[order[0]])
    for slot, letter in enumerate(order):
        late.append(sampler.enqueue(slot, arms[letter]))
        if slot in (1, 3):  # while the device works (an idle clock says nothing) and symmetric in both orders
            readings.append(device.telemetry())
    return sampler.collect(timeout_s), late, readings


def warm_up(device: Device, sampler: Any, arms: Sequence[Arm], options: PairedOptions) -> tuple[int, bool]:
    """Run until two successive medians over 20 blocks agree, or time is up; returns launches and whether it settled."""
    deadline = time.monotonic() + options.warm_up_s
    previous, launches = None, 0
    while True:
        times: list[float] = []
        for block in range(20):
            arm = arms[block % len(arms)]
            for slot in range(4):
                sampler.enqueue(slot, arm)
            times += sampler.collect(options.timeout_s)
            launches += 4 * sampler.group
            if time.monotonic() > deadline:
                return launches, False
        median = statistics.median(times)
        if previous is not None and abs(median - previous) <= options.drift * previous:
            return launches, True
        previous = median


def group_size(device: Device, arm: Arm, options: PairedOptions) -> int:
    """Launches per sample: 1, or for a short kernel enough for ``group_ns``."""
    start, end = device.event(), device.event()
    times = []
    for i in range(10):
        start.record()
        arm.launch(i)
        end.record()
        device.synchronize(options.timeout_s)
        times.append(device.elapsed_ns(start, end))
    shortest = max(min(times), 1.0)
    if shortest >= options.short_ns:
        return 1
    return max(1, min(options.max_group, -(-int(options.group_ns) // int(shortest))))


def hide_host_time(device: Device, flusher: Flusher, sampler: Sampler, arm: Arm, timeout_s: float) -> float:
    """Repeat the flush until it outlasts the host's work for a launch (at most 16 times); returns host ns a sample."""
    start, end = device.event(), device.event()
    start.record()
    flusher.run()
    end.record()
    device.synchronize(timeout_s)
    flush_ns = max(device.elapsed_ns(start, end), 1.0)
    host = []
    for _ in range(5):
        begin = time.perf_counter_ns()
        sampler.enqueue(0, arm)
        host.append(time.perf_counter_ns() - begin)
        device.synchronize(timeout_s)
    # Only the first launch of a group must find the device busy: the later ones queue up behind it.
    needed = _OUTLAST * statistics.median(host) / flush_ns / sampler.group
    flusher.repeats = max(1, min(16, int(needed) + 1))
    return statistics.median(host)


def run_paired(
    device: Device,
    original: Arm,
    again: Arm,
    traced: Arm,
    rng: random.Random,
    options: PairedOptions,
    extra: Mapping[str, Arm] | None = None,
) -> PairedResult:
    """Time one cell: ``original`` (A), the same bytes loaded ``again`` (A'), and ``traced`` (B), on the same buffers.

    ``extra`` gives further arms by the kind of their blocks (``AP``, ``AO``); each gets as many blocks as B. Blocks of
    all kinds are mixed in an order drawn from ``rng``. Raises the device's errors; a launch that never ends is XT5007.
    """
    second = {"AB": traced, "AA": again, **(extra or {})}
    if unknown := set(second) - {"AB", "AA", *EXTRA_KINDS}:
        raise BadInput("XT5043", f"no such kind of block: {', '.join(sorted(unknown))}")
    return run_arms(device, original, second, rng, options)


def run_arms(
    device: Device, original: Arm, second: Mapping[str, Arm], rng: random.Random, options: PairedOptions
) -> PairedResult:
    """Time any number of arms against ``original``, each in ``options.blocks`` blocks of its own (``AA``: control
    blocks), all mixed in an order drawn from ``rng``. The kind of a block is the key of its arm.
    """
    arms = (original, *second.values())
    for arm in arms:  # loads the code, grows what the driver grows at first use
        arm.launch(0)
    device.synchronize(options.timeout_s)
    flusher = Flusher(device, options.flush_factor)
    try:
        sampler = Sampler(device, flusher, group_size(device, original, options))
        host_ns = hide_host_time(device, flusher, sampler, original, options.timeout_s)
        launches, settled = warm_up(device, sampler, arms, options)
        result = PairedResult(sampler.group, flusher.size * flusher.repeats, [], launches, settled, host_ns=host_ns)
        kinds = [k for k in second for _ in range(options.control_blocks if k == "AA" else options.blocks)]
        rng.shuffle(kinds)
        before = device.telemetry()
        for kind in kinds:
            order = rng.choice(ORDERS)
            ns, late, readings = _block(device, sampler, {"A": original, "B": second[kind]}, order, options.timeout_s)
            after = device.telemetry()
            result.blocks.append(_describe(kind, order, ns, late, readings, before, after))
            before = after  # nothing runs between two blocks
        return result
    finally:
        flusher.free()


def _describe(
    kind: str,
    order: str,
    ns: list[float],
    late: list[bool],
    readings: list[Telemetry],
    before: Telemetry,
    after: Telemetry,
) -> dict[str, Any]:
    return {
        "kind": kind,
        "order": order,
        "ns": [round(t, 1) for t in ns],
        "late": late,
        "sm_clock_mhz": [r.sm_clock_mhz for r in readings],
        "temperature_c": readings[-1].temperature_c,
        "power_w": readings[-1].power_w,
        "throttle": [r.throttle for r in readings],
        "before": asdict(before),
        "after": asdict(after),
    }
