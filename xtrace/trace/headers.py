"""Warp headers: when and where a warp ran, and how many events it emitted. Vectorised.

They stand in a table behind the rings, 32 bytes each, written once, at the warp's exit, with only the low halves
of the entry's timer and of both clocks. The upper halves follow: a warp's timer runs for less than 2**32 ns
(4.3 s) between entry and exit, and the clock's wraps are counted with the timer and the clock rate that the short
warps of the launch show.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from xtrace.errors import BadInput
from xtrace.trace.layout import HEADER_BYTES, KernelLayout
from xtrace.trace.packets import by_slot, lift, plausible
from xtrace.trace.tags import QUAD

__all__ = ["MASK32", "Headers", "read_headers", "regions"]

Array = npt.NDArray[Any]
MASK32 = np.uint64(0xFFFFFFFF)
MAX_SPAN = np.uint64(1 << 48)  # ns, days: no launch lasts longer, so such a header is damaged
WRAP = 1 << 32
USUAL_CYCLES_PER_NS = 1.75  # only for launches in which every warp runs for more than a second


@dataclass(frozen=True)
class Headers:
    """One array element per warp that left a usable header.

    ``damaged``: slots whose header contradicts itself; ``used``: all slots with any header. Neither is limited to
    the warps in the other arrays. ``rate_assumed``: clock wraps were counted with a guessed clock rate.
    """

    slot: Array
    t_entry: Array  # global timer, ns
    t_exit: Array
    clock_entry: Array
    clock_exit: Array
    sm: Array
    emitted: Array  # events
    quads: Array  # 16-byte units of packets emitted
    exit_pc: Array
    damaged: Array
    used: Array
    rate_assumed: bool = False

    def without(self, bad: Array) -> Headers:
        """The same but for some warps, which count as damaged."""
        names = ("slot", "t_entry", "t_exit", "clock_entry", "clock_exit", "sm", "emitted", "quads", "exit_pc")
        kept = {name: getattr(self, name)[~bad] for name in names}
        return replace(self, **kept, damaged=np.union1d(self.damaged, self.slot[bad]))


def regions(buffer: bytes | bytearray | memoryview, layout: KernelLayout) -> tuple[Array, Array]:
    """The buffer's slots (u32 words), spill-over slot included, and one row of u64 header words per slot; only those
    of stripes are copied.

    BadInput XT8201 when the size is not a whole number of slots.
    """
    size = memoryview(buffer).nbytes
    each = layout.stride + HEADER_BYTES
    if size % each or size < 2 * each:
        raise BadInput(
            "XT8201",
            f"a buffer of {size} bytes is not at least two slots of {each} bytes",
            where=layout.name,
            hint="the buffer is truncated, or the map belongs to another image",
        )
    count = size // each
    whole = memoryview(buffer).cast("B")
    rings = np.frombuffer(whole[: count * layout.stride], dtype="<u4")
    slots = by_slot(rings, count, None if layout.stripe is None else layout.stripe // 4)
    return slots, np.frombuffer(whole[count * layout.stride :], dtype="<u8").reshape(count, -1)


def read_headers(rows: Array, stripe: int | None = None, *, short: bool = False) -> Headers:
    """Headers of all slots but the spill-over slot.

    ``stripe``: bytes of every packet, if they have one size; ``short``: some have short clocks.
    """
    rows = rows[:-1]
    used = np.flatnonzero((rows != 0).any(axis=1))
    raw = rows[used]
    low, high = raw & MASK32, raw >> np.uint64(32)
    t_exit = raw[:, 2].copy()
    sm, count, emitted_bytes = low[:, 1] & np.uint64(0xFF), low[:, 1] >> np.uint64(8), high[:, 3]
    quads = (emitted_bytes // np.uint64(QUAD)).astype(np.int64)
    emitted = lift(count, quads, 1 if stripe is None else stripe // QUAD)
    lasted = (t_exit - low[:, 0]) & MASK32
    bad = (t_exit == 0) | (t_exit >= np.uint64(1 << 63)) | (t_exit < lasted)
    bad |= (emitted_bytes % np.uint64(QUAD) != 0) | ~plausible(emitted, quads, short=short) | _far_off(t_exit)
    good = ~bad
    t_exit, lasted, sm = t_exit[good], lasted[good], sm[good]
    clock_entry, clock_exit, assumed = _full_clocks(t_exit, lasted, high[good, 0], low[good, 3], sm)
    return Headers(
        slot=used[good],
        t_entry=t_exit - lasted,
        t_exit=t_exit,
        clock_entry=clock_entry,
        clock_exit=clock_exit,
        sm=sm.astype(np.int32),
        emitted=emitted[good],
        quads=quads[good],
        exit_pc=high[good, 1].astype(np.int64),
        damaged=used[bad],
        used=used,
        rate_assumed=assumed,
    )


def _full_clocks(t_exit: Array, lasted: Array, entry_lo: Array, exit_lo: Array, sm: Array) -> tuple[Array, Array, bool]:
    """64-bit clocks at entry and exit, right up to a multiple of 2**32 that all warps of an SM share."""
    n = len(t_exit)
    if not n:
        return np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.uint64), False
    ns = lasted.astype(np.float64)
    cycles = ((exit_lo - entry_lo) & MASK32).astype(np.int64)
    short = (ns >= 1000) & (ns < 1e9) & (cycles > 0)
    rate, assumed = USUAL_CYCLES_PER_NS, bool((ns >= 1e9).any())
    if short.any():  # long warps among them tell the rate best; the median is safe from a damaged header
        best = short & (ns >= np.median(ns[short]))
        rate, assumed = float(np.clip(np.median(cycles[best] / ns[best]), 0.001, 100.0)), False
    cycles += np.maximum(np.rint((ns * rate - cycles) / WRAP), 0).astype(np.int64) * WRAP

    _, first, group = np.unique(sm, return_index=True, return_inverse=True)
    since = (t_exit - t_exit[first][group]).view(np.int64).astype(np.float64)
    low = exit_lo.astype(np.int64)
    expected = low[first][group] + since * rate
    leave = low + np.rint((expected - low) / WRAP).astype(np.int64) * WRAP
    enter = leave - cycles
    lowest = np.zeros(len(first), dtype=np.int64)
    np.minimum.at(lowest, group, enter)
    lift = (-(lowest // WRAP) * WRAP)[group]
    return (enter + lift).astype(np.uint64), (leave + lift).astype(np.uint64), assumed


def _far_off(values: Array) -> Array:
    """Which values are further than MAX_SPAN from the median."""
    if not len(values):
        return np.zeros(0, dtype=bool)
    median = np.sort(values)[len(values) // 2]
    distance = np.where(values > median, values - median, median - values)
    result: Array = distance > MAX_SPAN
    return result
