import itertools
import random
from collections import Counter
from dataclasses import asdict

import pytest

from tests.runtime.stand_ins import KERNEL, images, toy_kernel, trace_map
from xtrace.errors import BadInput
from xtrace.runtime.device import LaunchConfig, Telemetry
from xtrace.runtime.launch import DirectArm, TracedArm
from xtrace.runtime.simulated import SimulatedDevice
from xtrace.runtime.timing import Flusher, PairedOptions, run_paired
from xtrace.stats import paired

CONFIG = LaunchConfig((4, 1, 1), (64, 1, 1))


def _run(device: SimulatedDevice, options: PairedOptions, seed: int = 1):
    params = [[("*i8", device.allocate(8)), ("i32", i)] for i in range(3)]
    original, traced = images()
    a, again = (DirectArm(device, original, KERNEL, CONFIG, params) for _ in range(2))
    b = TracedArm.load(device, traced, trace_map(traced), KERNEL, CONFIG, params)
    return run_paired(device, a, again, b, random.Random(seed), options)


def test_blocks_and_controls_are_interleaved_and_complete() -> None:
    result = _run(SimulatedDevice({KERNEL: toy_kernel(slow_down=1.02)}), PairedOptions(blocks=20, control_blocks=8))
    kinds = [b["kind"] for b in result.blocks]
    assert Counter(kinds) == {"AB": 20, "AA": 8}
    assert kinds != sorted(kinds)
    assert {b["order"] for b in result.blocks} == {"ABBA", "BAAB"}
    assert all(len(b["ns"]) == 4 for b in result.blocks)
    ratios = {k: [paired.log_ratio(b["ns"], b["order"]) for b in result.blocks if b["kind"] == k] for k in ("AB", "AA")}
    assert all(abs(r - 0.0198) < 1e-3 for r in ratios["AB"])
    assert all(r == 0 for r in ratios["AA"])
    assert result.launches_per_sample == 1
    assert result.warm_up_settled


def test_the_cache_is_flushed_before_every_launch() -> None:
    device = SimulatedDevice({KERNEL: toy_kernel()})
    result = _run(device, PairedOptions(blocks=2, control_blocks=0))
    assert result.flush_bytes >= 2 * device.info.l2_bytes


def test_what_l2_was_asked_to_keep_is_released_before_every_flush() -> None:
    """Else headers that a traced arm keeps in L2 would be missing from the original's cache."""
    device = SimulatedDevice()
    flusher = Flusher(device, 2.0)
    flusher.repeats = 3
    flusher.run()
    flusher.run()
    assert device.released == 2


def test_a_launch_that_is_not_timed_keeps_the_device_busy_before_every_block() -> None:
    """Else the first sample of a block contains the host's time to enqueue it: up to 20 % of a library call's."""
    busy = {"until": 0.0, "first": 0}

    def kernel(device: SimulatedDevice, image: bytes, config: LaunchConfig, packed: object) -> float:
        idle = device.reached_ns >= busy["until"]  # nothing has run since the host waited
        busy["until"], busy["first"] = device.now_ns, busy["first"] + idle
        return 150_000.0 if idle else 100_000.0

    device = SimulatedDevice({KERNEL: kernel})
    result = _run(device, PairedOptions(blocks=4, control_blocks=2))
    assert busy["first"] > 6
    assert {ns for block in result.blocks for ns in block["ns"]} == {100_000.0}
    assert {late for block in result.blocks for late in block["late"]} == {False}
    assert result.late == 0


def test_a_sample_that_came_late_is_said_to_be() -> None:
    """The host was so slow that the device had caught up: here it waits in the middle of a launch."""
    counted = {"launches": 0}

    def kernel(device: SimulatedDevice, image: bytes, config: LaunchConfig, packed: object) -> float:
        counted["launches"] += 1
        if counted["launches"] % 7 == 0:
            device.synchronize()
        return 100_000.0

    result = _run(SimulatedDevice({KERNEL: kernel}), PairedOptions(blocks=20, control_blocks=8))
    late = sum(sum(block["late"]) for block in result.blocks)
    assert late == result.late
    assert 0 < late < 4 * len(result.blocks)
    assert all(len(block["late"]) == 4 for block in result.blocks)


def test_the_flush_is_not_part_of_the_time() -> None:
    result = _run(SimulatedDevice({KERNEL: toy_kernel(duration=70_000)}), PairedOptions(blocks=2, control_blocks=0))
    assert result.blocks[0]["ns"] == [70_000.0] * 4


def test_short_kernels_are_timed_in_groups_over_rotating_buffers() -> None:
    device = SimulatedDevice({KERNEL: toy_kernel(duration=7_000)})
    result = _run(device, PairedOptions(blocks=2, control_blocks=1))
    assert result.launches_per_sample == 29  # the fewest that last 200 us
    assert result.blocks[0]["ns"] == [29 * 7_000.0] * 4
    assert len(device._memory) == 5  # three outputs, slots and headers: the flush memory is freed


def test_the_order_follows_the_seed() -> None:
    def orders(seed: int) -> list:
        result = _run(SimulatedDevice({KERNEL: toy_kernel()}), PairedOptions(blocks=6, control_blocks=2), seed)
        return [(b["kind"], b["order"]) for b in result.blocks]

    assert orders(3) == orders(3)
    assert orders(3) != orders(4)


def test_machine_facts_are_recorded_and_nothing_is_dropped() -> None:
    idle = Telemetry(345, 39, 80.0, "none")
    readings = [idle, Telemetry(1980, 40, 300.0, "none"), Telemetry(1500, 41, 690.0, "sw-power-cap")]
    device = SimulatedDevice({KERNEL: toy_kernel()}, readings=readings)
    result = _run(device, PairedOptions(blocks=3, control_blocks=0))
    assert len(result.blocks) == 3
    assert result.blocks[0]["sm_clock_mhz"] == [1980, 1500]
    assert result.blocks[0]["throttle"] == ["none", "sw-power-cap"]
    assert result.blocks[0]["temperature_c"] == 41
    assert result.blocks[0]["before"] == asdict(idle)
    assert all(x["after"] == y["before"] for x, y in itertools.pairwise(result.blocks))


def test_warm_up_gives_up_in_time_and_says_so() -> None:
    device = SimulatedDevice({})
    drift = iter(range(10**9))
    device.behaviours[KERNEL] = lambda d, i, c, p: 100_000.0 * (1 + 0.001 * next(drift))
    result = _run(device, PairedOptions(blocks=1, control_blocks=0, warm_up_s=0.05))
    assert not result.warm_up_settled


def test_impossible_options_are_refused() -> None:
    with pytest.raises(BadInput):
        PairedOptions(blocks=0)
