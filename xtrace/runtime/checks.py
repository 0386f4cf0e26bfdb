"""What must hold before a traced kernel's time means anything: same outputs, complete and ordered records.

The facts are computed here from the raw bytes with array arithmetic, independently of :mod:`xtrace.trace`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from xtrace.runtime.buffers import TraceBytes
from xtrace.runtime.device import Device

__all__ = ["OutputCheck", "Region", "TraceFacts", "check_outputs", "trace_facts"]

Region = tuple[int, int]
"""Device address and size in bytes."""
POISON = 0xFF  # NaN in every floating point format, -1 in every integer format


@dataclass(frozen=True)
class OutputCheck:
    """``bit_identical`` is None when the original kernel itself does not repeat its bits."""

    bit_identical: bool | None
    original_repeats: bool
    changed_bytes: int  # of the worst traced run, against the original's first run
    poison_left: bool  # an output region stayed wholly unwritten


def check_outputs(
    device: Device,
    originals: Sequence[Callable[[], Sequence[Region]]],
    traced: Callable[[], Sequence[Region]],
    poison: Callable[[], Sequence[Region]],
    *,
    repeats: int = 3,
    timeout_s: float = 60.0,
) -> OutputCheck:
    """Compare outputs bit for bit: the runs of ``originals`` among each other, then ``repeats`` traced runs.

    A run enqueues one launch on the same inputs and returns the regions that hold its outputs; ``poison`` returns the
    regions to fill beforehand, so that a kernel that writes nothing cannot pass.
    """

    def outputs(run: Callable[[], Sequence[Region]]) -> list[bytes]:
        for address, size in poison():
            device.fill(address, size, POISON)
        regions = run()
        device.synchronize(timeout_s)
        return [device.download(address, size) for address, size in regions]

    first = outputs(originals[0])
    repeats_itself = all(outputs(run) == first for run in originals[1:])
    worst = 0
    for _ in range(max(repeats, 1)):
        found = outputs(traced)
        if found != first:
            worst = max(worst, sum(_differing(a, b) for a, b in zip(first, found, strict=True)))
    return OutputCheck(
        bit_identical=(worst == 0) if repeats_itself else None,
        original_repeats=repeats_itself,
        changed_bytes=worst,
        poison_left=any(part == bytes([POISON]) * len(part) for part in first),
    )


def _differing(a: bytes, b: bytes) -> int:
    if len(a) != len(b):
        return max(len(a), len(b))
    return int(np.count_nonzero(np.frombuffer(a, np.uint8) != np.frombuffer(b, np.uint8)))


@dataclass(frozen=True)
class TraceFacts:
    """Totals over all warps of a launch."""

    warps: int  # that reached their exit
    warps_unfinished: int  # left records but never reached an exit
    emitted: int
    written: int
    monotonic: bool  # the records of a warp never run backwards
    bracketed: bool  # ... and lie between its entry and its exit clock
    per_site: Mapping[int, int]
    per_cta: npt.NDArray[np.int64]  # records by CTA (row) and site id (column)
    unknown_sites: int  # records whose site id the map does not have
    wrapped: int  # warps that emitted more than their ring holds

    @property
    def lost(self) -> int:
        return self.emitted - self.written


def trace_facts(trace: TraceBytes, entry: Mapping[str, Any], warps_per_cta: int = 1) -> TraceFacts:
    """Facts of one launch; ``entry`` is the kernel's entry of the trace map. Clocks compare modulo 2^32.

    Entry and exit sites have no id: they leave their marks in the header.
    """
    headers = trace.headers()
    ran = headers["ran"]
    emitted = headers["emitted_bytes"].astype(np.int64) // 8
    capacity = trace.slot.ring // 8
    known = [int(s["id"]) for s in entry["sites"] if s["id"] is not None]
    ids = max(known, default=0)
    per_cta = np.zeros((-(-trace.slots // warps_per_cta), ids + 1), np.int64)
    written = unknown = 0
    monotonic = bracketed = True
    words = trace.rows()[:, : trace.slot.ring]
    step = max(1, (1 << 24) // max(capacity, 1))  # bounds the temporaries to some hundred MB
    for low in range(0, trace.slots, step):
        part = slice(low, low + step)
        count = np.minimum(emitted[part], capacity)
        width = int(count.max(initial=0))
        if not width:
            continue
        pairs = np.ascontiguousarray(words[part, : 8 * width]).view("<u4").reshape(-1, width, 2)
        clock, site = pairs[:, :, 0], pairs[:, :, 1]
        valid = (np.arange(width)[None, :] < count[:, None]) & (site != 0)
        written += int(np.count_nonzero(valid))
        found = site[valid]
        unknown += int(np.count_nonzero(found > ids))
        cta = np.broadcast_to((np.arange(low, low + len(count)) // warps_per_cta)[:, None], valid.shape)[valid]
        first = int(cta[0]) if len(cta) else 0
        cells = np.bincount(((cta - first) * (ids + 1) + found)[found <= ids])
        per_cta.reshape(-1)[first * (ids + 1) : first * (ids + 1) + len(cells)] += cells
        whole = emitted[part] <= capacity  # the order of a ring that wrapped is not the order of its bytes
        # Unwritten records (site 0) inside the range would break the chain: they count as lost already.
        forward = np.diff(clock, axis=1).view(np.int32) >= 0
        monotonic &= bool((forward | ~(valid[:, 1:] & valid[:, :-1]) | ~whole[:, None]).all())
        bracketed &= _inside(headers[part], clock, valid, count, whole)
    per_site = per_cta.sum(axis=0)
    return TraceFacts(
        warps=int(np.count_nonzero(ran)),
        warps_unfinished=int(np.count_nonzero(~ran & (trace.rows()[:, :8] != 0).any(axis=1))),
        emitted=int(emitted.sum()),
        written=written,
        monotonic=monotonic,
        bracketed=bracketed,
        per_site={n: int(per_site[n]) for n in known},
        per_cta=per_cta,
        unknown_sites=unknown,
        wrapped=int(np.count_nonzero(emitted > capacity)),
    )


def _inside(headers: Any, clock: Any, valid: Any, count: Any, whole: Any) -> bool:
    """First record not before the entry clock, last record not after the exit clock."""
    some = (count > 0) & whole & valid[:, 0]
    entry = headers["clock_entry"].astype(np.uint32)
    after_entry = (clock[:, 0] - entry).view(np.int32) >= 0
    last = np.take_along_axis(clock, np.maximum(count - 1, 0)[:, None], axis=1)[:, 0]
    before_exit = (headers["clock_exit"].astype(np.uint32) - last).view(np.int32) >= 0
    return bool((after_entry | ~some).all() and (before_exit | ~some).all())
