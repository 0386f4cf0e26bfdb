"""Runs the golden CUDA kernels as their manifest says, for GPU tests of the images and of what is spliced into them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from workflow.kernels.cases import bf16
from xtrace.runtime.device import Device, LaunchConfig

HERE = Path(__file__).resolve().parent
MANIFEST: dict[str, Any] = json.loads((HERE / "manifest.json").read_text())
DTYPES = {"*f32": np.float32, "*i32": np.int32, "*u32": np.uint32, "*bf16": np.uint16}


def kernels() -> list[tuple[str, str]]:
    """(image, kernel) pairs that the manifest says how to launch."""
    images = MANIFEST["images"]
    return [(name, kernel) for name in images for kernel in images[name]["launch"].get("kernels", {})]


def initial(parameter: dict[str, Any], index: int) -> np.ndarray:
    """Content of a buffer before the launch; the same for every call."""
    count, dtype = parameter["count"], DTYPES[parameter["type"]]
    rng = np.random.default_rng(index)
    if parameter["init"] == "out":
        return np.frombuffer(b"\xff" * (count * np.dtype(dtype).itemsize), dtype)
    if parameter["init"] == "zero":
        return np.zeros(count, dtype)
    if parameter["init"] == "ints":
        return rng.integers(0, 1 << 12, count).astype(dtype)
    normal = rng.standard_normal(count, dtype=np.float32)
    return bf16(normal) if parameter["init"] == "bf16" else normal


def run(device: Device, image: bytes, name: str, kernel: str, timeout_s: float = 20.0) -> list[np.ndarray]:
    """Launch ``kernel`` of (any version of) image ``name`` once; returns all its buffers afterwards."""
    launch = MANIFEST["images"][name]["launch"]
    description = launch["kernels"][kernel]
    module = device.load(image)
    addresses: list[int] = []
    values: list[tuple[str, int | float]] = []
    try:
        for index, parameter in enumerate(description["params"]):
            if "value" in parameter:
                values.append((parameter["type"], parameter["value"]))
                continue
            data = initial(parameter, index).tobytes()
            addresses.append(device.allocate(len(data)))
            device.upload(addresses[-1], data)
            values.append(("ptr", addresses[-1]))
        function = module.kernel(kernel)
        config = LaunchConfig(tuple(description["grid"]), (launch["threads"], 1, 1), launch["shared"])
        function.launch(config, function.prepare(values))
        device.synchronize(timeout_s)
        buffers = [p for p in description["params"] if "count" in p]
        return [
            np.frombuffer(device.download(a, p["count"] * np.dtype(DTYPES[p["type"]]).itemsize), DTYPES[p["type"]])
            for a, p in zip(addresses, buffers, strict=True)
        ]
    finally:
        for address in addresses:
            device.free(address)
        module.unload()
