"""What must hold before a traced kernel's time means anything: same outputs, complete and ordered records.

The packets are read by the decoder's own core (:mod:`xtrace.trace.packets`), some hundred MB at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from xtrace.runtime.buffers import TraceBytes
from xtrace.runtime.device import Device
from xtrace.sampling import Sampling
from xtrace.trace.mapped_packets import packets
from xtrace.trace.packets import Events, chunks, plausible, read_events
from xtrace.trace.tags import QUAD, Tags

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
    unknown_sites: int  # packets whose tag the map does not have; their records are lost
    wrapped: int  # warps that emitted more than their ring holds
    stray: int = 0  # warps with a header that the map's sampling rule does not take
    ambiguous: int = 0  # records whose time short clocks do not tell

    @property
    def lost(self) -> int:
        """Records that are not in the trace, ambiguous ones included."""
        return self.emitted - self.written


def trace_facts(trace: TraceBytes, entry: Mapping[str, Any], warps_per_cta: int = 1) -> TraceFacts:
    """Facts of one launch; ``entry`` is the kernel's entry of the trace map. Clocks compare modulo 2^32.

    Entry and exit sites have no id: they leave their marks in the header. A header that contradicts itself, or what its
    ring holds, makes all records of its warp lost.
    """
    headers = trace.headers()
    ran = headers["ran"]
    emitted = headers["events"].astype(np.int64)
    used = headers["emitted_bytes"].astype(np.int64)
    known = [int(s["id"]) for s in entry["sites"] if s["id"] is not None]
    tags = Tags.of(packets(entry, known), trace.slot.stripe)
    quads = np.where((used % QUAD == 0) & plausible(emitted, used // QUAD, short=tags.dense), used // QUAD, 0)
    ids = max(known, default=0)
    per_cta = np.zeros((-(-trace.slots // warps_per_cta), ids + 1), np.int64)
    written = unknown = ambiguous = 0
    monotonic = bracketed = True
    rows = trace.rows()
    slots = rows.view("<u4")
    for low, high in chunks(quads, trace.slot.ring):
        part = slice(low, high)
        found = read_events(
            slots,
            np.arange(low, high),
            quads[part],
            emitted[part],
            headers["clock_exit"][part] & 0xFFFFFFFF,
            ring=trace.slot.ring,
            slack=trace.slot.slack,
            tags=tags,
        )
        written += len(found.warp)
        unknown += int(found.unknown.sum())
        ambiguous += int(found.ambiguous.sum())
        cta = (found.warp + low) // warps_per_cta
        first = low // warps_per_cta
        cells = np.bincount((cta - first) * (ids + 1) + found.site)
        per_cta.reshape(-1)[first * (ids + 1) : first * (ids + 1) + len(cells)] += cells
        forward = np.diff(found.clock_lo).view(np.int32) >= 0
        monotonic &= bool((forward | (np.diff(found.warp) != 0)).all())
        bracketed &= _inside(headers[part], found, used[part] <= trace.slot.ring)
    per_site = per_cta.sum(axis=0)
    slots_that_ran = np.flatnonzero(ran)
    taken = Sampling.of_kernel(entry).takes(slots_that_ran // warps_per_cta, slots_that_ran % warps_per_cta)
    return TraceFacts(
        warps=int(np.count_nonzero(ran)),
        warps_unfinished=int(np.count_nonzero(~ran & (rows[:, :QUAD] != 0).any(axis=1))),
        emitted=int(emitted.sum()),
        written=written,
        monotonic=monotonic,
        bracketed=bracketed,
        per_site={n: int(per_site[n]) for n in known},
        per_cta=per_cta,
        unknown_sites=unknown,
        wrapped=int(np.count_nonzero(used > trace.slot.ring)),
        stray=int(np.count_nonzero(~taken)),
        ambiguous=ambiguous,
    )


def _inside(headers: Any, found: Events, whole: Any) -> bool:
    """First record not before the entry clock (where the ring still has it), last record not after the exit clock."""
    some = np.flatnonzero(found.written)
    ends = np.cumsum(found.written)[some]
    first, last = found.clock_lo[ends - found.written[some]], found.clock_lo[ends - 1]
    after_entry = (first - headers["clock_entry"][some].astype(np.uint32)).view(np.int32) >= 0
    before_exit = (headers["clock_exit"][some].astype(np.uint32) - last).view(np.int32) >= 0
    return bool((after_entry | ~whole[some]).all() and before_exit.all())
