"""Before a measurement: how long it will take, and which cells the one declared extension concerns."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workflow.scripts.gpu_files import CellName, read_json
from xtrace.errors import BadInput
from xtrace.stats import samples
from xtrace.stats.budgets import Budgets
from xtrace.stats.budgets import CellName as BudgetName
from xtrace.stats.gate import Flag, Rule, decide, decide_change
from xtrace.stats.verdicts import SCHEMA as VERDICT

__all__ = ["Estimate", "extension", "first_look", "flagged", "plan", "predict", "table"]

# Assumptions for documents that do not say how long they took.
FLUSH_BYTES_PER_S = 2e12  # overwriting device memory; about half of an H200's peak
CHECK_S = 2.0  # image loaded, outputs compared, one trace read back; recorded runs of the suite took 1.5 to 2 s
PROCESS_S = 12.0  # interpreter, context, inputs


@dataclass(frozen=True)
class Estimate:
    cell: CellName
    processes: range
    seconds: float | None  # one process; None: never measured
    basis: str


def read_documents(folder: Path) -> list[dict[str, Any]]:
    """All sample documents below a folder, in a fixed order, each with its ``file``."""
    return [read_json(p) | {"file": str(p)} for p in sorted(folder.rglob("*.json")) if "errors" not in p.parts]


def name_of(document: Mapping[str, Any]) -> CellName:
    cell = document["cell"]
    return CellName(str(cell["workload"]), str(cell["tracer"]), str(cell["probes"]))


def predict(document: Mapping[str, Any], blocks: int, control_blocks: int, more_kinds: int) -> tuple[float, str]:
    """Seconds that a cell takes in one process, from a document of an earlier one, and what that rests on."""
    wanted = blocks * (1 + more_kinds) + control_blocks
    seconds = document.get("seconds")
    if isinstance(seconds, Mapping) and document["blocks"]:
        return float(seconds["checks"]) + float(seconds["timing"]) * wanted / len(document["blocks"]), "recorded"
    checks = document.get("checks", {})
    times = [t for b in document["blocks"] for t in b["ns"]]
    if not times:
        return CHECK_S, "no samples"
    host_s = float(checks.get("host_us_per_sample", 0)) * 1e-6
    sample_s = statistics.median(times) * 1e-9 + max(float(document.get("flush_bytes", 0)) / FLUSH_BYTES_PER_S, host_s)
    warm_up = float(checks.get("warm_up_launches", 160)) / max(int(document.get("launches_per_sample", 1)), 1)
    return CHECK_S + sample_s * (warm_up + 4 * wanted), "estimated"


def first_look(args: argparse.Namespace, cells: Sequence[CellName], budgets: Budgets | None) -> dict[CellName, range]:
    """Numbers of the processes of every cell: as given, else as its budget declares, else as calibrated.

    The gate looks after the declared number of processes and at no other time, so a calibration cannot change it.
    """

    def count(cell: CellName) -> int:
        if budgets is None or args.processes_given:
            return int(args.processes)
        return _rule(budgets, cell, "").processes

    spans = {c: range(args.first_process, args.first_process + count(c)) for c in cells}
    if args.calibration is not None and any(len(s) < args.processes for s in spans.values()):
        print(f"calibrated: {args.processes} processes, more than budgets declare; intervals will be wider", flush=True)
    return spans


def plan(args: argparse.Namespace, spans: Mapping[CellName, range]) -> list[Estimate]:
    """The longest recorded process of every cell as its estimate."""
    known: dict[CellName, list[tuple[float, str]]] = {}
    extra = int(args.pad) + int(args.base is not None)
    for document in read_documents(args.recorded):
        name = name_of(document)
        kinds = extra if name.tracer == "xtrace" else 0
        known.setdefault(name, []).append(predict(document, args.blocks, args.control_blocks, kinds))
    return [Estimate(c, s, *(max(known[c]) if c in known else (None, "never measured"))) for c, s in spans.items()]


def table(estimates: Sequence[Estimate]) -> str:
    """The plan for people; its last line has the total."""
    lines = [f"{'cell':55} processes  seconds each"]
    for e in estimates:
        seconds = "?" if e.seconds is None else f"{e.seconds:.1f}"
        lines.append(f"{e.cell!s:55} {len(e.processes):9}  {seconds:>7}  {e.basis}")
    processes = {p for e in estimates for p in e.processes}
    unknown = sum(e.seconds is None for e in estimates)
    total = sum(len(e.processes) * (e.seconds or 0.0) for e in estimates) + PROCESS_S * len(processes)
    note = f"; {unknown} never measured and not counted" if unknown else ""
    lines.append(
        f"{len(estimates)} cells in {len(processes)} processes: about {total:.0f} s"
        f" ({PROCESS_S:.0f} s a process for starting it{note})"
    )
    return "\n".join(lines)


def extension(args: argparse.Namespace, cells: Sequence[CellName], budgets: Budgets | None) -> dict[CellName, range]:
    """Cells of the first look in ``args.extend_from`` that the gate's rule leaves open, with the processes to add.

    The extension is the rule's: processes ``Rule.processes`` to ``Rule.extended - 1``, with the repeats of the first
    look, once. Both looks must end up in one folder.

    Raises
    ------
    BadInput
        XT7442: the first look is not complete, or was made with other arms than asked for now.
    """
    if args.out.resolve() != args.extend_from.resolve():
        raise BadInput("XT7442", "an extension is written to the folder of its first look", where=str(args.out))
    documents = [d for d in read_documents(args.extend_from) if name_of(d) in cells and "unsupported" not in d]
    due: dict[CellName, range] = {}
    for cell in samples.group(documents):
        name = name_of(cell.documents[0])
        budget = budgets or Budgets(Rule(), ())
        rule = _rule(budget, name, cell.names["device"], cell.names["kernel"])
        summary = samples.summarise(cell, rule.alpha)
        decisions = [d for d in (decide(summary, rule), decide_change(summary, rule, budget.regression)) if d]
        if not any(d.extension_due for d in decisions):
            continue
        if decisions[0].processes < rule.processes:
            raise BadInput(
                "XT7442",
                f"the first look has {decisions[0].processes} of {rule.processes} processes",
                where=f"{args.extend_from}: {name}",
                hint="finish it with the command that began it",
            )
        _same_protocol(args, name, cell.documents)
        due[name] = range(rule.processes, rule.extended)
    args.first_process = min((s.start for s in due.values()), default=0)
    return {c: due[c] for c in cells if c in due}


def flagged(verdict: Path, cells: Sequence[CellName]) -> list[CellName]:
    """Cells that a verdict of ``xtrace gate`` flags: their code ran faster for being moved. BadInput XT7444."""
    document = read_json(verdict)
    if document.get("schema") != VERDICT:
        raise BadInput("XT7444", f"schema is {document.get('schema')!r}, expected {VERDICT!r}", where=str(verdict))
    found = {
        CellName(c["workload"], c["tracer"], c["probes"]) for c in document["cells"] if Flag.LAYOUT_SHIFT in c["flags"]
    }
    return [c for c in cells if c in found]


def _rule(budgets: Budgets, cell: CellName, device: str, kernel: str = "") -> Rule:
    budget = budgets.find(BudgetName(cell.workload, kernel, cell.probes, device, cell.tracer))
    return budgets.rule if budget is None else budgets.rule_for(budget)


def _same_protocol(args: argparse.Namespace, name: CellName, documents: Iterable[Mapping[str, Any]]) -> None:
    seen = {tuple(sorted((k, _count(d, k)) for k in {b["kind"] for b in d["blocks"]})) for d in documents}
    wanted = {"AB": args.blocks, "AA": args.control_blocks}
    if args.pad:
        wanted["AP"] = args.blocks
    if args.base is not None:
        wanted["AO"] = args.blocks
    expected = tuple(sorted((k, n) for k, n in wanted.items() if n))
    if seen - {expected, ()}:
        found = "; ".join(" ".join(f"{k}={n}" for k, n in s) for s in sorted(seen))
        raise BadInput(
            "XT7442",
            f"the first look had blocks {found}",
            where=f"{args.extend_from}: {name}",
            hint="repeat its --blocks, --control-blocks, --pad and --base",
        )


def _count(document: Mapping[str, Any], kind: str) -> int:
    return sum(b["kind"] == kind for b in document["blocks"])
