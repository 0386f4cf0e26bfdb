"""Reads and writes against the disassembler's own data flow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.isa.oracle import disagreements
from xtrace import image
from xtrace.isa.nvidia.decode import NvidiaIsa

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
FEW = ("call_rel", "tma_tile", "warp_specialised")
REST = sorted(p.stem for p in GOLDEN.glob("*.cubin") if not p.stem.startswith("triton") and p.stem not in FEW)  # abi8


@pytest.mark.parametrize("name", [*FEW, *(pytest.param(name, marks=pytest.mark.golden) for name in REST)])
def test_golden_images_agree_with_the_life_ranges(hopper: NvidiaIsa, name: str) -> None:
    found, compared = disagreements(GOLDEN / f"{name}.cubin", hopper)
    assert found == []
    assert compared > 300


@pytest.mark.golden
def test_flash_attention_3_agrees_with_the_life_ranges(
    hopper: NvidiaIsa, workload_image: Callable[[str], Path]
) -> None:
    path = workload_image("fa3_fwd_hd128_causal")
    if image.load(path).flavour != "abi8":
        pytest.skip("the oracle reads abi8 images only")
    found, compared = disagreements(path, hopper)
    assert found == []
    assert compared > 10_000
