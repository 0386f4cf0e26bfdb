"""Trace buffer to tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from xtrace.errors import BadInput
from xtrace.trace.buffer import Records, read_records
from xtrace.trace.clocks import TimeAxis, Unwrapped, fit, unwrap
from xtrace.trace.derived import expand
from xtrace.trace.headers import Headers, read_headers, regions
from xtrace.trace.layout import KernelLayout, cta_shape, kernel_layout
from xtrace.trace.packets import count_events
from xtrace.trace.tables import WARP_COLUMNS, TraceTables, constant, event_table

__all__ = ["decode"]

MAX_CTAS = 1 << 31


def decode(
    buffer: bytes | bytearray | memoryview,
    map: Mapping[str, Any],
    kernel: str,
    *,
    grid: Sequence[int] | int | None = None,
    block: Sequence[int] | int | None = None,
) -> TraceTables:
    """Decode what one launch of ``kernel`` left in its trace buffer.

    Parameters
    ----------
    buffer
        The whole buffer, spill-over slot included. Not copied.
    map
        Trace map (``xtrace/map/2`` to ``/6``) of the traced image.
    kernel
        Mangled or demangled name.
    grid, block
        Launch shape. Without ``block`` (and without one in the map) CTAs cannot be told apart: every
        warp is then its own CTA, and a warning says so. Without ``grid`` warps that never ran cannot be
        counted.

    Returns
    -------
    TraceTables
        ``summary`` holds ``emitted, written, dropped`` (= ``overwritten`` by the ring + ``holes`` not found where
        they should be + ``ambiguous`` ones whose short clocks do not tell their time; see
        ``xtrace.trace.buffer.Records``), ``headless_warps, headless_records`` (warps that left something but no
        header, not part of the tables, and the events of what looks like a packet there),
        ``warps_ran, warps_unfinished, warps_never_ran, warps_without_slot, spill_over``,
        ``damaged_slots, unknown_sites`` (packets whose tag the map does not have: holes),
        ``sample`` (the rule, None: every warp is traced) and ``warps_not_sampled``; no count is ever scaled up;
        ``non_monotonic``, the time axis (``origin_ns, time_step_ns, time_error_ns, ns_per_cycle,
        time_method``), ``complete`` (nothing lost, damaged or unfinished) and ``warnings``, one sentence each.

    Raises
    ------
    BadInput
        XT8101, XT8102, XT8104, XT8105 map or launch shape, XT8201 buffer size, XT8202 no warp left a
        header, XT8203 warps ran but no record was written or found: an empty trace is an error, not a low overhead;
        XT8204 a warp that the sampling rule does not take left a trace.
    Unsupported
        XT8103 the image was spliced by an older version.
    """
    layout = kernel_layout(map, kernel)
    shape = layout.block if block is None else cta_shape(block, "block", 1024)
    ctas = None if grid is None else _volume(cta_shape(grid, "grid", MAX_CTAS))
    warps_per_cta = 1 if shape is None else (_volume(shape) + 31) // 32
    slots, header_rows = regions(buffer, layout)
    tags = layout.tags
    headers = read_headers(header_rows, layout.stripe, short=tags.dense)
    lost = np.setdiff1d(np.flatnonzero(slots[:-1, :4].any(axis=1)), headers.used, assume_unique=True)
    if shape is not None:
        _only_sampled(layout, np.union1d(headers.used, lost), warps_per_cta)
    records = read_records(slots, headers, layout, tags)
    if records.contradictory.any():
        headers = headers.without(records.contradictory)
        records = read_records(slots, headers, layout, tags)
    if not len(headers.slot):
        expected = None if ctas is None or shape is None else layout.sample.warps(ctas, warps_per_cta)
        raise _no_headers(layout, headers, len(lost), expected)
    if not len(records.site) and layout.sites:
        raise _no_records(layout, headers)
    recorded, shown = records, expand(records, headers, layout.values, layout.derived)
    records, headers = shown.records, shown.headers
    unwrapped = unwrap(records, headers)
    axis = fit(headers)
    warps = _warp_table(layout, headers, records, axis, warps_per_cta)
    events = event_table(
        layout,
        warps,
        warp=records.warp,
        seq=records.seq,
        site=records.site,
        clock=unwrapped.clock,
        t_ns=axis.at(unwrapped.clock, records.warp),
        address=records.address,
    )
    summary = _summary(layout, headers, records, unwrapped, axis, warps)
    if layout.derived:
        summary |= {"recorded": len(recorded.site), "derived": shown.derived, "derived_unknown": shown.unknown}
    summary["headless_warps"] = len(lost)
    summary["headless_records"] = count_events(slots, lost, layout.ring, tags, layout.stripe)
    summary["slots"] = len(slots) - 1
    summary["spill_over"] = bool(slots[-1].any() or header_rows[-1].any())
    summary["warps_per_cta"] = None if shape is None else warps_per_cta
    summary["grid"] = None if grid is None else list(cta_shape(grid, "grid", MAX_CTAS))
    summary["block"] = None if shape is None else list(shape)
    summary |= _expected(layout, ctas, shape, warps_per_cta, len(slots) - 1, len(headers.used) + len(lost))
    _judge(summary)
    return TraceTables(events, warps, summary)


def _only_sampled(layout: KernelLayout, used: npt.NDArray[Any], warps_per_cta: int) -> None:
    """A warp that is not sampled runs untouched code: something in its slot means that nothing here can be believed."""
    stray = used[~layout.sample.takes(used // warps_per_cta, used % warps_per_cta)]
    if len(stray):
        cta, warp = divmod(int(stray[0]), warps_per_cta)
        raise BadInput(
            "XT8204",
            f"warp {warp} of CTA {cta} left a trace, which the rule {layout.sample} does not take ({len(stray)} such)",
            where=layout.name,
            hint="the map belongs to another image, the block size is another, or the buffer was not zeroed",
        )


def _expected(
    layout: KernelLayout,
    ctas: int | None,
    shape: tuple[int, int, int] | None,
    warps_per_cta: int,
    slots: int,
    seen: int,
) -> dict[str, Any]:
    """What the launch's shape says about the number of warps; None where it is not known."""
    facts: dict[str, Any] = {"sample": str(layout.sample) or None}
    names = ("warps_expected", "warps_not_sampled", "warps_without_slot", "warps_never_ran")
    if ctas is None or shape is None:
        return facts | dict.fromkeys(names)
    launched = ctas * warps_per_cta
    expected = layout.sample.warps(ctas, warps_per_cta)
    whole, rest = divmod(min(launched, slots), warps_per_cta)
    with_slot = layout.sample.warps(whole, warps_per_cta) + layout.sample.warps_of(whole, rest)
    values = (expected, launched - expected, expected - with_slot, max(0, with_slot - seen))
    return facts | dict(zip(names, values, strict=True))


def _no_headers(layout: KernelLayout, headers: Headers, lost: int, expected: int | None) -> BadInput:
    if expected == 0:
        hint = "sample more often, or with another offset"
        return BadInput(
            "XT8202", f"the rule {layout.sample} takes no warp of this launch", where=layout.name, hint=hint
        )
    if len(headers.damaged):
        what = f"all {len(headers.damaged)} warp headers in the buffer are damaged"
    elif lost:
        what = f"{lost} warps wrote records but none of them reached its exit"
    else:
        what = "no record was written: no warp of this kernel left a header in the buffer"
    hint = "the kernel did not run to its end, its buffer address was not patched, or the buffer is another kernel's"
    return BadInput("XT8202", what, where=layout.name, hint=hint)


def _no_records(layout: KernelLayout, headers: Headers) -> BadInput:
    emitted = int(headers.emitted.sum())
    if emitted:
        what = f"none of {emitted} emitted records is in the rings"
        hint = "the map belongs to another image, the buffer is damaged, or the rings are smaller than a packet"
    else:
        what = f"no record was written: {len(headers.slot)} warps ran, none passed any of {len(layout.sites)} sites"
        hint = "choose other probes, or check that this launch takes the traced path"
    return BadInput("XT8203", what, where=layout.name, hint=hint)


def _volume(shape: tuple[int, int, int]) -> int:
    return shape[0] * shape[1] * shape[2]


def _warp_table(
    layout: KernelLayout, headers: Headers, records: Records, axis: TimeAxis, warps_per_cta: int
) -> pd.DataFrame:
    n = len(headers.slot)
    every = np.arange(n)
    return pd.DataFrame(
        {
            "kernel": constant(layout.name, n),
            "slot": headers.slot.astype(np.int32),
            "cta": (headers.slot // warps_per_cta).astype(np.int32),
            "warp": (headers.slot % warps_per_cta).astype(np.int32),
            "sm": headers.sm,
            "t_entry_ns": axis.at(headers.clock_entry, every),
            "t_exit_ns": axis.at(headers.clock_exit, every),
            "clock_entry": headers.clock_entry,
            "clock_exit": headers.clock_exit,
            "emitted": headers.emitted,
            "written": records.written,
            "dropped": headers.emitted - records.written,
            "finished": np.ones(n, dtype=bool),  # part of the file format; only finished warps leave a header
        },
        columns=list(WARP_COLUMNS),
    )


def _summary(
    layout: KernelLayout,
    headers: Headers,
    records: Records,
    unwrapped: Unwrapped,
    axis: TimeAxis,
    warps: pd.DataFrame,
) -> dict[str, Any]:
    emitted, written = int(headers.emitted.sum()), len(records.site)
    return {
        "kernel": layout.name,
        "demangled": layout.demangled,
        "sites": len(layout.shown),
        **({"access_sites": layout.accesses} if layout.accesses else {}),
        "warps_ran": len(headers.slot),
        "warps_unfinished": 0,  # part of the file format; warps without an exit are counted as headless
        "ctas_ran": int(warps["cta"].nunique()),
        "sms": axis.sms,
        "emitted": emitted,
        "written": written,
        "dropped": emitted - written,
        "overwritten": int(records.overwritten.sum()),
        "holes": int(records.holes.sum()),
        "ambiguous": int(records.ambiguous.sum()),
        "unknown_sites": int(records.unknown.sum()),
        "damaged_slots": [int(s) for s in headers.damaged[:100]],
        "damaged": len(headers.damaged),
        "non_monotonic": int(unwrapped.violations.sum()),
        "non_monotonic_warps": int(np.count_nonzero(unwrapped.violations)),
        "long_silences": unwrapped.ambiguous,
        "origin_ns": axis.origin_ns,
        "duration_ns": float(warps[["t_entry_ns", "t_exit_ns"]].to_numpy().max()),
        "time_step_ns": axis.step_ns,
        "time_error_ns": axis.error_bound_ns,
        "ns_per_cycle": float(np.median(axis.slope)),
        "rate_known": axis.rate_known and not headers.rate_assumed,
        "time_method": "per SM" if not axis.sms_per_warp else f"per warp on {axis.sms_per_warp} of {axis.sms} SMs",
    }


def _judge(summary: dict[str, Any]) -> None:
    """Fill in ``warnings`` and ``complete``."""
    s = summary
    losses = [
        (s["overwritten"], "{} records were overwritten: the ring is too small for this launch"),
        (s["holes"], "{} records were counted but are not where they were written"),
        (
            s["ambiguous"],
            "{} records were left out: their packets took 65,536 cycles or more, and short clocks do not tell times "
            "then; splice with --clocks full",
        ),
        (s["headless_warps"], "{} warps wrote records but no header: they never reached their exit and are not shown"),
        (s["damaged"], "{} slots hold a damaged header and were left out"),
        (s["unknown_sites"], "{} packets have a tag that the map does not know: wrong map, or damaged buffer"),
        (s.get("derived_unknown", 0), "{} addresses are unknown: the registers that they follow from were overwritten"),
        (s["non_monotonic"], "{} records run backwards in time"),
        (s["warps_without_slot"] or 0, "{} warps had no slot in the buffer and left no trace"),
        (s["warps_never_ran"] or 0, "{} warps of the launch left no header"),
    ]
    warnings = [text.format(f"{count:,}") for count, text in losses if count]
    if s["spill_over"] and not s["warps_without_slot"]:
        warnings.append("some warps had no slot in the buffer and left no trace: the launch is larger than the buffer")
    s["complete"] = not warnings
    if s["long_silences"]:
        warnings.append(f"{s['long_silences']} warps are silent for more than 2**32 cycles: times there are uncertain")
    if not s["rate_known"]:
        warnings.append("the SM clock's rate is not known from this launch: a usual one is assumed")
    if s["warps_per_cta"] is None:
        warnings.append("the block size is unknown: every warp is shown as a CTA of its own")
    s["warnings"] = warnings
