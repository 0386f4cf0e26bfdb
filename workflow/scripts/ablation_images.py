#!/usr/bin/env python3
"""Images for the ablation: probes with one optimisation more from step to step, and controls with a part of the probes.

    ablation_images.py --out results/ablation --workloads fa_fwd_hd128_causal_triton fa3_fwd_hd128_causal

Needs no GPU. Every step is a traced image like any other, and is written only if its certificate holds. Controls trace
nothing, or only when warps start and end; they are written only if what they insert is shown to be harmless.
``OUT/WORKLOAD/images.json`` says what is in each image.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from workflow.kernels.suite import SUITE, read_suite
from workflow.scripts.common import run, write_json
from workflow.scripts.gpu_files import Folders, git_commit
from xtrace.errors import BadInput
from xtrace.files import write_atomic
from xtrace.image import parse
from xtrace.splice import Form, Options, Plan, SpliceResult, apply, plan
from xtrace.splice.controls import clocks_only, prologue_only
from xtrace.splice.pad import Padding, pad
from xtrace.verify import verify

__all__ = ["ARMS", "SCHEMA", "STEPS", "Arm", "build", "main"]

SCHEMA = "xtrace/ablation-images/1"
HARMLESS = ("instructions", "targets", "liveness", "hazards", "wellformed")  # promises that controls must keep


class Arm(NamedTuple):
    """One image of the ablation."""

    name: str
    step: bool  # False: a control
    what: str


ARMS = (
    Arm("naive", True, "each event in a packet of its own, stored by all lanes and waited for at once"),
    Arm("separate", True, "registers of its own for each event; waits are left to later probes"),
    Arm("lane", True, "one elected lane stores"),
    Arm("packed", True, "several events in a packet, 16 bytes a store, as soon as they are complete"),
    Arm("scheduled", True, "stores, elections and cursor where they cost least; the suite's layout"),
    Arm("prologue", False, "the prologue alone: the warp's addresses, no store"),
    Arm("ends", False, "prologue and headers at the exits (probe set sche)"),
    Arm("clocks", False, "prologue, headers, and one clock read for each event; no event is stored"),
    Arm("nops", False, "the scheduled image with a NOP of one cycle for each inserted word"),
    Arm("stalls", False, "the same with NOPs that take as long as what they stand for"),
    Arm("unstored", False, "the scheduled image with such NOPs for its stores alone"),
)
STEPS = tuple(arm.name for arm in ARMS if arm.step)


def build(workload: str, probes: str, folders: Folders, out: Path, suite: Mapping[str, Any]) -> dict[str, Any]:
    """Write all images of a workload and ``images.json``; returns its content. BadInput XT7460: a check failed."""
    original, meta = folders.original(workload)
    image = parse(original, workload)
    layout = int(suite.get("layouts", {}).get(probes, 0))
    # Every step keeps all of its events; a packet of one event takes as much of the ring as a record.
    records = max(Options().records, int(suite.get("records_per_warp", {}).get(probes, 0)))

    def planned(form: Form = Form.SCHEDULED, spec: str = probes) -> Plan:
        best = form is Form.SCHEDULED and spec == probes
        return plan(image, list(image.kernels), spec, Options(records, layout if best else 0, form))

    makers: dict[str, Callable[[], SpliceResult]] = {
        **{step: partial(_traced, planned, Form[step.upper()]) for step in STEPS},
        "prologue": lambda: prologue_only(planned()),
        "ends": lambda: apply(planned(spec="sche")),
        "clocks": lambda: clocks_only(planned()),
        "nops": lambda: _pad(apply(planned()), Padding.NOPS),
        "stalls": lambda: _pad(apply(planned()), Padding.STALLS),
        "unstored": lambda: _pad(apply(planned()), Padding.UNSTORED),
    }
    folder = out / workload
    folder.mkdir(parents=True, exist_ok=True)
    arms = {}
    for arm in ARMS:
        result = makers[arm.name]()
        promises = verify(original, result.data, result.map).promises
        must_hold = promises if arm.name in (*STEPS, "ends") else HARMLESS
        if broken := [name for name in must_hold if promises[name] != "PASS"]:
            raise BadInput("XT7460", f"{arm.name}: not proved: {', '.join(broken)}", where=workload)
        write_atomic(folder / f"{arm.name}.cubin", result.data)
        write_atomic(folder / f"{arm.name}.cubin.map.json", json.dumps(result.map) + "\n")
        arms[arm.name] = _facts(result, str(meta["kernel"]), promises)
    document = {
        "schema": SCHEMA,
        "workload": workload,
        "probes": probes,
        "layout": layout,
        "records": records,
        "git": git_commit(),
        "original": hashlib.sha256(original).hexdigest(),
        "arms": arms,
    }
    write_json(folder / "images.json", document)  # last: where it is, the folder is whole
    return document


def _traced(planned: Callable[[Form], Plan], form: Form) -> SpliceResult:
    return apply(planned(form))


def _pad(traced: SpliceResult, padding: Padding) -> SpliceResult:
    return pad(traced.data, traced.map, padding=padding)


def _facts(result: SpliceResult, kernel: str, promises: Mapping[str, str]) -> dict[str, Any]:
    """What was inserted into the measured kernel."""
    entry = next(k for k in result.map["kernels"] if k["name"] == kernel)
    return {
        "sha256": hashlib.sha256(result.data).hexdigest(),
        "events": entry.get("clock_reads", sum(site["kind"] == "record" for site in entry["sites"])),
        "refused": len(entry["refused"]),
        "packets": len(entry["packets"]),
        "islands": len(entry["islands"]),
        "words": sum(island["words"] for island in entry["islands"]),
        "registers": entry["registers"]["after"],
        "promises": dict(promises),
    }


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--workloads", nargs="+", required=True)
    p.add_argument("--probes", default="pp")
    p.add_argument("--corpus", type=Path, default=Path("results/corpus"))
    p.add_argument("--suite", type=Path, default=SUITE)
    return p


def main(arguments: Sequence[str]) -> None:
    args = parser().parse_args(arguments)
    suite = read_suite(args.suite)
    for workload in args.workloads:
        if workload not in suite:
            raise BadInput("XT7461", "no such workload in the suite", where=workload)
        folders = Folders(args.corpus, args.out, args.out)
        document = build(workload, args.probes, folders, args.out, suite[workload])
        for name, arm in document["arms"].items():
            print(f"{workload:30} {name:10} {arm['events']:4} events {arm['words']:5} words", flush=True)


if __name__ == "__main__":
    run(main)
