from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from xtrace.analysis import KernelAnalysis, analyse
from xtrace.image import Image, load

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
TRACEABLE = (
    "cp_async",
    "early_exit",
    "many_registers",
    "odd_block",
    "spin",
    "tma_tile",
    "triton_fa_fwd",
    "triton_gemm",
    "triton_moe_gemm",
    "triton_rmsnorm",
    "triton_softmax",
    "warp_specialised",
)


@cache
def image(name: str) -> Image:
    return load(GOLDEN / f"{name}.cubin")


@cache
def analysed(name: str) -> KernelAnalysis:
    loaded = image(name)
    return analyse(loaded, loaded.kernels[0])


@pytest.fixture(scope="module")
def device() -> Any:
    """For tests of tier ``gpu``."""
    from xtrace.runtime.device import open_device

    return open_device()
