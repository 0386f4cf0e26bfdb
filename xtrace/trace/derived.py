"""Accesses whose address was not recorded, but follows: records of registers and of other accesses to rows of a trace.

A derived access was made together with the one that it follows from, its leader, and shows the leader's clock. Its
address is the leader's, plus a constant, plus multiples (modulo 2**64) of words that the same warp recorded before,
each as it was recorded last. Where that record is gone from the ring, or something is missing between it and the
leader, the address is unknown: no row, but counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from xtrace.trace.buffer import Records
from xtrace.trace.headers import Headers
from xtrace.trace.terms import Derived, Term

__all__ = ["Shown", "expand"]

Array = npt.NDArray[Any]
_M64 = (1 << 64) - 1
_SIGN = np.uint64(1 << 31)


@dataclass(frozen=True)
class Shown:
    """Records as they are shown: without those of values, with derived accesses behind their leaders.

    Counts are of what is shown, so that still ``emitted = written + dropped``; what went with a dropped record is not
    counted.
    """

    records: Records
    headers: Headers
    derived: int
    unknown: int  # accesses whose address cannot be derived, though their leader's record is there


def expand(records: Records, headers: Headers, values: frozenset[int], derived: tuple[Derived, ...]) -> Shown:
    """``values`` are the sites of registers that are recorded for derived addresses alone."""
    if not derived and not values:
        return Shown(records, headers, 0, 0)
    site = records.site
    rows = np.arange(len(site))
    plain = rows[~np.isin(site, list(values))]
    source, number, address = [plain], [site[plain]], [records.address[plain]]
    latest: dict[tuple[int, int], tuple[Array, Array]] = {}
    unknown = 0
    for item in derived:
        leaders = rows[site == item.leader]
        made = records.address[leaders] != 0
        total = records.address[leaders] + np.uint64(item.offset & _M64)
        known = np.ones(len(leaders), bool)
        for term in item.terms:
            key = item.leader, term.site
            if key not in latest:
                latest[key] = _latest(records, rows[site == term.site], leaders)
            value, there = latest[key]
            known &= there
            total += _part(value, term) * np.uint64(term.times & _M64)
        kept = known | ~made
        unknown += int(np.count_nonzero(~kept))
        source.append(leaders[kept])
        number.append(np.full(int(kept.sum()), item.site, site.dtype))
        address.append(np.where(made, total, np.uint64(0))[kept])
    return _in_order(records, headers, np.concatenate(source), np.concatenate(number), np.concatenate(address), unknown)


def _latest(records: Records, values: Array, leaders: Array) -> tuple[Array, Array]:
    """What was recorded last before each leader in its warp, and whether that is known."""
    if not len(values):
        return np.zeros(len(leaders), np.uint64), np.zeros(len(leaders), bool)
    place = np.searchsorted(values, leaders) - 1
    row = values[np.maximum(place, 0)]
    known = (place >= 0) & (records.warp[row] == records.warp[leaders])
    known &= records.seq[leaders] - records.seq[row] == leaders - row  # nothing is missing in between
    return records.address[row], known


def _part(value: Array, term: Term) -> Array:
    if term.part == "pair":
        return value
    word = value >> np.uint64(32) if term.part == "high" else value & np.uint64(0xFFFFFFFF)
    return (word ^ _SIGN) - _SIGN if term.signed else word


def _in_order(records: Records, headers: Headers, source: Array, number: Array, address: Array, unknown: int) -> Shown:
    """Rows in the order of their records; sequence numbers keep every gap."""
    order = np.argsort(source, kind="stable")
    source, number, address = source[order], number[order], address[order]
    count = np.bincount(source, minlength=len(records.site))
    more = np.cumsum(count - 1) - (count - 1)  # rows in front of a record beyond the records there
    extra = np.bincount(records.warp, weights=count - 1, minlength=len(headers.emitted)).astype(np.int64)
    since = np.cumsum(extra) - extra  # of the warps before
    first = np.cumsum(count) - count
    seq = records.seq + more - since[records.warp]
    shown = replace(
        records,
        warp=records.warp[source],
        seq=seq[source] + np.arange(len(source)) - first[source],
        clock_lo=records.clock_lo[source],
        site=number,
        address=address,
        written=records.written + extra,
    )
    derived = len(source) - int(np.count_nonzero(count))
    return Shown(shown, replace(headers, emitted=headers.emitted + extra), derived, unknown)
