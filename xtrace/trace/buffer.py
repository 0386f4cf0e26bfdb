"""The rings of a launch to records, with exact counts of what is missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from xtrace.trace.headers import MASK32, Headers
from xtrace.trace.layout import KernelLayout
from xtrace.trace.packets import read_events
from xtrace.trace.tags import QUAD, Tags

__all__ = ["Records", "read_records"]

Array = npt.NDArray[Any]
_ALL = 1 << 62


@dataclass(frozen=True)
class Records:
    """Surviving records, ordered by warp and sequence number; then counts, one element per warp of the headers.

    The last record of a warp has the sequence number ``emitted - 1``. Counting back from there, each empty quad counts
    as one lost record (it held at least that); whatever else a ring that did not wrap lacks is counted at its first
    gap. ``emitted = written + overwritten + holes + ambiguous``. Where a ring both wrapped and has gaps, ``holes`` is
    the least number of events that the gaps can have held, and all other missing ones count as overwritten.
    ``ambiguous`` ones are there, with a number, but nobody knows their time.
    """

    warp: Array  # index into Headers
    seq: Array
    clock_lo: Array
    site: Array
    address: Array
    written: Array
    overwritten: Array
    holes: Array
    ambiguous: Array
    unknown: Array  # places with a tag that the map does not know
    contradictory: Array  # warps with more in their ring than their header says they emitted; nothing is read of them


def read_records(slots: Array, headers: Headers, layout: KernelLayout, tags: Tags) -> Records:
    """Every record that survived, in the order in which its warp emitted it."""
    found = read_events(
        slots,
        headers.slot,
        headers.quads,
        headers.emitted,
        headers.clock_exit & MASK32,
        ring=layout.ring,
        slack=layout.slack,
        tags=tags,
    )
    missing = headers.emitted - found.written - found.ambiguous
    wrapped = headers.quads * QUAD > layout.ring
    holes = np.where(wrapped, np.minimum(missing, found.gaps), missing)
    in_first_part = (found.gaps > 0)[found.warp] & (found.gaps_after == found.gaps[found.warp])
    behind = np.where(in_first_part & ~wrapped[found.warp], _ALL, found.gaps_after)
    behind = np.minimum(behind, missing[found.warp]) + found.ambiguous_after
    ends = np.cumsum(found.written)
    seq = np.arange(len(found.warp), dtype=np.int64) + (headers.emitted - ends)[found.warp] - behind
    return Records(
        warp=found.warp,
        seq=seq,
        clock_lo=found.clock_lo.astype(np.int64),
        site=found.site,
        address=found.address,
        written=found.written,
        overwritten=missing - holes,
        holes=holes,
        ambiguous=found.ambiguous,
        unknown=found.unknown,
        contradictory=found.contradictory,
    )
