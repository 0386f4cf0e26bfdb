"""Trace set ``mem`` on a GPU, against addresses that follow from the sources: every one must be right to the byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.splice.conftest import image
from tests.splice.test_spliced_gpu import launches
from xtrace.splice import Options, apply, plan

ROUNDS, CTAS = 20, 6  # of spin
TILES, THREADS = 7, 256  # of cp_async
VECTOR = 16


class Recorder:
    """A device that remembers what it allocated."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self.addresses: list[int] = []

    def allocate(self, size: int) -> int:
        self.addresses.append(self._device.allocate(size))
        return self.addresses[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)


def traced(device: Any, name: str) -> tuple[Any, list[int]]:
    """Events of one traced launch and the addresses of its buffers; outputs are checked on the way."""
    from xtrace.runtime.buffers import SlotLayout, TraceBuffer
    from xtrace.runtime.patching import kernel_entry, patch_image
    from xtrace.trace import decode

    loaded = image(name)
    result = apply(plan(loaded, loaded.kernels, "mem", Options(1 << 14)))
    launch = launches.MANIFEST["images"][name]["launch"]
    grid = launch["kernels"][name]["grid"]
    slots = grid[0] * grid[1] * grid[2] * -(-launch["threads"] // 32)
    with TraceBuffer(device, SlotLayout.of(kernel_entry(result.map, name)["slot"]), slots) as buffer:
        patched = patch_image(result.data, result.map, {name: buffer.target})
        recorder = Recorder(device)
        original = launches.run(device, loaded.data, name, name)
        outputs = launches.run(recorder, patched, name, name)
        assert all(a.tobytes() == b.tobytes() for a, b in zip(original, outputs, strict=True))
        trace = buffer.read()
    tables = decode(trace.data, trace.map_for(result.map, name), name, grid=grid, block=launch["threads"])
    assert tables.summary["dropped"] == 0
    assert tables.summary["warps_ran"] == slots
    return tables.events, recorder.addresses


@pytest.mark.gpu
def test_every_address_of_the_spin_kernel(device: Any) -> None:
    events, (flag, out) = traced(device, "spin")
    wanted: dict[tuple[str, int], Callable[[int], int]] = {  # by mnemonic and warp
        ("STG", 0): lambda cta: out + 4 * cta,
        ("STG", 1): lambda cta: out + 4 * (CTAS + cta),
        ("ATOMG", 0): lambda cta: flag + 4 * cta,
        ("ATOMG", 1): lambda cta: flag + 4 * cta,
        ("LDG", 1): lambda cta: out + 4 * cta,
    }
    for row in events.itertuples():
        assert row.address == wanted[row.op.split(".")[0], row.warp](row.cta), row
    for op, warp in wanted:
        rows = events[events["op"].str.startswith(op) & (events["warp"] == warp)]
        assert len(rows) == ROUNDS * CTAS if (op, warp) != ("ATOMG", 1) else len(rows) >= ROUNDS * CTAS


@pytest.mark.gpu
def test_every_copy_of_the_cp_async_kernel(device: Any) -> None:
    events, (out, source) = traced(device, "cp_async")
    for (cta, warp), rows in events.groupby(["cta", "warp"]):
        lane0 = cta * TILES * THREADS + 32 * warp
        copies = rows[rows["op"].str.startswith("LDGSTS") & (rows["address"] > 0)]
        tiles = [(a - source) / VECTOR - lane0 for a in copies["address"].tolist()]
        assert all(t % THREADS == 0 and 0 <= t < TILES * THREADS for t in tiles)
        assert tiles == sorted(set(tiles))  # one after the other, none twice
        assert tiles[:1] == [0]
        stores = rows[rows["op"].str.startswith("STG")]["address"].tolist()
        assert stores == [out + VECTOR * (cta * THREADS + 32 * warp)]
