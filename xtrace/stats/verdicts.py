"""All cells of a measurement -> one verdict document (schema ``xtrace/gate/1``). Pure: documents in, document out.

The document holds everything that the text, Markdown and JUnit forms show. Percentages are of the original kernel's
time; null where a number does not exist (an interval without a bound, a cell without samples). The interval shown
(``low`` to ``high``) spans Student's and the exact one: it lies below the budget when, and only when, both do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from xtrace.errors import BadInput
from xtrace.stats.budgets import Budget, Budgets, CellName
from xtrace.stats.families import above_limit, holm, suite_mean
from xtrace.stats.gate import Decision, Verdict, decide, decide_change, worst
from xtrace.stats.machine import unfit_machine
from xtrace.stats.paired import Comparison, percent
from xtrace.stats.samples import Cell, CellSummary, group, summarise

__all__ = ["SCHEMA", "Selection", "gate_report", "name_of"]

SCHEMA = "xtrace/gate/1"
FAMILY_LEVEL = 0.05
SEED = 20  # of the suite's bootstrap


@dataclass(frozen=True, slots=True)
class Selection:
    """Which cells are gated. ``expected``: ``(workload, tracer, probes)`` that must be there."""

    tracer: str = "xtrace"
    kernel: str = "*"
    expected: tuple[tuple[str, str, str], ...] = ()

    def wants(self, names: Mapping[str, Any]) -> bool:
        return any(fnmatchcase(str(names.get(key, "")), self.kernel) for key in ("workload", "kernel"))

    def gates(self, names: Mapping[str, Any]) -> bool:
        return fnmatchcase(str(names.get("tracer", "")), self.tracer)


def name_of(names: Mapping[str, Any]) -> CellName:
    """What a budget can name of a cell."""
    workload, kernel, probes, gpu, tracer = (
        str(names.get(key) or "") for key in ("workload", "kernel", "probes", "device", "tracer")
    )
    return CellName(workload, kernel, probes, gpu, tracer)


def gate_report(
    documents: Sequence[Mapping[str, Any]], budgets: Budgets, selection: Selection, source: str
) -> dict[str, Any]:
    """Decide every selected cell.

    Parameters
    ----------
    documents
        Raw sample documents, also those that only say why a cell could not be measured.
    source
        Where they came from, for messages and the report.

    Raises
    ------
    BadInput
        XT7210 when nothing is left to decide, XT7211 when a cell has no budget; errors of :func:`group`.
    """
    samples = [d for d in documents if "unsupported" not in d]
    excuses = _excuses(d for d in documents if "unsupported" in d)
    cells = [cell for cell in group(samples) if selection.wants(cell.names)]
    gated, reported, changes, judged = [], [], [], []
    for cell in cells:
        excuse = excuses.get(_gap(cell.names)) or excuses.get((*_key(cell.names), ""), "")
        if not selection.gates(cell.names):
            summary = summarise(cell, budgets.rule.alpha)
            reported.append(_describe(summary) | {"notes": list(unfit_machine(summary, budgets.rule))})
            continue
        budget = budgets.find(name_of(cell.names))
        if budget is None:
            raise _no_budget(cell, budgets)
        rule = budgets.rule_for(budget)
        summary = summarise(cell, rule.alpha)
        decision = decide(summary, rule)
        if excuse and decision.verdict is Verdict.PASS:
            decision = decision.instead(Verdict.INCONCLUSIVE, [f"some processes gave no samples: {excuse}"])
        gated.append(_describe(summary) | _judgement(decision) | _budget(budget))
        judged.append(decision.verdict)
        if (change := decide_change(summary, rule, budgets.regression)) is not None:
            changes.append(_change(summary, change, budgets))
            judged.append(change.verdict)
    missing = list(_missing(excuses, selection, [*gated, *reported]))
    if not gated and not missing:
        raise _nothing(documents, cells, selection, source)
    judged += [Verdict.INCONCLUSIVE] * len(missing)
    _name_regressed(gated)
    return {
        "schema": SCHEMA,
        "verdict": str(worst(judged)),
        "source": source,
        "budgets": budgets.file or "--budget",
        "counts": {str(v): judged.count(v) for v in Verdict},
        "cells": gated + missing,
        "above_budget": [_label(c) for c in gated if c.get("above_budget")],
        "extension_due": [_label(c) for c in gated if c["extension_due"]],
        "changes": changes,
        "reported": reported,
        "suites": list(_suites([*gated, *reported])),
    }


def _key(names: Mapping[str, Any]) -> tuple[str, str, str]:
    return str(names.get("workload")), str(names.get("tracer")), str(names.get("probes"))


def _gap(names: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Whose samples are missing: on one device, or, where the run did not get to know its device, on any."""
    return *_key(names), str(names.get("device") or "")


def _label(cell: Mapping[str, Any]) -> str:
    return " / ".join(str(cell[key]) for key in ("workload", "tracer", "probes", "device") if cell.get(key))


def _excuses(documents: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str, str, str], str]:
    found: dict[tuple[str, str, str, str], str] = {}
    for document in documents:
        cell = document.get("cell")
        if isinstance(cell, Mapping):
            found.setdefault(_gap(cell), str(document["unsupported"]))
    return found


def _describe(summary: CellSummary) -> dict[str, Any]:
    """What was measured, without a judgement."""
    first = summary.cell.documents[0]
    provenance = first.get("provenance") or {}
    overhead, control = summary.overhead, summary.control
    extra = math.expm1(overhead.theta) * summary.median_a_ns if overhead else math.nan
    return {
        **summary.cell.names,
        "interval": str(first.get("interval", "")),
        "blocks": summary.blocks,
        "voided": summary.voided,
        "original_ns": _number(summary.median_a_ns),
        "traced_ns": _number(summary.median_b_ns),
        "extra_ns": _number(extra),
        "overhead": _comparison(overhead),
        "control": _comparison(control),
        "control_holds": bool(summary.control_test and summary.control_test.holds),
        "pad": _comparison(summary.pad),
        "provenance": {k: str(provenance[k]) for k in ("uuid", "driver", "clocks", "git", "date") if k in provenance},
    }


def _comparison(comparison: Comparison | None) -> dict[str, Any] | None:
    if comparison is None:
        return None
    student, exact = comparison.student, comparison.exact
    return {
        "processes": comparison.processes,
        "percent": _number(comparison.percent),
        "low": _number(percent(min(student.low, exact.low))),
        "high": _number(percent(max(student.high, exact.high))),
        "t_low": _number(percent(student.low)),
        "t_high": _number(percent(student.high)),
        "exact_low": _number(percent(exact.low)),
        "exact_high": _number(percent(exact.high)),
        "replicates": [_number(percent(theta)) for theta in comparison.thetas],
    }


def _number(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None


def _judgement(decision: Decision) -> dict[str, Any]:
    return {
        "verdict": str(decision.verdict),
        "reasons": list(decision.reasons),
        "flags": [str(flag) for flag in decision.flags],
        "extension_due": decision.extension_due,
        "opinions": {"t": str(decision.opinions[0]), "signed_rank": str(decision.opinions[1])},
        "declared": {"processes": decision.rule.processes, "extended": decision.rule.extended},
    }


def _budget(budget: Budget) -> dict[str, Any]:
    return {"budget": budget.percent, "budget_source": budget.source, "budget_why": budget.why}


def _change(summary: CellSummary, decision: Decision, budgets: Budgets) -> dict[str, Any]:
    return {
        **summary.cell.names,
        "limit": _number(percent(budgets.regression)),
        "old": _comparison(summary.old),
        "new": _comparison(summary.overhead),
        "change": _comparison(summary.change),
        **_judgement(decision),
    }


def _missing(
    excuses: Mapping[tuple[str, str, str, str], str], selection: Selection, present: Iterable[Mapping[str, Any]]
) -> Iterable[dict[str, Any]]:
    """Cells that should be decided and have no samples: they are open, never passed."""
    there = list(present)
    have = {_gap(cell) for cell in there} | {(*_key(cell), "") for cell in there}
    reasons = {(*cell, ""): "no samples" for cell in selection.expected if not any(g[:3] == cell for g in excuses)}
    reasons |= {gap: f"not measured: {why}" for gap, why in excuses.items()}
    for gap, reason in sorted(reasons.items()):
        workload, tracer, probes, device = gap
        names = {"workload": workload, "kernel": "", "tracer": tracer, "probes": probes}
        if gap in have or not selection.gates(names) or not selection.wants(names):
            continue
        yield {
            **names,
            "device": device,
            "overhead": None,
            "verdict": str(Verdict.INCONCLUSIVE),
            "reasons": [reason],
            "flags": [],
            "extension_due": False,
        }


def _name_regressed(cells: list[dict[str, Any]]) -> None:
    """Holm over all cells with a fit machine: which ones are above their budget?"""
    family = [c for c in cells if c["overhead"] and c["verdict"] != Verdict.INVALID_ENV]
    p_values = []
    for cell in family:
        thetas = [math.log1p(p / 100) for p in cell["overhead"]["replicates"]]
        p_values.append(above_limit(thetas, math.log1p(cell["budget"] / 100)))
    for cell, p, adjusted in zip(family, p_values, holm(p_values), strict=True):
        cell |= {"p": p, "p_holm": adjusted, "above_budget": adjusted <= FAMILY_LEVEL}


def _suites(cells: Sequence[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    """Geometric mean for each tracer, probe set and device, over the cells whose control holds."""
    keys = sorted({(c["tracer"], c["probes"], c["device"]) for c in cells})
    for tracer, probes, device in keys:
        members = [c for c in cells if (c["tracer"], c["probes"], c["device"]) == (tracer, probes, device)]
        fit = [c for c in members if c["overhead"] and c["control_holds"]]
        if len(fit) < 2:
            continue
        mean = suite_mean([[math.log1p(p / 100) for p in c["overhead"]["replicates"]] for c in fit], seed=SEED)
        yield {
            "tracer": tracer,
            "probes": probes,
            "device": device,
            "cells": sorted(c["workload"] for c in fit),
            "left_out": sorted(c["workload"] for c in members if c not in fit),
            "percent": _number(mean.percent),
            "low": _number(mean.low_percent),
            "high": _number(mean.high_percent),
            "resamples": mean.resamples,
            "seed": mean.seed,
        }


def _no_budget(cell: Cell, budgets: Budgets) -> BadInput:
    return BadInput(
        "XT7211",
        f"no budget for the cell {_label(cell.names)}",
        where=budgets.file,
        hint="add an entry that matches it, or one without a kernel for all others",
    )


def _nothing(
    documents: Sequence[Mapping[str, Any]], cells: Sequence[Cell], selection: Selection, source: str
) -> BadInput:
    if not documents:
        return BadInput("XT7210", "holds no raw sample documents", where=source, hint="name the folder raw/ of a run")
    if not cells:
        names = sorted({str((d.get("cell") or {}).get("workload")) for d in documents})
        what = f"no cell matches --kernel {selection.kernel!r}"
    else:
        names = sorted({cell.names["tracer"] for cell in cells})
        what = f"no cell of tracer {selection.tracer!r}"
    return BadInput("XT7210", what, where=source, hint=f"there are: {', '.join(names)}")
