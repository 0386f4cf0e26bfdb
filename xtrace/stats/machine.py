"""Is the machine fit to be timed? Facts that the harness recorded, and the control that it ran."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from xtrace.stats.intervals import equivalence
from xtrace.stats.rule import Rule
from xtrace.stats.samples import CellSummary

__all__ = ["is_simulated", "unfit_machine"]

_MACHINE = {
    "other_processes": "other processes used the GPU",
    "ecc_errors": "memory errors (ECC) were counted",
    "xid": "the driver reported a fault (XID)",
}
_ONE_MACHINE = {"uuid": "GPUs", "driver": "drivers", "clocks": "clock policies"}


def is_simulated(document: Mapping[str, Any]) -> bool:
    """Whether a document's times are make-believe (:mod:`xtrace.runtime.simulated_machine`)."""
    return bool((document.get("provenance") or {}).get("driver") == "simulated")


def unfit_machine(summary: CellSummary, rule: Rule) -> Iterable[str]:
    """Why the times of a cell cannot be trusted."""
    control = summary.control
    if control is None:
        yield "no A/A' control"
    elif not equivalence(control.thetas, math.log1p(rule.control_margin), rule.control_alpha).holds:
        yield (
            f"A/A' control: two loads of the original are not shown to be within +-{100 * rule.control_margin:g} % "
            f"({control.percent:+.2f} %, {control.low_percent:+.2f} to {control.high_percent:+.2f} %)"
        )
    elif summary.overhead is not None and control.processes < summary.overhead.processes:
        yield f"only {control.processes} of {summary.overhead.processes} processes ran the A/A' control"
    documents = summary.cell.documents
    if any(is_simulated(d) for d in documents):
        yield "the device is simulated: its times are make-believe"
    for key, what in _MACHINE.items():
        count = sum(1 for d in documents if (d.get("machine") or {}).get(key))
        if count:
            yield f"{what} ({count} of {len(documents)} processes)"
    for key, what in _ONE_MACHINE.items():
        found = {str(v) for d in documents if (v := (d.get("provenance") or {}).get(key)) is not None}
        if len(found) > 1:
            yield f"processes of {len(found)} {what} in one cell"
    if summary.voided > rule.max_voided * summary.blocks:
        yield f"{summary.voided} of {summary.blocks} blocks voided by machine facts"
