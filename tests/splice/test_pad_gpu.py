"""The further arms of a measurement on a GPU: pad images and slowed probes compute the same bits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.splice.conftest import image
from tests.splice.test_spliced_gpu import launches
from workflow.scripts import slow_probe
from xtrace.errors import Refused
from xtrace.splice import Options, SpliceResult, apply, plan
from xtrace.splice.controls import clocks_only, prologue_only
from xtrace.splice.pad import pad


def spliced(name: str, kernel: str) -> tuple[Any, SpliceResult]:
    loaded = image(name)
    try:
        return loaded, apply(plan(loaded, [loaded.kernel(kernel)], "pp,block", Options(1 << 14)))
    except Refused as why:
        pytest.skip(f"refused: {why.what}")


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "kernel"), launches.kernels())
def test_a_pad_image_computes_the_same_bits(device: Any, name: str, kernel: str) -> None:
    loaded, traced = spliced(name, kernel)
    original = launches.run(device, loaded.data, name, kernel)
    padded = launches.run(device, pad(traced.data, traced.map).data, name, kernel)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(original, padded, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "kernel"), launches.kernels())
def test_a_part_of_the_probes_computes_the_same_bits(device: Any, name: str, kernel: str) -> None:
    from xtrace.runtime.buffers import SlotLayout, TraceBuffer
    from xtrace.runtime.patching import kernel_entry, patch_image

    loaded = image(name)
    traced = plan(loaded, [loaded.kernel(kernel)], "op:*", Options(1 << 14))
    try:
        prologue, clocks = prologue_only(traced), clocks_only(traced)
    except Refused as why:
        pytest.skip(f"refused: {why.what}")
    original = launches.run(device, loaded.data, name, kernel)
    alone = launches.run(device, prologue.data, name, kernel)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(original, alone, strict=True))
    launch = launches.MANIFEST["images"][name]["launch"]
    grid = launch["kernels"][kernel]["grid"]
    slots = grid[0] * grid[1] * grid[2] * -(-launch["threads"] // 32)
    with TraceBuffer(device, SlotLayout.of(kernel_entry(clocks.map, kernel)["slot"]), slots) as buffer:
        read = launches.run(device, patch_image(clocks.data, clocks.map, {kernel: buffer.target}), name, kernel)
        summary = buffer.summary()
    assert all(a.tobytes() == b.tobytes() for a, b in zip(original, read, strict=True))
    assert (summary.warps, summary.overwritten) == (slots, 0)


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "kernel"), launches.kernels())
def test_a_slowed_probe_computes_the_same_bits_and_loses_nothing(device: Any, name: str, kernel: str) -> None:
    from xtrace.runtime.buffers import SlotLayout, TraceBuffer
    from xtrace.runtime.checks import trace_facts
    from xtrace.runtime.patching import kernel_entry, patch_image

    loaded, traced = spliced(name, kernel)
    try:
        slowed = slow_probe.slow(traced.data, traced.map, loads=2)
    except Refused as why:
        pytest.skip(why.what)
    launch = launches.MANIFEST["images"][name]["launch"]
    grid = launch["kernels"][kernel]["grid"]
    warps_per_cta = -(-launch["threads"] // 32)
    slots = grid[0] * grid[1] * grid[2] * warps_per_cta
    entry = kernel_entry(slowed.map, kernel)
    with TraceBuffer(device, SlotLayout.of(entry["slot"]), slots) as buffer:
        patched = patch_image(slowed.data, slowed.map, {kernel: buffer.target})
        original = launches.run(device, loaded.data, name, kernel)
        outputs = launches.run(device, patched, name, kernel)
        facts = trace_facts(buffer.read(), entry, warps_per_cta)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(original, outputs, strict=True))
    assert facts.warps == slots
    assert facts.monotonic
    assert facts.lost == 0
    assert facts.unknown_sites == 0
