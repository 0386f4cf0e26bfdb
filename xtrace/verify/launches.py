"""Made-up launches for the dry run: grids, blocks and buffers, with one warp that must find its own slot."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xtrace.verify.emulate import Warp
from xtrace.verify.stripes import PATCH, SIZES

__all__ = ["Launch", "Layout", "lone_warp"]

_SLACK = 512  # so much room a ring has behind it, if it may wrap
_RECORD = 4  # bytes of one event
_HEADER = 32
_POLICIES = (0, 0x14F00000)  # upper half of a descriptor: none, or L2::evict_last for all (the lower one is 0)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a warp may store: the first ``ring`` bytes of its slot and perhaps some slack, and its header.

    With a ``stripe`` the slot is in pieces of so many bytes, one in every stripe of all slots.
    """

    stride: int
    ring: int
    header_bytes: int
    stripe: int | None = None

    @property
    def wraps(self) -> bool:
        return self.stride > self.ring or self.stripe is not None

    @property
    def room(self) -> int:
        return self.ring + _SLACK * (self.stride > self.ring)

    @classmethod
    def of(cls, slot: dict[str, Any]) -> Layout | str:
        values = [slot.get(key) for key in ("stride", "ring", "header_bytes")]
        if any(type(v) is not int or not 0 < v < 1 << 40 for v in values):
            return "map does not describe the slot"
        stride, ring, size = (int(v) for v in values if v is not None)
        if slot.get("record") != _RECORD or size != _HEADER:
            return f"map has records of other than {_RECORD} bytes, or another header"
        if ring < 32 or ring & (ring - 1):
            return f"ring of {ring} bytes is no power of two of 32 or more"
        if stride != ring and ring + _SLACK > stride:
            return f"slot layout of the map overlaps: ring {ring} and {_SLACK} bytes of slack in a stride of {stride}"
        stripe = slot.get("stripe")
        if stripe is not None and (type(stripe) is not int or stripe not in SIZES or stripe > ring or stride != ring):
            return f"stripes of {str(stripe)[:20]} bytes do not make up slots of just a ring of {ring}"
        return cls(stride, ring, size, stripe)


class Launch:
    """A made-up launch and one warp of it: what its registers see, and the addresses of its slot and header.

    ``empty``: a buffer of no slots but the one that the warps share which are too many.
    """

    def __init__(self, rng: random.Random, layout: Layout, block: tuple[int, int, int] | None, *, empty: bool) -> None:
        threads = [rng.choice((1, 2, 3, 7, 32, 33, 100, 128)), rng.choice((1, 2, 3)), rng.choice((1, 1, 2))]
        if block:  # the image fixes the block size, so a probe may build on it
            threads = list(block)
        grid = [rng.randrange(1, 70000), rng.randrange(1, 8), rng.randrange(1, 4)]
        cta = [rng.randrange(n) for n in grid]
        tid = [rng.randrange(n) for n in threads]
        warps = -(-threads[0] * threads[1] * threads[2] // 32)
        warp = ((tid[2] * threads[1] + tid[1]) * threads[0] + tid[0]) // 32
        wanted = ((cta[2] * grid[1] + cta[1]) * grid[0] + cta[0]) * warps + warp
        count = 0 if empty else rng.choice((wanted + 1, wanted, max(wanted // 2, 1), 2 * wanted + 3))
        base, table = (rng.randrange(1, 1 << 20) << 32 | rng.randrange(1 << 28) for _ in range(2))
        base -= base % layout.stride
        table -= table % 4096
        index = min(wanted, count)
        self.layout = layout
        self.slot = base + index * (layout.stripe or layout.stride)
        self._pitch = (count + 1) * (layout.stripe or 0)
        self.header = table + index * layout.header_bytes  # the table does not cross a multiple of 4 GiB
        self.smid = rng.randrange(132)
        self.patched = {
            "buffer_lo": base & 0xFFFFFFFF,
            "buffer_hi": base >> 32,
            "header_lo": table & 0xFFFFFFFF,
            "header_hi": table >> 32,
            "slot_count": count,
            PATCH: count + 1,
            "header_policy": rng.choice(_POLICIES),
        }
        self._special, self._constants = _surroundings(rng, threads, grid, tid, cta, self.smid)

    def place(self, address: int, size: int) -> int | None:
        """Offset in the warp's ring of ``size`` bytes at ``address``; None: they are not in the warp's slot."""
        at, stripe = address - self.slot, self.layout.stripe
        if stripe is None:
            return at if at >= 0 and at + size <= self.layout.room else None
        number, inside = divmod(at, self._pitch)
        mine = 0 <= number < self.layout.ring // stripe and inside + size <= stripe
        return stripe * number + inside if mine else None

    def warp(self) -> Warp:
        """The warp at its entry."""
        return Warp(self._special, self._constants)


def lone_warp(rng: random.Random, block: Sequence[int], cta: int, warp: int) -> Warp:
    """Warp number ``warp`` of CTA number ``cta`` (below 2**31), of a grid of some shape, at its entry."""
    x = rng.choice((1, 3, 132, 65535, 1 << 31)) + rng.randrange(2)
    y = rng.choice((1, 2, 1000)) + rng.randrange(2)
    grid = [x, y, cta // (x * y) + 1 + rng.randrange(2)]
    thread = 32 * warp + rng.randrange(min(32, block[0] * block[1] * block[2] - 32 * warp))
    tid = [thread % block[0], thread // block[0] % block[1], thread // (block[0] * block[1])]
    number = [cta % x, cta // x % y, cta // (x * y)]
    return Warp(*_surroundings(rng, block, grid, tid, number, rng.randrange(132)))


def _surroundings(
    rng: random.Random,
    threads: Sequence[int],
    grid: Sequence[int],
    tid: Sequence[int],
    cta: Sequence[int],
    smid: int,
) -> tuple[dict[str, int], dict[int, int]]:
    """Special registers and constant bank 0 as a warp sees them."""
    axes = "XYZ"
    special = {f"SR_CTAID.{axes[k]}": cta[k] for k in range(3)} | {f"SR_TID.{axes[k]}": tid[k] for k in range(3)}
    special |= {"SR_VIRTUALSMID": smid, "SR_VIRTID": rng.randrange(64), "SR_LANEID": 0}
    return special, {4 * k: threads[k] for k in range(3)} | {0xC + 4 * k: grid[k] for k in range(3)}
