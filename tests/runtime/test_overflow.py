"""Rings that overflow, without a GPU: the emitted probe code itself, run by the verifier's interpreter."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.runtime import overflow
from xtrace.runtime.device import Device
from xtrace.runtime.simulated import SimulatedDevice
from xtrace.splice import SpliceResult


def run(result: SpliceResult, rounds: int, slots: int = overflow.CONFIG.warps) -> overflow.Launch:
    device: Device = SimulatedDevice()

    def launch(patched: bytes) -> bytes:
        overflow.interpret(device, result, patched, rounds)
        return b""

    return overflow.traced_launch(device, result, launch, slots)


# The same code turns the same cursor in the 11th lap as in the 78th: a tenth of the GPU test's rounds will do.
@pytest.mark.parametrize("case", overflow.CASES)
def test_the_newest_records_stay_and_the_dropped_are_counted(case: str) -> None:
    probes, rounds, each = overflow.CASES[case]
    rounds //= 10
    small = run(overflow.spliced(probes, overflow.RING), rounds)
    whole = run(overflow.spliced(probes, 2048), rounds)
    overflow.check(small, whole, rounds * each)


@pytest.mark.parametrize("case", overflow.STRIPED)
def test_the_newest_records_stay_where_slots_interleave(case: str) -> None:
    probes, rounds, each = overflow.STRIPED[case]
    rounds //= 10
    small = run(overflow.spliced(probes, overflow.RING, striped=True), rounds)
    whole = run(overflow.spliced(probes, 2048, striped=True), rounds)
    overflow.check(small, whole, rounds * each)
    assert small.entry["slot"]["stripe"] == 16
    assert any("short_clocks" in packet for packet in small.entry["packets"]) == (case == "five")
    assert small.summary["ambiguous"] == 0


@pytest.mark.parametrize("striped", [False, True])
def test_warps_without_a_slot_do_not_reach_those_that_have_one(striped: bool) -> None:
    probes, rounds, each = overflow.CASES["three"]
    rounds //= 10
    small = run(overflow.spliced(probes, overflow.RING, striped=striped), rounds, slots=5)
    whole = run(overflow.spliced(probes, 2048, striped=striped), rounds)
    overflow.check(small, whole, rounds * each, slots=5)
    assert small.summary["warps_without_slot"] == overflow.CONFIG.warps - 5
    assert small.summary["spill_over"]


def test_a_check_that_cannot_fail_is_no_check() -> None:
    """The same comparison notices a record of another lap, and a store beside the ring."""
    probes, rounds, each = overflow.CASES["two"]
    rounds //= 10
    result = overflow.spliced(probes, overflow.RING)
    good, whole = run(result, rounds), run(overflow.spliced(probes, 2048), rounds)
    swapped = good.events.copy()
    swapped.loc[3, "site"] = 3 - swapped.loc[3, "site"]
    early = good.events.copy()
    early.loc[0, "clock"] = 1001
    for events in (swapped, early):
        broken = replace(good, events=events)
        with pytest.raises(AssertionError):
            overflow.check(broken, whole, rounds * each)
    device: Device = SimulatedDevice()
    stray = overflow.traced_launch(
        device,
        result,
        lambda patched: (overflow.interpret(device, result, patched, rounds), beside_a_ring(device, patched))[1],
    )
    assert stray.stray == 1


def beside_a_ring(device: Device, patched: bytes) -> bytes:
    """Writes one byte behind the ring and the slack of the third slot of the only large allocation."""
    assert isinstance(device, SimulatedDevice)
    result = overflow.spliced(overflow.CASES["two"][0], overflow.RING)
    low, high = (
        int.from_bytes(patched[p["offset"] : p["offset"] + 4], "little")
        for value in ("buffer_lo", "buffer_hi")
        for p in overflow.kernel_entry(result.map, overflow.KERNEL)["patches"]
        if p["value"] == value
    )
    slot = overflow.kernel_entry(result.map, overflow.KERNEL)["slot"]
    device.poke((high << 32 | low) + 3 * slot["stride"] - 1, b"\1")
    return b""
