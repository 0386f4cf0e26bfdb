"""Images of Xtrace and of G-Watch with probes at the same places, and what each tool refused. Needs no GPU."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baselines.api import BuildResult, Workload, write_result
from baselines.gwatch.build import MAX_SITES, GWatch, places
from baselines.sites import find_group
from workflow.scripts.common import read_json, write_json, xtrace
from xtrace import image
from xtrace.analysis import KernelAnalysis, analyse
from xtrace.errors import XtraceError

__all__ = ["Layout", "prepare"]

SCHEMA = "xtrace/gwatch-pair/1"
LEVELS = ("instructions", "inserted", "strict", "relocated", "operands", "form", "opcode", "changed_blocks")


@dataclass(frozen=True)
class Layout:
    """Folders of a comparison; the same shape as the pipeline's, so that its measuring program takes them."""

    out: Path
    corpus: Path

    @property
    def traced(self) -> Path:
        return self.out / "traced"

    @property
    def baselines(self) -> Path:
        return self.out / "baselines"

    @property
    def raw(self) -> Path:
        return self.out / "raw"

    def xtrace_image(self, workload: str, probes: str) -> Path:
        return self.traced / workload / f"{probes}.cubin"

    def gwatch(self, workload: str, probes: str) -> Path:
        return self.baselines / "gwatch" / workload / probes

    def pair(self, workload: str, probes: str) -> Path:
        return self.out / "pairs" / f"{workload}.{probes}.json"


def prepare(layout: Layout, tool: GWatch, workload: str, group_name: str) -> dict[str, Any]:
    """Build both images of one workload and group.

    Never raises for what a tool cannot do: ``failures`` of the document tells, and ``timed`` whether both images are
    there to be measured.
    """
    probes = f"{group_name}-matched"
    path = layout.pair(workload, probes)
    source = layout.corpus / workload / "original.cubin"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "workload": workload,
        "group": group_name,
        "probes": probes,
        "original_sha256": digest,
        "timed": False,
        "failures": [],
    }
    try:
        _prepare(layout, tool, Workload.open(layout.corpus / workload), group_name, document)
    except XtraceError as error:
        fail(document, "build", str(error))
    write_json(path, document)
    return document


def fail(document: dict[str, Any], step: str, reason: str, log: str = "") -> None:
    """Note a failure of either tool: it belongs to the result."""
    document["failures"].append({"step": step, "reason": reason, "log": log[-4000:]})


def _prepare(layout: Layout, tool: GWatch, workload: Workload, group_name: str, document: dict[str, Any]) -> None:
    group = find_group(group_name)
    source = layout.corpus / workload.name / "original.cubin"
    loaded = image.load(source)
    kernel = loaded.kernel(str(workload.meta.get("kernel") or loaded.kernels[0].name))
    analysis = analyse(loaded, kernel)
    wanted = places(analysis, group)
    probes, folder = document["probes"], layout.gwatch(workload.name, document["probes"])
    spec = group.xtrace if group.whole_kernel else selectors(analysis, wanted)
    ours = json.loads(xtrace("plan", source, "--kernel", kernel.name, "--probes", spec, "--json"))["sites"]
    document |= {"kernel": kernel.name, "requested": len(wanted), "registers": {"original": kernel.registers}}
    placed = {int(s["pc"], 16) // 16 for s in ours if s["status"] == "placed"}
    document["xtrace"] = _tally(ours, placed, wanted, group.whole_kernel)

    limit = MAX_SITES[tool.clock]
    if len(wanted) > limit:
        why = f"{len(wanted) - limit} of {len(wanted)} places left out: its records tell at most {limit} sites apart"
        fail(document, "gwatch limit", why)
        wanted = {i: wanted[i] for i in sorted(wanted, key=lambda i: (i not in placed, i))[:limit]}
    result = tool.build_at(workload, group_name, wanted, folder)
    document["gwatch"] = _gwatch_tally(result, wanted)
    if result.status != "ok":
        write_result(result, folder)
        fail(document, "gwatch build", result.reason, tool.log)
        return
    both = {pc // 16 for pc in result.record["pcs"].values()}
    if not group.whole_kernel and not both <= placed:  # what Xtrace refused is not compared
        both &= placed
        result = tool.build_at(workload, group_name, {i: wanted[i] for i in both}, folder)
    result.probes = probes
    write_result(result, folder)
    if result.status != "ok":
        fail(document, "gwatch build of the common sites", result.reason, tool.log)
        return
    if not group.whole_kernel:
        spec = selectors(analysis, {i: wanted[i] for i in both})
    _ours(layout, source, kernel.name, spec, workload.name, probes, document)
    _describe(layout, workload.name, probes, result, document)
    if workload.meta.get("launch", {}).get("parameters") is None:
        fail(
            document,
            "timing",
            "the library launches this kernel itself: the parameter that G-Watch appends has no value",
        )
    else:
        document["timed"] = True


def selectors(analysis: KernelAnalysis, wanted: Mapping[int, str]) -> str:
    """The places as Xtrace's selector."""
    return ",".join(f"pc:{analysis.instructions[i].pc:#x}" for i in sorted(wanted))


def _tally(sites: list[dict[str, Any]], placed: set[int], wanted: Mapping[int, str], whole: bool) -> dict[str, Any]:
    mine = [s for s in sites if whole or int(s["pc"], 16) // 16 in wanted]
    refused = [{"pc": s["pc"], "op": s["op"], "reason": s["reason"]} for s in mine if s["status"] == "refused"]
    return {"placed": len(placed) if whole else len(placed & set(wanted)), "refused": refused}


def _gwatch_tally(result: BuildResult, wanted: Mapping[int, str]) -> dict[str, Any]:
    refused = result.record.get("refused", [])
    return {
        "status": result.status,
        "placed": len(result.sites) if result.status == "ok" else 0,
        "refused": refused,
        "seconds": result.record.get("seconds"),
        "version": result.toolchain.get("gwatch"),
        "clock": result.record.get("clock"),
        "schedule": result.record.get("schedule"),
        "words": result.record.get("words"),
    }


def _ours(
    layout: Layout, source: Path, kernel: str, spec: str, workload: str, probes: str, document: dict[str, Any]
) -> None:
    target = layout.xtrace_image(workload, probes)
    target.parent.mkdir(parents=True, exist_ok=True)
    xtrace("splice", source, "--kernel", kernel, "--probes", spec, "-o", target)
    certificate = json.loads(xtrace("verify", source, target, "--json", codes=(0, 1)))
    document["xtrace"] |= {"probes": spec, "certificate": certificate["ok"]}


def _describe(layout: Layout, workload: str, probes: str, result: BuildResult, document: dict[str, Any]) -> None:
    target = layout.xtrace_image(workload, probes)
    entry = next(k for k in read_json(f"{target}.map.json")["kernels"] if k["name"] == document["kernel"])
    registers = result.resources["registers"]
    document["registers"] |= {"xtrace": entry["registers"]["after"], "gwatch": registers.after}
    numbers = {site["pc"]: site["id"] for site in entry["sites"] if site["id"] is not None}
    theirs = {pc: number for number, pc in result.record["pcs"].items()}
    described = {site.id: site for site in result.sites}
    document["sites"] = [
        {"pc": pc, "op": described[n].op, "phase": described[n].phase, "gwatch": n, "xtrace": numbers.get(pc)}
        for pc, n in sorted(theirs.items())
    ]
    original = layout.corpus / workload / "original.cubin"
    images = {"xtrace": target, "gwatch": layout.gwatch(workload, probes) / "instrumented.cubin"}
    document["preservation"] = {}
    for tracer, path in images.items():
        kernels = json.loads(xtrace("diff", original, path, "--kernel", document["kernel"], "--json"))["kernels"]
        document["preservation"][tracer] = {
            **{name: kernels[0][name] for name in LEVELS},
            "control_fields_changed": kernels[0]["control_fields_changed"],
            "method": kernels[0]["method"],
        }
