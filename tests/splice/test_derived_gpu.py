"""Derived addresses on a GPU: those of an image that records every address on its own, to the byte."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from tests.splice.conftest import image
from xtrace.splice import Form, Options, apply, plan

BF16 = 2
CASES: dict[str, tuple[tuple[int, int, int], list[int], list[tuple[str, int | float]]]] = {
    # M = 512, N = 1024, K = 768
    "triton_gemm": (
        (16, 1, 1),
        [BF16 * 512 * 768, BF16 * 768 * 1024, BF16 * 512 * 1024],
        [("i32", n) for n in (512, 1024, 768, 768, 1024, 1024)],
    ),
    # batch 2, sequences of 1024, 4 heads of 128
    "triton_fa_fwd": (
        (8, 8, 1),
        [BF16 * 2 * 1024 * 4 * 128] * 4 + [4 * 2 * 4 * 1024],
        [("f32", 0.1275), *(("i32", n) for n in (524288, 512, 128, 1024, 4))],
    ),
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_derived_addresses_are_those_that_are_recorded_one_by_one(device: Any, name: str) -> None:
    grid, sizes, scalars = CASES[name]
    buffers = [device.allocate(size) for size in sizes]
    try:
        for address, size in zip(buffers, sizes, strict=True):
            device.fill(address, size, 0)
        parameters = [*(("ptr", a) for a in buffers), *scalars, ("ptr", 0), ("ptr", 0)]
        one_by_one = traced(device, name, Form.PACKED, grid, parameters)
        derived = traced(device, name, Form.SCHEDULED, grid, parameters)
    finally:
        for address in buffers:
            device.free(address)
    assert len(derived) == len(one_by_one)
    for (where, found), (there, wanted) in zip(derived.groupby(KEY), one_by_one.groupby(KEY), strict=True):
        assert where == there
        assert found["address"].tolist() == wanted["address"].tolist(), where


KEY = ["cta", "warp", "pc"]


def traced(device: Any, name: str, form: Form, grid: tuple[int, int, int], parameters: list[Any]) -> pd.DataFrame:
    from xtrace.runtime.buffers import SlotLayout, TraceBuffer
    from xtrace.runtime.device import LaunchConfig
    from xtrace.runtime.patching import kernel_entry, patch_image
    from xtrace.trace import decode

    loaded = image(name)
    kernel = loaded.kernels[0].name
    result = apply(plan(loaded, loaded.kernels, "mem", Options(1 << 13, form=form)))
    entry = kernel_entry(result.map, kernel)
    assert bool(entry.get("derived")) is (form is Form.SCHEDULED)
    slots = grid[0] * grid[1] * grid[2] * 8
    shared = {"triton_gemm": 196608, "triton_fa_fwd": 229376}[name]
    with TraceBuffer(device, SlotLayout.of(entry["slot"]), slots) as buffer:
        module = device.load(patch_image(result.data, result.map, {kernel: buffer.target}))
        try:
            function = module.kernel(kernel)
            function.launch(LaunchConfig(grid, (256, 1, 1), shared), function.prepare(parameters))
            device.synchronize(20.0)
            trace = buffer.read()
        finally:
            module.unload()
    tables = decode(trace.data, trace.map_for(result.map, kernel), kernel, grid=grid, block=256)
    assert tables.summary["dropped"] == 0
    assert tables.summary.get("derived_unknown", 0) == 0
    assert tables.summary["warps_ran"] == slots
    return tables.events
