"""The golden CUDA kernels run, end, and give the same bits every time: tests of spliced ones rest on that."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HERE = Path(__file__).resolve().parent
found = importlib.util.spec_from_file_location("golden_launches", HERE / "launches.py")
assert found
assert found.loader
launches = importlib.util.module_from_spec(found)
found.loader.exec_module(launches)


def after(device: Any, name: str, kernel: str) -> list[np.ndarray]:
    return launches.run(device, (HERE / f"{name}.cubin").read_bytes(), name, kernel)


@pytest.fixture(scope="module")
def device() -> Any:
    from xtrace.runtime.device import open_device

    return open_device()


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "kernel"), launches.kernels())
def test_two_launches_give_the_same_bits(device: Any, name: str, kernel: str) -> None:
    first, second = after(device, name, kernel), after(device, name, kernel)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(first, second, strict=True))
    parameters = launches.MANIFEST["images"][name]["launch"]["kernels"][kernel]["params"]
    before = [launches.initial(p, i) for i, p in enumerate(parameters) if "count" in p]
    assert any(a.tobytes() != b.tobytes() for a, b in zip(first, before, strict=True))  # it did write something


@pytest.mark.gpu
def test_known_results(device: Any) -> None:
    sums, values = after(device, "odd_block", "odd_block")
    assert np.allclose(sums, values.reshape(5, 1000).sum(1), atol=1e-3)
    _, published = after(device, "spin", "spin")
    assert published.tolist() == [140] * 12
    out, tiles = after(device, "cp_async", "cp_async")
    swapped = tiles.reshape(3, 7, 128, 2, 4)[:, :, :, ::-1]  # threads read their neighbour's element
    assert np.allclose(out.reshape(3, 128, 2, 4), swapped.sum(1), atol=1e-4)
    assert np.isfinite(after(device, "warp_specialised", "warp_specialised")[0]).all()


def test_every_cuda_image_but_the_one_with_tensor_maps_has_a_launch() -> None:
    images = launches.MANIFEST["images"]
    assert {n for n in images if images[n]["abi"] == 8} - {n for n, _ in launches.kernels()} == {"tma_tile"}
