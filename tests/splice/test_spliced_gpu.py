"""Spliced trap kernels on a GPU: same bits, no record lost, clocks in order, even with probes everywhere."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from tests.splice.conftest import GOLDEN, image
from xtrace.errors import Refused
from xtrace.splice import Form, Options, apply, plan

found = importlib.util.spec_from_file_location("golden_launches_for_splice", GOLDEN / "launches.py")
assert found
assert found.loader
launches = importlib.util.module_from_spec(found)
found.loader.exec_module(launches)


FORMS = [
    ("sche", Form.SCHEDULED),
    ("pp", Form.SCHEDULED),
    ("block", Form.SCHEDULED),
    ("mem", Form.SCHEDULED),
    ("pp,mem", Form.SCHEDULED),
    *(("op:*", form) for form in Form),
]


@pytest.mark.gpu
@pytest.mark.parametrize(("probes", "form"), FORMS)
@pytest.mark.parametrize(("name", "kernel"), launches.kernels())
def test_outputs_are_the_same_bits_and_no_record_is_lost(
    device: Any, name: str, kernel: str, probes: str, form: Form
) -> None:
    from xtrace.runtime.buffers import SlotLayout, TraceBuffer
    from xtrace.runtime.checks import trace_facts
    from xtrace.runtime.patching import kernel_entry, patch_image

    loaded = image(name)
    try:
        result = apply(plan(loaded, [loaded.kernel(kernel)], probes, Options(1 << 14, form=form)))
    except Refused as why:
        pytest.skip(f"refused: {why.what}")
    launch = launches.MANIFEST["images"][name]["launch"]
    grid = launch["kernels"][kernel]["grid"]
    warps_per_cta = -(-launch["threads"] // 32)
    slots = grid[0] * grid[1] * grid[2] * warps_per_cta
    entry = kernel_entry(result.map, kernel)
    with TraceBuffer(device, SlotLayout.of(entry["slot"]), slots) as buffer:
        patched = patch_image(result.data, result.map, {kernel: buffer.target})
        original = launches.run(device, loaded.data, name, kernel)
        traced = launches.run(device, patched, name, kernel)
        assert all(a.tobytes() == b.tobytes() for a, b in zip(original, traced, strict=True))
        facts = trace_facts(buffer.read(), entry, warps_per_cta)
    assert facts.warps == slots
    assert facts.monotonic
    assert facts.unknown_sites == 0
    assert facts.lost == 0
    if probes != "sche" and any(site["id"] is not None for site in entry["sites"]):
        assert facts.emitted > 0
