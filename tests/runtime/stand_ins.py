"""A small trace map and a traced kernel for the simulated device."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from xtrace.runtime.buffers import SlotLayout
from xtrace.runtime.device import LaunchConfig
from xtrace.runtime.params import PackedParams
from xtrace.runtime.simulated import SimulatedDevice, WarpTrace, patched_words, simulated_image, write_trace

LAYOUT = SlotLayout(stride=2048, ring=1024)
KERNEL = "toy"


def trace_map(image: bytes, kernel: str = KERNEL, layout: SlotLayout = LAYOUT, sites: int = 3) -> dict:
    return {
        "schema": "xtrace/map/2",
        "xtrace": "0",
        "arch": "sm_90a",
        "probes": "pp",
        "input": {"name": "toy", "sha256": "0" * 64},
        "output": {"sha256": hashlib.sha256(image).hexdigest()},
        "kernels": [
            {
                "name": kernel,
                "demangled": f"{kernel}(int)",
                "sites": [
                    {"id": i, "pc": 16 * i, "op": "NOP", "phase": f"p{i}", "loop": None, "depth": 0}
                    for i in range(1, sites + 1)
                ],
                "packets": [{"tag": i, "sites": [i]} for i in range(1, sites + 1)],
                "slot": {"stride": layout.stride, "ring": layout.ring, "record": 4, "header_bytes": 32},
                "patches": [
                    {"offset": 10, "value": "buffer_lo"},
                    {"offset": 14, "value": "buffer_hi"},
                    {"offset": 18, "value": "header_lo"},
                    {"offset": 22, "value": "header_hi"},
                    {"offset": 26, "value": "slot_count"},
                ],
            }
        ],
    }


def warp_traces(config: LaunchConfig, records: int = 4) -> list[WarpTrace]:
    return [
        WarpTrace(
            [(1000 + 10 * n, 1 + n % 3) for n in range(records)], sm=w % 4, t_entry_ns=5000 + w, t_exit_ns=9000 + w
        )
        for w in range(config.warps)
    ]


def toy_kernel(
    duration: float = 100_000.0,
    *,
    slow_down: float = 1.0,
    traces: Sequence[WarpTrace] | None = None,
    corrupt: bool = False,
):
    """Writes ``param1 * 3`` to the buffer of parameter 0; when patched also a trace; takes ``duration`` ns."""

    def run(device: SimulatedDevice, image: bytes, config: LaunchConfig, packed: PackedParams) -> float:
        (_, out), (_, value) = packed.params[:2]
        address, table, slots = patched_words(image)
        device.poke(int(out), (int(value) * 3 + (corrupt and slots > 0)).to_bytes(8, "little"))
        if slots:
            write_trace(device, address, table, slots, LAYOUT, traces if traces is not None else warp_traces(config))
            return duration * slow_down
        return duration

    return run


def images() -> tuple[bytes, bytes]:
    """Original and traced image."""
    return simulated_image(KERNEL, "original"), simulated_image(KERNEL, "traced")
