"""How long the report of many cells takes: ``python -m workflow.scripts.bench_report --out /tmp/bench``.

Makes up raw samples, certificates, plans and comparisons of any number of cells, some of them missing or broken, and
runs every analysis, figure, table and the page on them in this process. The numbers mean nothing; the time and the size
of the page do.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from workflow.scripts import (
    ablation_table,
    architecture_table,
    certificate_table,
    coverage_table,
    dose_table,
    export_tables,
    overhead_table,
    prediction_table,
    preservation_table,
    report,
    trend_table,
)
from workflow.scripts.common import run, write_json, write_table
from workflow.scripts.plots.__main__ import main as plot

TRACERS = ("xtrace", "proton", "proton-global", "ptx-probe", "ptx-probe-charitable")
PROBES = ("sche", "matrix", "waits", "pp")
COST = {"xtrace": 0.01, "proton": 0.03, "proton-global": 0.04, "ptx-probe": 0.05, "ptx-probe-charitable": 0.02}
PROCESSES, BLOCKS, CONTROL = 10, 20, 8
MISSING, BROKEN = 17, 41  # every so many cells
FIGURES = ("overhead", "blocks", "replicates", "dose", "trend", "architectures", "ablation", "prediction", "coverage")


def cells(count: int) -> list[tuple[str, str, str]]:
    """``(workload, tracer, probes)``, at least ``count`` of them rounded up to whole workloads."""
    workloads = [f"kernel_{i:03d}_triton" for i in range(math.ceil(count / (len(TRACERS) * len(PROBES))))]
    return list(itertools.product(workloads, TRACERS, PROBES))


def samples(folder: Path, every: Sequence[tuple[str, str, str]], draw: random.Random) -> None:
    """Raw sample files. Every 17th cell has none, every 41st a block without times."""
    for index, (workload, tracer, probes) in enumerate(every):
        if index % MISSING == MISSING - 1:
            continue
        dose = PROBES.index(probes)
        for process in range(PROCESSES):
            luck = draw.gauss(0, 0.002)
            blocks = []
            for kind, number in (("AB", BLOCKS), ("AA", CONTROL)):
                ratio = 1 + luck + (COST[tracer] * dose if kind == "AB" else 0)
                for _ in range(number):
                    ns = [50_000 * draw.gauss(1, 0.003) * (ratio if letter == "B" else 1) for letter in "ABBA"]
                    blocks.append({"kind": kind, "order": "ABBA", "ns": ns})
            if index % BROKEN == BROKEN - 1:
                blocks[0]["ns"] = []
            counted = {"warps_seen": 100, "records_emitted": 100 * (2 + 60 * dose), "records_per_site": {}}
            cell = {"workload": workload, "kernel": "k", "shape": "n=1", "dtype": "bf16", "device": "made-up GPU"}
            document: dict[str, Any] = {
                "schema": "xtrace/overhead-raw/1",
                "cell": cell | {"tracer": tracer, "probes": probes},
                "provenance": {"date": "2026-01-01T00:00:00Z", "git": "0" * 40, "clocks": "made up"},
                "process": process,
                "blocks": blocks,
                "checks": {"bit_identical": True} | (counted if tracer == "xtrace" else {}),
            }
            write_json(folder / f"{workload}.{tracer}.{probes}.{process}.json", document)


def static_tables(out: Path, every: Sequence[tuple[str, str, str]], draw: random.Random) -> None:
    """Tables that need no samples: preservation, coverage, refusals, certificates, and the corpus."""
    preserved, covered, refused, certified = [], [], [], []
    for index, (workload, tracer, probes) in enumerate(every):
        cell = {"workload": workload, "tracer": tracer, "probes": probes, "kernel": "k"}
        if index % MISSING == MISSING - 1:
            preserved.append(cell | {"status": "unsupported", "reason": "made up: the tracer has no such probe"})
        else:
            levels = sorted(draw.random() for _ in preservation_table.LEVELS)
            shares = dict.fromkeys(preservation_table.LEVELS, 1.0) if tracer == "xtrace" else {}
            shares = shares or dict(zip(preservation_table.LEVELS, levels, strict=True))
            counts = {"instructions": 1000, "inserted": 100, "sites": 9, "blocks": 30, "changed_blocks": 3}
            preserved.append(cell | {"status": "ok"} | counts | shares)
        if tracer == "xtrace":
            cell = {k: cell[k] for k in ("workload", "probes", "kernel")}
            lost = draw.choice((0, 0, 1, 2))
            covered.append(cell | {"requested": 9, "placed": 9 - lost, "refused": lost})
            reason = draw.choice(("no general register below R22 is dead", "all six scoreboards are claimed"))
            refused += [cell | {"pc": hex(16 * i), "op": "BAR.SYNC", "reason": reason} for i in range(lost)]
            certified += [
                {**cell, "promise": p, "status": "PASS", "kernels": 1, "instructions": 1000}
                for p in ("instructions", "targets", "liveness", "hazards", "effects", "resources", "wellformed")
            ]
    write_table(out / "preservation.csv", preserved, preservation_table.COLUMNS)
    write_table(out / "coverage.csv", covered, coverage_table.COLUMNS)
    write_table(out / "refusals.csv", refused, coverage_table.REFUSALS)
    write_table(out / "certificates.csv", certified, certificate_table.COLUMNS)
    for workload in dict.fromkeys(w for w, _, _ in every):
        meta = {"workload": workload, "kernel": "k", "arch": "sm_90a", "sha256": "0" * 64}
        write_json(out / "corpus" / workload / "meta.json", meta)


def steps(out: Path, every: Sequence[tuple[str, str, str]]) -> dict[str, Callable[[], object]]:
    """What the pipeline does between samples and page, by name."""
    table = {p.stem: str(p) for p in (out / f"{n}.csv" for n in ("dose_fit", "refusals", "preservation", *FIGURES))}
    workloads = list(dict.fromkeys(w for w, _, _ in every))
    more: dict[str, list[str]] = {
        "blocks": ["--cells", table["overhead"]],
        "replicates": ["--cells", table["overhead"]],
        "dose": ["--fit", table["dose_fit"]],
        "coverage": ["--refusals", table["refusals"]],
    }
    expect = ["--expect", *(":".join(cell) for cell in every)]

    def figure(name: str, stem: str, *extra: str) -> None:
        place = ["--out", str(out / "plots" / stem), "--more", str(out / "plots" / "more" / stem)]
        plot([name, "--table", table[name], *place, *extra])

    analysis: dict[str, Callable[[], object]] = {
        "statistics": lambda: overhead_table.main(
            ["--source", "recorded", "--raw", str(out / "raw"), *expect, "--out", table["overhead"]]
            + ["--blocks", table["blocks"], "--replicates", table["replicates"]]
        ),
        "dose": lambda: dose_table.main(
            ["--overhead", table["overhead"], "--replicates", table["replicates"]]
            + ["--out", table["dose"], "--fit", table["dose_fit"]]
        ),
        "trend": lambda: trend_table.main(["--overhead", table["overhead"], "--out", table["trend"]]),
        "architectures": lambda: architecture_table.main(
            ["--results", str(out), "--tracers", *TRACERS[1:], "--out", table["architectures"], "--corpus"]
            + [str(out / "corpus" / w / "meta.json") for w in workloads]
        ),
        "ablation": lambda: ablation_table.main(["--workloads", *workloads[:2], "--out", table["ablation"]]),
        "prediction": lambda: prediction_table.main(
            ["--results", str(out), "--overhead", table["overhead"], "--out", table["prediction"]]
            + ["--raw", str(out / "raw")]
        ),
        "tables": lambda: export_tables.main(["--results", str(out), "--out", str(out / "tables")]),
    }
    figures = {f"figure {n}": lambda n=n: figure(n, n, *more.get(n, [])) for n in FIGURES}
    figures |= {
        f"figure preservation-{p}": lambda p=p: figure("preservation", f"preservation-{p}", "--probes", p)
        for p in PROBES
    }
    page = ["--results", str(out), "--arch", "sm_90a", "--workloads", *workloads, "--groups", *PROBES]
    return analysis | figures | {"page": lambda: report.main([*page, "--out", str(out / "report.html")])}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench_report", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--cells", type=int, default=500)
    parser.add_argument("--out", type=Path, required=True, help="folder for everything that is made up")
    given = parser.parse_args(arguments)
    every, draw = cells(given.cells), random.Random(1)
    samples(given.out / "raw", every, draw)
    static_tables(given.out, every, draw)
    total = work = 0.0
    for name, step in steps(given.out, every).items():
        start, used = time.perf_counter(), time.process_time()
        step()
        total += (spent := time.perf_counter() - start)
        work += (used := time.process_time() - used)
        print(f"{spent:7.2f} s, {used:6.2f} s of processor  {name}")
    size = (given.out / "report.html").stat().st_size / 1e6
    print(f"{total:7.2f} s, {work:6.2f} s of processor  {len(every)} cells, {size:.1f} MB: {given.out / 'report.html'}")


if __name__ == "__main__":
    run(main)
