"""How much a launch writes: bytes of a warp and, given a time, bytes per second; from a kernel of a plan document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Launch", "Volume", "volume"]


@dataclass(frozen=True, slots=True)
class Launch:
    """What the user knows of a launch; a rate needs all three."""

    duration_us: float
    warps: int
    iterations: int  # of the hot loop by each warp


@dataclass(frozen=True, slots=True)
class Volume:
    bytes_per_warp: int  # headers included
    bytes_per_launch: int
    bytes_per_second: float


def volume(kernel: Mapping[str, Any], launch: Launch) -> Volume:
    """Bytes that all warps of a launch emit: headers, what runs once, and every iteration of the hot loop.

    ``kernel`` is one of ``kernels`` of a plan document, with a plan. Iterations of other loops are not counted.
    """
    hot = kernel["hot"]
    repeated = launch.iterations * hot["bytes"] if hot["loop"] is not None else 0
    warp = kernel["header_bytes"] + kernel["once"]["bytes"] + repeated
    return Volume(warp, warp * launch.warps, warp * launch.warps / (1e-6 * launch.duration_us))
