"""Realistic tables and documents for tests of the pipeline's scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workflow.scripts import (
    ablation_table,
    architecture_table,
    certificate_table,
    coverage_table,
    dose_table,
    overhead_table,
    prediction_table,
    preservation_table,
    trend_table,
)
from workflow.scripts.ablation_images import ARMS
from workflow.scripts.common import write_json, write_table

FA3, SOFTMAX, GEMM = "fa3_fwd_hd128_causal", "softmax_triton", "gemm_bf16_triton"


def kernel(name: str, strict: float, relocated: float = 1.0, **more: Any) -> dict[str, Any]:
    levels = {"strict": strict, "relocated": relocated, "operands": relocated, "form": 1.0, "opcode": 1.0}
    counts = {"instructions": 1000, "inserted": 120, "removed": 0, "blocks": 40, "changed_blocks": 0}
    details = {"control_fields_changed": 0, "retargeted": 9, "method": "map", "sites": 24}
    return {"name": name, "other_name": name, **counts, **levels, **details, **more}


def preservation_document(
    *kernels: dict[str, Any], status: str = "ok", reason: str = "", **more: Any
) -> dict[str, Any]:
    return {"schema": "xtrace/preservation/1", "status": status, "reason": reason, "kernels": list(kernels), **more}


def preservation_rows() -> list[dict[str, Any]]:
    rows = []
    for workload in (FA3, SOFTMAX, GEMM):
        names = [f"k{i}" for i in range(7)] if workload == FA3 else ["k"]
        for probes in ("sche", "pp"):
            ours = preservation_document(*(kernel(n, 0.985) for n in names))
            rows += preservation_table.rows("xtrace", workload, probes, ours)
            for tracer in ("proton", "ptx-probe"):
                if workload == FA3:
                    theirs = preservation_document(status="unsupported", reason="ships as machine code only")
                else:
                    counts = {"source": 30, "closing": 6}
                    other = kernel("k", 0.11, 0.12, operands=0.2, form=0.66, opcode=0.71, sites=None, method="lcs")
                    theirs = preservation_document(other, sites=counts)
                rows += preservation_table.rows(tracer, workload, probes, theirs)
    return rows


def plan(*statuses: str, kernel_name: str = "k") -> dict[str, Any]:
    sites = [
        {
            "kernel": kernel_name,
            "pc": f"0x{16 * i:x}",
            "op": "BAR.SYNC",
            "probe": "time",
            "status": status,
            "reason": "no free register" if status == "refused" else "",
        }
        for i, status in enumerate(statuses)
    ]
    placed = sum(s == "placed" for s in statuses)
    return {"sites": sites, "placed": placed, "refused": len(statuses) - placed, "kernels": [{"name": kernel_name}]}


def certificate(**statuses: str) -> dict[str, Any]:
    promises = {"instructions": "PASS", "targets": "PASS", "liveness": "PASS", **statuses}
    bad = [
        {"promise": p, "kernel": "k", "pc": 0x40, "side": "traced", "instruction": "MOV R1, R2", "why": "R1 is live"}
        for p, s in promises.items()
        if s == "FAIL"
    ]
    counts = {"original_instructions": 1000, "probe_words": 120, "kernel_control_fields_changed": 0}
    return {
        "ok": all(s == "PASS" for s in promises.values()),
        "promises": promises,
        "kernels": [{"name": "k", **counts}],
        "failures": bad,
        "not_checked": [],
    }


def raw_sample(
    process: int, workload: str = SOFTMAX, tracer: str = "xtrace", probes: str = "pp", ratio: float = 1.01
) -> dict[str, Any]:
    a, noise = 50_000.0, 1 + 1e-4 * process
    cell = {
        "workload": workload,
        "kernel": "k",
        "shape": "rows=16384 columns=8192",
        "dtype": "bf16",
        "device": "NVIDIA H200",
    }
    blocks = [
        {
            "kind": kind,
            "order": "ABBA",
            "ns": [a, a * r * noise, a * r * noise, a],
            "sm_clock_mhz": [1980, 1980],
            "throttle": ["none", "none"],
        }
        for kind, r in (("AB", ratio), ("AA", 1.0))
        for _ in range(4)
    ]
    return {
        "schema": "xtrace/overhead-raw/1",
        "cell": cell | {"tracer": tracer, "probes": probes},
        "provenance": {
            "device": "NVIDIA H200",
            "driver": "580.95",
            "cuda": "13.0",
            "clocks": "unlocked",
            "date": "2026-11-29T20:00:00",
        },
        "process": process,
        "interval": "kernel (CUDA events around one launch)",
        "launches_per_sample": 1,
        "blocks": blocks,
        "checks": {
            "bit_identical": True,
            "records_expected": 100,
            "records_emitted": 100,
            "records_lost": 0,
            "monotonic": True,
            "warps_seen": 10,
            "records_per_site": {"k": {"1": 30, "2": 30, "3": 20}},
        },
    }


def ablation_steps(workload: str) -> dict[str, Any]:
    """Raw samples of the ablation: each step is a per cent faster than the one before, but the second."""
    factors = dict(zip([*(arm.name for arm in ARMS), "AA"], STEP_FACTORS, strict=True))
    processes = []
    for number in range(3):
        blocks = [
            {"kind": arm, "order": "ABBA", "ns": [1e5, 1e5 * (f + number / 1000), 1e5 * (f + number / 1000), 1e5]}
            for arm, f in factors.items()
        ]
        provenance = {"device": "NVIDIA H200", "driver": "580.95", "date": "2026-01-01T00:00:00Z", "git": "abc"}
        measured = {workload: {"blocks": blocks, "arms": {}, "original_ns": 1e5}}
        processes.append({"process": number, "provenance": provenance, "workloads": measured})
    facts = {arm: {"events": 65, "packets": 12, "words": 400, "registers": 168} for arm in factors if arm != "AA"}
    return {"schema": ablation_table.SCHEMA, "images": {workload: {"arms": facts}}, "processes": processes}


STEP_FACTORS = (1.05, 1.052, 1.04, 1.03, 1.02, 1.001, 1.002, 1.01, 1.012, 1.012, 1.015, 1.0)


def costs(records: bool) -> dict[str, Any]:
    """The kernel of a plan: three events an iteration in one packet, or none."""
    way = {"added_cycles": 30 * records, "wait_cycles": 4 * records, "own_cycles": 1500, "added_share": 0.02 * records}
    way |= {"events": 3 * records, "bytes": 16 * records, "memory_slots": int(records)}
    packets = [{"tag": 1, "sites": [1, 2, 3], "bytes": 16}] if records else []
    sizes = {"event_bytes": 4, "header_bytes": 32, "packets": packets}
    return {"name": "k", "hot": {"loop": 1, **way}, "loops": [{"id": 1, "head": "0x120"}], **sizes}


def write_results(results: Path) -> None:
    """A whole set of tables as one run leaves them."""
    write_table(results / "preservation.csv", preservation_rows(), preservation_table.COLUMNS)
    covered: list[dict[str, Any]] = []
    refused: list[dict[str, Any]] = []
    checked: list[dict[str, Any]] = []
    for workload in (FA3, SOFTMAX, GEMM):
        for probes in ("sche", "pp"):
            statuses = ["placed"] * 20 + (["refused"] if workload == GEMM and probes == "pp" else [])
            a, b = coverage_table.coverage(workload, probes, plan(*statuses))
            covered += a
            refused += b
            checked += certificate_table.rows(workload, probes, certificate())
    write_table(results / "coverage.csv", covered, coverage_table.COLUMNS)
    write_table(results / "refusals.csv", refused, coverage_table.REFUSALS)
    write_table(results / "certificates.csv", checked, certificate_table.COLUMNS)
    raw = []
    for process in range(6):
        raw.append(results / "raw" / f"{SOFTMAX}.xtrace.pp.{process}.json")
        write_json(raw[-1], raw_sample(process))
        raw.append(results / "raw" / f"{SOFTMAX}.xtrace.sche.{process}.json")
        light = raw_sample(process, probes="sche", ratio=1.002)
        light["checks"] |= {"records_expected": 20, "records_emitted": 20, "records_per_site": {}}
        write_json(raw[-1], light)
    expect = [f"{w}:xtrace:{p}" for w in (SOFTMAX, FA3) for p in ("sche", "pp")]
    out = {name: str(results / f"{name}.csv") for name in ("overhead", "blocks", "replicates", "dose", "trend")}
    overhead_table.main(
        ["--source", "recorded", "--out", out["overhead"], "--blocks", out["blocks"], "--replicates", out["replicates"]]
        + ["--expect", *expect, "--raw", *map(str, raw)]
    )
    dose_table.main(
        ["--overhead", out["overhead"], "--replicates", out["replicates"], "--out", out["dose"]]
        + ["--fit", str(results / "dose_fit.csv")]
    )
    trend_table.main(["--overhead", out["overhead"], "--out", out["trend"]])
    write_json(results / "steps.json", ablation_steps(FA3))
    samples = ["--samples", str(results / "steps.json"), "--workloads", FA3, SOFTMAX]
    ablation_table.main([*samples, "--out", str(results / "ablation.csv")])
    for workload in (FA3, SOFTMAX, GEMM):
        meta = {
            "workload": workload,
            "kernel": "k",
            "arch": "sm_90a",
            "sha256": "ab" * 32,
            "toolchain": {"triton": "3.6.0"},
        }
        write_json(results / "corpus" / workload / "meta.json", meta)
    for probes in ("sche", "pp"):
        for workload in (SOFTMAX, FA3):
            write_json(results / "traced" / workload / f"{probes}.plan.json", {"kernels": [costs(probes == "pp")]})
    given = ["--results", str(results), "--overhead", out["overhead"], "--raw", str(results / "raw")]
    prediction_table.main([*given, "--out", str(results / "prediction.csv")])
    metas = [str(results / "corpus" / w / "meta.json") for w in (FA3, SOFTMAX, GEMM)]
    architecture_table.main(
        ["--results", str(results), "--corpus", *metas, "--tracers", "proton", "ptx-probe"]
        + ["--out", str(results / "architectures.csv")]
    )
