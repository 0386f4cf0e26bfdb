"""Rings that overflow on a GPU: 10,000 records a warp into rings for 100.

A ring's size is a power of two, so whoever wants the newest 100 records gets 128 packets; the numbers here are exact
for those, and the newest 100 records are among them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.runtime import overflow
from tests.splice.conftest import image
from xtrace.splice import SpliceResult


@pytest.fixture(scope="module")
def device() -> Any:
    from xtrace.runtime.device import open_device

    return open_device()


def launch(device: Any, code: bytes, rounds: int) -> bytes:
    """One launch of ``spin`` (any version of it) for ``rounds`` rounds; what it published."""
    module = device.load(code)
    out_bytes = 8 * overflow.CTAS
    flag, out = device.allocate(4 * overflow.CTAS), device.allocate(out_bytes)
    try:
        device.fill(flag, 4 * overflow.CTAS, 0)
        device.fill(out, out_bytes, 0xFF)
        kernel = module.kernel(overflow.KERNEL)
        kernel.launch(overflow.CONFIG, kernel.prepare([("ptr", flag), ("ptr", out), ("u32", rounds)]))
        device.synchronize(20.0)
        return bytes(device.download(out, out_bytes))
    finally:
        device.free(flag)
        device.free(out)
        module.unload()


def run(device: Any, result: SpliceResult, rounds: int, slots: int = overflow.CONFIG.warps) -> overflow.Launch:
    return overflow.traced_launch(device, result, lambda patched: launch(device, patched, rounds), slots)


@pytest.mark.gpu
@pytest.mark.parametrize("case", [*overflow.CASES, *overflow.DIVERGENT])
def test_the_newest_records_stay_and_the_dropped_are_counted(device: Any, case: str) -> None:
    probes, rounds, each = {**overflow.CASES, **overflow.DIVERGENT}[case]
    small = run(device, overflow.spliced(probes, overflow.RING), rounds)
    whole = run(device, overflow.spliced(probes, 32768), rounds)
    emitted = rounds * each
    assert emitted == (10_002 if case == "three" else 10_000)
    overflow.check(small, whole, emitted)
    original = launch(device, image(overflow.KERNEL).data, rounds)
    assert np.frombuffer(original, "<u4").tolist() == [7 * rounds] * (2 * overflow.CTAS)
    assert small.outputs == whole.outputs == original
    for slot in range(overflow.CONFIG.warps):  # what was asked for: the newest 100
        newest = small.events[small.events["slot"] == slot].tail(overflow.WANTED)
        assert newest["seq"].tolist() == list(range(emitted - overflow.WANTED, emitted))
        assert newest["site"].tolist() == whole.sites(slot)[-overflow.WANTED :]


@pytest.mark.gpu
@pytest.mark.parametrize("case", overflow.STRIPED)
def test_the_newest_records_stay_where_slots_interleave(device: Any, case: str) -> None:
    """Also the times: all clocks of a packet with short ones are those of a round, between the neighbours' clocks."""
    probes, rounds, each = overflow.STRIPED[case]
    small = run(device, overflow.spliced(probes, overflow.RING, striped=True), rounds)
    whole = run(device, overflow.spliced(probes, 32768, striped=True), rounds)
    overflow.check(small, whole, rounds * each)
    assert small.outputs == whole.outputs == launch(device, image(overflow.KERNEL).data, rounds)
    assert small.summary["ambiguous"] == whole.summary["ambiguous"] == 0


@pytest.mark.gpu
def test_warps_without_a_slot_do_not_reach_those_that_have_one(device: Any) -> None:
    probes, rounds, each = overflow.CASES["three"]
    small = run(device, overflow.spliced(probes, overflow.RING), rounds, slots=5)
    whole = run(device, overflow.spliced(probes, 32768), rounds)
    overflow.check(small, whole, rounds * each, slots=5)
    assert small.summary["spill_over"]
