"""Ring bytes to records, by the memory layout of decision 0001. Vectorised throughout.

**Order in the ring.** The n-th record of a warp stands at byte ``(8 n) mod ring``. Only a group of
records that runs past the ring's end continues in the slack behind it, so a record whose place is
among the first ``slack`` of a later lap may stand in either of two places, the other of which holds
an older record. The younger of the two, measured back from a record or exit clock that is known to
be later, is the right one (correct while a lap takes less than 2**32 cycles).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from xtrace.trace.headers import MASK32, Headers
from xtrace.trace.layout import KernelLayout

__all__ = ["Records", "count_records", "read_records"]

Array = npt.NDArray[Any]
_CHUNK_BYTES = 1 << 26  # of ring bytes examined at once for warps that never reached their exit


@dataclass(frozen=True)
class Records:
    """Surviving records, ordered by warp and sequence number."""

    warp: Array  # index into Headers
    seq: Array
    clock_lo: Array
    site: Array
    kept: Array  # per warp: records that the ring could still hold (written or not)
    emitted: Array  # per warp


def read_records(slots: Array, headers: Headers, layout: KernelLayout) -> Records:
    """Every record that survived, in the order in which its warp emitted it."""
    emitted = headers.emitted
    kept = np.minimum(emitted, layout.capacity)
    warp = np.repeat(np.arange(len(emitted)), kept)
    starts = np.cumsum(kept) - kept
    seq = np.arange(len(warp), dtype=np.int64) - np.repeat(starts - (emitted - kept), kept)
    place = seq % layout.capacity
    flat = slots.reshape(-1)
    base = headers.slot[warp] * (layout.stride // 8)
    word = flat[base + place]
    _prefer_slack(word, flat, base, seq, place, warp, headers, layout)

    present = word >> np.uint64(32) != 0
    warp, seq, word = warp[present], seq[present], word[present]
    return Records(
        warp=warp,
        seq=seq,
        clock_lo=(word & MASK32).astype(np.int64),
        site=(word >> np.uint64(32)).astype(np.int64),
        kept=kept,
        emitted=emitted,
    )


def _prefer_slack(
    word: Array, flat: Array, base: Array, seq: Array, place: Array, warp: Array, headers: Headers, layout: KernelLayout
) -> None:
    """Replace in ``word`` the records that went to the slack behind the ring (see the module's text)."""
    slack = min(layout.slack, layout.capacity)
    at = np.flatnonzero((place < slack) & (seq >= layout.capacity))
    if not len(at):
        return
    in_ring = word[at]
    in_slack = flat[base[at] + layout.capacity + place[at]]
    exit_lo = headers.clock_exit[warp[at]] & MASK32
    later = exit_lo
    if layout.capacity > slack:  # the first record of the same lap that certainly stands in the ring itself
        sure = flat[base[at] + slack]
        reached = seq[at] - place[at] + slack < headers.emitted[warp[at]]
        later = np.where(reached & (sure >> np.uint64(32) != 0), sure & MASK32, exit_lo)
    age_ring = (later - (in_ring & MASK32)) & MASK32
    age_slack = (later - (in_slack & MASK32)) & MASK32
    ring_empty = in_ring >> np.uint64(32) == 0
    slack_written = in_slack >> np.uint64(32) != 0
    word[at] = np.where(slack_written & (ring_empty | (age_slack < age_ring)), in_slack, in_ring)


def count_records(slots: Array, rows: Array, layout: KernelLayout) -> int:
    """Non-zero records in the rings of some slots."""
    total = 0
    step = max(1, _CHUNK_BYTES // layout.ring)
    for start in range(0, len(rows), step):
        part = slots[rows[start : start + step], : layout.capacity]
        total += int(np.count_nonzero(part >> np.uint64(32)))
    return total
