"""Conclusions from synthetic noise: what was put in comes out, and the repeats follow."""

import math
import random

import pytest

from xtrace.errors import BadInput
from xtrace.runtime import calibration
from xtrace.runtime.calibrate import Limits, Noise, cold_factor, event_step, half_width, noise, repeats, sample_length
from xtrace.runtime.device import LaunchConfig
from xtrace.runtime.launch import DirectArm
from xtrace.runtime.simulated import SimulatedDevice, simulated_image
from xtrace.runtime.timing import PairedOptions


def synthetic(placement: float, block: float, processes: int, blocks: int, seed: int = 1) -> list[list[float]]:
    rng = random.Random(seed)
    out = []
    for _ in range(processes):
        luck = rng.gauss(0, placement)
        out.append([rng.gauss(luck, block) for _ in range(blocks)])
    return out


def test_both_variances_are_found_again() -> None:
    found = noise([synthetic(0.004, 0.006, 60, 20, seed) for seed in range(5)])
    assert found.block_sd == pytest.approx(0.006, rel=0.1)
    assert found.placement_sd == pytest.approx(0.004, rel=0.15)
    assert found.placement_sd < found.placement_upper < 1.2 * found.placement_sd
    assert (found.processes, found.blocks) == (300, 20)


def test_without_a_placement_effect_only_block_noise_is_left() -> None:
    found = noise([synthetic(0.0, 0.006, 200, 20)])
    assert found.placement_sd < 0.0007
    assert found.process_sd == pytest.approx(math.sqrt(math.pi / 3 / 20) * 0.006, rel=0.15)


def test_few_processes_are_trusted_less() -> None:
    def excess(processes: int) -> float:
        found = noise([synthetic(0.004, 0.001, processes, 20)])
        return found.placement_upper / found.placement_sd

    assert excess(4) > 1.5 > excess(40)


def test_workloads_keep_their_own_mean() -> None:
    shifted = [[[x + 0.05 for x in d] for d in synthetic(0.001, 0.001, 10, 20)], synthetic(0.001, 0.001, 10, 20, 2)]
    assert noise(shifted).placement_sd < 0.003


@pytest.mark.parametrize("groups", [[], [[[0.1, 0.2]]], [[[0.1], [0.2]]]])
def test_too_little_is_refused(groups: list) -> None:
    with pytest.raises(BadInput, match="two processes"):
        noise(groups)


def test_the_chosen_repeats_reach_the_target_and_no_cheaper_choice_does() -> None:
    found, target = Noise(0.006, 0.004, 0.002, 0.002, 0.0, 8, 20), 0.002
    limits = Limits(processes=(6, 30))
    chosen = repeats(found, target, startup_s=2.0, block_s=0.05, limits=limits)
    assert chosen.reached
    assert chosen.half_width <= target
    cost = chosen.processes * (2.0 + 0.05 * chosen.blocks)
    for processes in range(6, 31):
        for blocks in range(8, 101):
            if half_width(0.002, 0.006, processes, blocks) <= target:
                assert processes * (2.0 + 0.05 * blocks) >= cost - 1e-9


def test_the_predicted_interval_is_as_wide_as_said() -> None:
    rng = random.Random(3)
    widths = []
    for trial in range(300):
        thetas = [sum(d) / len(d) for d in synthetic(0.003, 0.004, 10, 20, rng.randrange(1 << 30) + trial)]
        mean = sum(thetas) / 10
        sd = math.sqrt(sum((t - mean) ** 2 for t in thetas) / 9)
        widths.append(2.262 * sd / math.sqrt(10))
    assert sum(widths) / len(widths) == pytest.approx(half_width(0.003, 0.004, 10, 20), rel=0.05)


def test_an_unreachable_target_says_so() -> None:
    noisy = Noise(0.05, 0.05, 0.05, 0.05, 0.0, 8, 20)
    chosen = repeats(noisy, 0.001, startup_s=1.0, block_s=0.1)
    assert not chosen.reached
    assert not chosen.control_reached
    assert (chosen.processes, chosen.blocks) == (40, 100)


def test_noisier_machines_get_more_control_blocks() -> None:
    quiet, loud = Noise(0.004, 0, 0.001, 0.001, 0, 8, 20), Noise(0.03, 0, 0.001, 0.001, 0, 8, 20)
    needed = [repeats(n, 0.01, startup_s=1, block_s=0.1).control_blocks for n in (quiet, loud)]
    assert needed[0] < needed[1]


def test_event_times() -> None:
    assert event_step([1024.0, 1056.0, 1120.0, 1024.0]) == 32.0
    assert event_step([500.0, 500.0]) == 0.0
    assert sample_length(32.0, 0.002) == pytest.approx(16_000)


def test_the_flush_is_large_enough_where_the_time_stops_rising() -> None:
    curve = {0.0: [50.0], 0.5: [70.0], 1.0: [99.0], 1.5: [100.0], 2.0: [100.2], 4.0: [100.1]}
    assert cold_factor(curve) == 1.5
    assert cold_factor({0.0: [10.0], 2.0: [10.0]}) == 0.0
    with pytest.raises(BadInput):
        cold_factor({})


def _device(behaviour) -> tuple[SimulatedDevice, DirectArm, DirectArm]:
    device = SimulatedDevice({"toy": behaviour})
    arms = [
        DirectArm(device, simulated_image("toy"), "toy", LaunchConfig((1, 1, 1), (32, 1, 1)), [[("i32", 1)]])
        for _ in range(2)
    ]
    return device, arms[0], arms[1]


def test_a_kernel_that_a_flush_slows_gives_a_curve() -> None:
    state = {"flushed": 0.0}

    class Flushed(SimulatedDevice):
        def fill(self, address: int, size: int, byte: int) -> None:
            state["flushed"] = size / self.info.l2_bytes
            super().fill(address, size, byte)

    def kernel(device, image, config, packed) -> float:
        share, state["flushed"] = min(state["flushed"] / 2, 1.0), 0.0
        return 100_000 * (1 + share)

    device = Flushed({"toy": kernel})
    arm = DirectArm(device, simulated_image("toy"), "toy", LaunchConfig((1, 1, 1), (32, 1, 1)), [[("i32", 1)]])
    curve = calibration.flush_curve(device, arm, random.Random(1), factors=(0.0, 1.0, 2.0, 4.0), rounds=3)
    expected = {0.0: 100_000, 1.0: 150_000, 2.0: 200_000, 4.0: 200_000}
    assert {f: pytest.approx([t] * 3) for f, t in expected.items()} == curve
    assert cold_factor(curve) == 2.0
    assert not device._memory


def test_control_samples_are_blocks_of_the_protocol() -> None:
    device, original, again = _device(lambda *_: 100_000.0)
    found = calibration.control_samples(
        device, original, again, random.Random(1), PairedOptions(blocks=6, control_blocks=0)
    )
    assert [b["kind"] for b in found["blocks"]] == ["AA"] * 6
    assert found["clocks"] == {"lowest_mhz": 1980, "highest_mhz": 1980, "throttle": ["none"]}
    assert len(calibration.event_gaps(device, 5)) == 5
