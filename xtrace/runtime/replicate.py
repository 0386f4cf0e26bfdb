"""One process replicate of one cell: checks first, then the paired timing, then the raw sample document.

The document's schema is ``xtrace/overhead-raw/1`` (docs/decisions/0001). Everything that knows about workloads comes in
as a :class:`Case`; this module only knows arms, buffers and outputs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from xtrace.runtime.buffers import TraceBuffer, TraceBytes
from xtrace.runtime.checks import Region, TraceFacts, check_outputs, trace_facts
from xtrace.runtime.device import Device, MachineState
from xtrace.runtime.expect import Explanation
from xtrace.runtime.patching import kernel_entry
from xtrace.runtime.timing import Arm, PairedOptions, PairedResult, run_paired

__all__ = ["SCHEMA", "Case", "CheckReport", "Instrumented", "check_cell", "document", "machine_facts", "measure"]

SCHEMA = "xtrace/overhead-raw/1"
INTERVAL = "kernel (CUDA events around one launch)"


class Case(Protocol):
    """A workload at one shape, with its original image loaded twice."""

    original: Arm
    again: Arm
    interval: str  # what the timed interval covers

    def outputs(self, arm: Arm) -> Sequence[Region]:
        """Where the outputs of ``arm``'s last launch on buffer set 0 stand."""
        ...

    def poison(self) -> Sequence[Region]:
        """Regions to overwrite before a checked launch."""
        ...


@dataclass
class Instrumented:
    """The instrumented image of a cell, loaded. Without buffers (other tracers) only outputs are checked.

    ``explain(kernel, facts)`` says what record counts are expected; ``warps(kernel)`` how many warps the launch has,
    None if it is decided at run time; ``warps_per_cta`` splits slots into CTAs.
    """

    arm: Arm
    close: Callable[[], None]
    buffers: Mapping[str, TraceBuffer] = field(default_factory=dict)
    trace_map: Mapping[str, Any] = field(default_factory=dict)
    warps_per_cta: int = 1
    warps: int | None = None
    explain: Callable[[Mapping[str, Any], TraceFacts], Explanation] | None = None


@dataclass
class CheckReport:
    """What goes into ``checks`` of the document, and the trace of each kernel that ran."""

    values: dict[str, Any]
    traces: dict[str, TraceBytes]

    @property
    def failures(self) -> list[str]:
        """Names of the checks that do not hold (``None`` is: could not be decided)."""
        must_hold = (
            "bit_identical",
            "outputs_written",
            "monotonic",
            "guards_intact",
            "original_silent",
            "all_warps_had_slots",
        )
        out = [name for name in must_hold if self.values.get(name) is False]
        out += [
            name
            for name in ("records_lost", "warps_unfinished", "warps_stray", "unknown_sites", "ctas_wrong")
            if self.values.get(name)
        ]
        if "warps_seen" in self.values and not self.values["warps_seen"]:
            out.append("warps_seen")
        for expected, seen in (("warps_expected", "warps_seen"), ("records_expected", "records_emitted")):
            if self.values.get(expected) not in (None, self.values.get(seen)):
                out.append(expected)
        return out


def check_cell(
    device: Device, case: Case, traced: Instrumented, *, repeats: int = 3, full: bool = True, timeout_s: float = 60.0
) -> CheckReport:
    """Outputs bit for bit, then one traced launch read back: records complete, ordered, inside the buffer.

    ``full=False`` is the short form for further processes of a cell that passed: one comparison, headers only. It
    leaves the record counts out, so that they are not mixed up with those of a full check.
    """
    silent = True
    runs = 0

    def outputs(arm: Arm) -> Callable[[], Sequence[Region]]:
        def run() -> Sequence[Region]:
            nonlocal silent, runs
            if arm is traced.arm:
                silent = silent and (runs > 0 or all(buffer.untouched() for buffer in traced.buffers.values()))
                runs += 1
            arm.launch(0)
            return case.outputs(arm)

        return run

    for buffer in traced.buffers.values():
        buffer.zero()
    originals = [case.original, case.again, case.original] if full else [case.original]
    compared = check_outputs(
        device,
        [outputs(arm) for arm in originals],
        outputs(traced.arm),
        case.poison,
        repeats=repeats if full else 1,
        timeout_s=timeout_s,
    )
    values: dict[str, Any] = {
        "bit_identical": compared.bit_identical,
        "original_repeats": compared.original_repeats if full else None,
        "changed_bytes": compared.changed_bytes,
        "outputs_written": not compared.poison_left,
    }
    traces: dict[str, TraceBytes] = {}
    if traced.buffers:
        values["original_silent"] = silent
        for buffer in traced.buffers.values():
            buffer.zero()
        traced.arm.launch(0)
        device.synchronize(timeout_s)
        values["guards_intact"] = all(b.guards_intact() for b in traced.buffers.values())
        if not full:
            return CheckReport({**values, **_headers_only(traced)}, traces)
        traces = {name: b.read() for name, b in traced.buffers.items() if values["guards_intact"] and not b.untouched()}
        values.update(_records(traced, traces))
    return CheckReport(values, traces)


def _headers_only(traced: Instrumented) -> dict[str, Any]:
    seen = [b.summary() for b in traced.buffers.values()]
    return {
        "warps_expected": traced.warps,
        "warps_seen": sum(s.warps for s in seen),
        "all_warps_had_slots": not any(s.spilled for s in seen),
        "records_lost": sum(s.overwritten for s in seen),
    }


def _records(traced: Instrumented, traces: Mapping[str, TraceBytes]) -> dict[str, Any]:
    facts = {
        name: trace_facts(trace, kernel_entry(traced.trace_map, name), traced.warps_per_cta)
        for name, trace in traces.items()
    }
    explained = {
        name: traced.explain(kernel_entry(traced.trace_map, name), f)
        for name, f in facts.items()
        if traced.explain is not None
    }
    every = list(facts.values())
    expected = [e.expected for e in explained.values()]
    known = [n for n in expected if n is not None]
    complete = traced.warps is not None and bool(expected) and len(known) == len(expected)
    warps, unfinished = sum(f.warps for f in every), sum(f.warps_unfinished for f in every)
    stray, ambiguous = sum(f.stray for f in every), sum(f.ambiguous for f in every)
    return {
        "kernels_seen": sorted(facts),
        "warps_expected": traced.warps,
        "warps_seen": warps,
        "warps_unfinished": unfinished,
        **({"warps_stray": stray} if stray else {}),
        "all_warps_had_slots": not any(t.spilled for t in traces.values()),
        # Entry and exit of a warp are its header: count them, so that a run that traced nothing cannot look right.
        "records_expected": sum(known) + 2 * (traced.warps or 0) if complete else None,
        "records_emitted": sum(f.emitted for f in every) + 2 * warps,
        "ring_records": sum(f.emitted for f in every),
        "records_lost": sum(f.lost for f in every),
        **({"records_ambiguous": ambiguous} if ambiguous else {}),  # of the lost ones
        "monotonic": all(f.monotonic for f in every),
        "bracketed": all(f.bracketed for f in every),
        "unknown_sites": sum(f.unknown_sites for f in every),
        "records_per_site": {name: {str(k): v for k, v in f.per_site.items()} for name, f in facts.items()},
        "record_rules": {name: {str(k): v for k, v in e.rules.items()} for name, e in explained.items()},
        "ctas_predicted": sum(e.ctas_predicted for e in explained.values()),
        "ctas_wrong": sum(e.ctas_wrong for e in explained.values()),
        "sites_unexplained": {name: list(e.unexplained) for name, e in explained.items()},
    }


def measure(
    device: Device,
    case: Case,
    traced: Instrumented,
    rng: random.Random,
    options: PairedOptions,
    extra: Mapping[str, Arm] | None = None,
) -> tuple[PairedResult, dict[str, Any]]:
    """The paired timing, and what must still hold afterwards. ``extra``: further arms by kind of block."""
    result = run_paired(device, case.original, case.again, traced.arm, rng, options, extra)
    after = {
        "guards_intact_after": all(b.guards_intact() for b in traced.buffers.values()),
        "late_samples": result.late,
        "warm_up_settled": result.warm_up_settled,
        "warm_up_launches": result.warm_up_launches,
        "host_us_per_sample": round(result.host_ns / 1000, 1),
    }
    return result, after


def machine_facts(before: MachineState, after: MachineState, clocks: str) -> dict[str, Any]:
    """Key ``machine`` of the document: what happened on the device besides the measurement, None where it is unknown.

    ``clocks`` is the policy that the operator declares; nothing is ever set here. ``ecc_errors`` counts uncorrected
    errors between the two readings, ``xid`` lists the driver's errors in that time.
    """
    known = before.ecc_errors is not None and after.ecc_errors is not None
    others = [n for n in (before.other_processes, after.other_processes) if n is not None]
    return {
        "other_processes": max(others) if others else None,
        "other_processes_before": before.other_processes,
        "other_processes_after": after.other_processes,
        "ecc_errors": (after.ecc_errors or 0) - (before.ecc_errors or 0) if known else None,
        "xid": None if after.xids is None else list(after.xids),
        "persistence": after.persistence,
        "clocks": {
            "policy": clocks,
            "application_mhz": after.application_mhz,
            "default_application_mhz": after.default_application_mhz,
            "max_mhz": after.max_mhz,
        },
    }


def document(
    cell: Mapping[str, Any],
    provenance: Mapping[str, Any],
    process: int,
    seed: int,
    interval: str,
    result: PairedResult | None,
    checks: Mapping[str, Any],
    **more: Any,
) -> dict[str, Any]:
    """The raw sample document; without a result (unsupported cell) it has no blocks."""
    return {
        "schema": SCHEMA,
        "cell": dict(cell),
        "provenance": dict(provenance),
        "process": process,
        "seed": seed,
        "interval": interval,
        "launches_per_sample": result.launches_per_sample if result else 1,
        "flush_bytes": result.flush_bytes if result else 0,
        "blocks": result.blocks if result else [],
        "checks": dict(checks),
        **more,
    }
