"""Sampled trap kernels on a GPU: exactly the sampled warps leave a trace, and the outputs are the same bits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.splice.conftest import image
from tests.splice.test_spliced_gpu import launches
from xtrace.errors import Refused
from xtrace.sampling import Sampling
from xtrace.splice import Options, apply, plan


@pytest.mark.gpu
@pytest.mark.parametrize("rule", ["cta=3", "cta=3/1", "cta=2", "warp=1", "warpgroup=0", "cta=3,warp=1", "cta=1000"])
@pytest.mark.parametrize(("name", "kernel"), launches.kernels())
def test_exactly_the_sampled_warps_are_traced(device: Any, name: str, kernel: str, rule: str) -> None:
    from xtrace.runtime.buffers import SlotLayout, TraceBuffer
    from xtrace.runtime.checks import trace_facts
    from xtrace.runtime.patching import kernel_entry, patch_image
    from xtrace.trace import decode

    loaded, sampling = image(name), Sampling.parse(rule)
    try:
        result = apply(plan(loaded, [loaded.kernel(kernel)], "pp", Options(1 << 14, sample=sampling)))
    except Refused as why:
        pytest.skip(f"refused: {why.what}")
    launch = launches.MANIFEST["images"][name]["launch"]
    grid = launch["kernels"][kernel]["grid"]
    width = -(-launch["threads"] // 32)
    ctas = grid[0] * grid[1] * grid[2]
    wanted = [(c, w) for c in range(ctas) for w in range(width) if sampling.takes(c, w)]
    entry = kernel_entry(result.map, kernel)
    with TraceBuffer(device, SlotLayout.of(entry["slot"]), ctas * width) as buffer:
        patched = patch_image(result.data, result.map, {kernel: buffer.target})
        original = launches.run(device, loaded.data, name, kernel)
        traced = launches.run(device, patched, name, kernel)
        assert all(a.tobytes() == b.tobytes() for a, b in zip(original, traced, strict=True))
        trace = buffer.read()
    ran = [divmod(int(slot), width) for slot in trace.headers()["ran"].nonzero()[0]]
    assert ran == wanted
    facts = trace_facts(trace, entry, width)
    assert facts.lost == facts.unknown_sites == facts.warps_unfinished == 0
    assert facts.monotonic
    if wanted and facts.emitted:
        tables = decode(trace.data, trace.map_for(result.map, kernel), kernel, grid=grid, block=(launch["threads"],))
        assert tables.summary["complete"], tables.summary["warnings"]
        assert set(zip(tables.events["cta"], tables.events["warp"], strict=True)) <= set(wanted)
