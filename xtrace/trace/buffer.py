"""Buffer bytes to headers and records, by the memory layout of decision 0001. Vectorised throughout.

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

from xtrace.errors import BadInput
from xtrace.trace.layout import KernelLayout

__all__ = ["Headers", "Records", "read_headers", "read_records", "slots_of"]

Array = npt.NDArray[Any]
MASK32 = np.uint64(0xFFFFFFFF)
MAX_SPAN = np.uint64(1 << 48)  # cycles or ns, days: no launch lasts longer, so such a header is damaged
MAX_SMS = 1 << 16
_CHUNK_BYTES = 1 << 26  # of ring bytes examined at once for warps that never reached their exit


@dataclass(frozen=True)
class Headers:
    """Headers of the slots in use, one array element per warp that ran."""

    slot: Array
    t_entry: Array  # globaltimer, ns
    t_exit: Array
    clock_entry: Array
    clock_exit: Array
    sm: Array
    emitted: Array  # records; for an unfinished warp this is not known and 0
    finished: Array
    exit_pc: Array
    damaged: Array  # slots whose header contradicts itself: not in the arrays above


@dataclass(frozen=True)
class Records:
    """Surviving records, ordered by warp and sequence number."""

    warp: Array  # index into Headers
    seq: Array
    clock_lo: Array
    site: Array
    kept: Array  # per warp: records that the ring could still hold (written or not)
    emitted: Array  # per warp


def slots_of(buffer: bytes | bytearray | memoryview, layout: KernelLayout) -> Array:
    """The buffer as ``(slots + 1, stride / 8)`` 64-bit words without copying; the last slot is the spill-over.

    BadInput XT8201 when the size is not a whole number of slots.
    """
    size = memoryview(buffer).nbytes
    if size % layout.stride or size < 2 * layout.stride:
        raise BadInput(
            "XT8201",
            f"a buffer of {size} bytes is not at least two slots of {layout.stride} bytes",
            where=layout.name,
            hint="the buffer is truncated, or the map belongs to another image",
        )
    return np.frombuffer(buffer, dtype="<u8").reshape(-1, layout.stride // 8)


def read_headers(slots: Array, layout: KernelLayout) -> Headers:
    """Headers of all slots but the spill-over slot."""
    raw = slots[:-1, layout.header // 8 : layout.header // 8 + 7]
    used = np.flatnonzero((raw[:, 0] != 0) | (raw[:, 1] != 0))
    raw = raw[used]
    t_entry, clock_entry, where, _, t_exit, clock_exit, count = (raw[:, k].copy() for k in range(7))
    emitted_bytes, exit_pc = count & MASK32, count >> np.uint64(32)
    finished = (t_exit != 0) | (clock_exit != 0)
    sm = where & MASK32
    bad = finished & ((t_exit < t_entry) | (clock_exit < clock_entry) | (emitted_bytes % np.uint64(8) != 0))
    bad |= finished & ((t_exit - t_entry > MAX_SPAN) | (clock_exit - clock_entry > MAX_SPAN))
    bad |= (sm >= np.uint64(MAX_SMS)) | (t_entry >= np.uint64(1 << 63))
    bad |= _far_off(t_entry, np.zeros_like(sm)) | _far_off(clock_entry, sm)
    good = ~bad
    return Headers(
        slot=used[good],
        t_entry=t_entry[good],
        t_exit=t_exit[good],
        clock_entry=clock_entry[good],
        clock_exit=clock_exit[good],
        sm=sm.astype(np.int32)[good],
        emitted=np.where(finished, emitted_bytes // np.uint64(8), np.uint64(0)).astype(np.int64)[good],
        finished=finished[good],
        exit_pc=exit_pc.astype(np.int64)[good],
        damaged=used[bad],
    )


def _far_off(values: Array, group: Array) -> Array:
    """Which values are further than MAX_SPAN from the median of their group."""
    order = np.lexsort((values, group))
    _, first, which, count = np.unique(group[order], return_index=True, return_inverse=True, return_counts=True)
    median = np.empty_like(values)
    median[order] = values[order][first + count // 2][which]
    distance = np.where(values > median, values - median, median - values)
    result: Array = distance > MAX_SPAN
    return result


def read_records(slots: Array, headers: Headers, layout: KernelLayout) -> Records:
    """Every record that survived, in the order in which its warp emitted it."""
    done = np.flatnonzero(headers.finished)
    emitted = headers.emitted[done]
    kept = np.minimum(emitted, layout.capacity)
    warp = np.repeat(done, kept)
    starts = np.cumsum(kept) - kept
    seq = np.arange(len(warp), dtype=np.int64) - np.repeat(starts - (emitted - kept), kept)
    place = seq % layout.capacity
    flat = slots.reshape(-1)
    base = headers.slot[warp] * (layout.stride // 8)
    word = flat[base + place]
    _prefer_slack(word, flat, base, seq, place, warp, headers, layout)

    kept_all = np.zeros(len(headers.slot), dtype=np.int64)
    kept_all[done] = kept
    emitted_all = headers.emitted.copy()
    present = word >> np.uint64(32) != 0
    parts = [(warp[present], seq[present], word[present])]
    open_warps = np.flatnonzero(~headers.finished)
    step = max(1, _CHUNK_BYTES // layout.ring)
    for start in range(0, len(open_warps), step):
        chunk = open_warps[start : start + step]
        rows, order, words, prefix = _unfinished(slots[headers.slot[chunk], : layout.capacity])
        parts.append((chunk[rows], order, words))
        kept_all[chunk] = emitted_all[chunk] = prefix
    warp, seq, word = (np.concatenate(column) for column in zip(*parts, strict=True))
    if len(parts) > 1:
        order = np.lexsort((seq, warp))
        warp, seq, word = warp[order], seq[order], word[order]
    return Records(
        warp=warp,
        seq=seq,
        clock_lo=(word & MASK32).astype(np.int64),
        site=(word >> np.uint64(32)).astype(np.int64),
        kept=kept_all,
        emitted=emitted_all,
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


def _unfinished(rings: Array) -> tuple[Array, Array, Array, Array]:
    """Records of warps whose emitted count was never stored: everything non-zero, oldest first.

    A ring that has wrapped shows a seam where the clock falls back; it is turned so that the seam
    is at its start. Gives row, order within the row, word, and per row the length of the prefix
    that must have been emitted (zeros inside it are lost records).
    """
    rows, width = rings.shape
    present = rings >> np.uint64(32) != 0
    full = present[:, -1]
    clock = (rings & MASK32).astype(np.uint32)
    step = (clock[:, 1:] - clock[:, :-1]).view(np.int32)
    step = np.where(present[:, 1:] & present[:, :-1], step, np.int32(0))
    shift = np.zeros(rows, dtype=np.int64)
    if width > 1:
        seam = np.argmin(step, axis=1)
        falls = step[np.arange(rows), seam] < 0
        shift = np.where(full & falls, seam + 1, 0)
    prefix = np.where(present.any(axis=1), width - np.argmax(present[:, ::-1], axis=1), 0)
    prefix = np.where(full, width, prefix)
    row, column = np.nonzero(present)
    order = (column - shift[row]) % width
    return row, order, rings[row, column], prefix
