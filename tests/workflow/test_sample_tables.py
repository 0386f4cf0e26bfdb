"""Raw samples and tables of a run -> blocks, replicates, dose, trend, architectures, and files for papers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.workflow.samples import FA3, GEMM, SOFTMAX, raw_sample, write_results
from workflow.scripts import architecture_table, bench_report, dose_table, export_tables, overhead_table, trend_table
from workflow.scripts.common import read_table, write_json
from workflow.scripts.sample_tables import dose
from xtrace.errors import BadInput


def analysed(folder: Path, documents: dict[str, Any], *expect: str, budgets: str = "") -> dict[str, pd.DataFrame]:
    """Tables of raw files given by name; text that is no document stays text."""
    raw = folder / "raw"
    raw.mkdir()
    for name, document in documents.items():
        if isinstance(document, str):
            (raw / name).write_text(document)
        else:
            write_json(raw / name, document)
    out = {name: folder / f"{name}.csv" for name in ("overhead", "blocks", "replicates")}
    more = ["--expect", *expect, "--blocks", str(out["blocks"]), "--replicates", str(out["replicates"])]
    if budgets:
        (folder / "budgets.yaml").write_text(budgets)
        more += ["--budgets", str(folder / "budgets.yaml")]
    overhead_table.main(["--source", "measured", "--out", str(out["overhead"]), "--raw", str(raw), *more])
    return {name: read_table(path, []) for name, path in out.items()}


def named(document: dict[str, Any]) -> str:
    cell = document["cell"]
    return f"{cell['workload']}.{cell['tracer']}.{cell['probes']}.{document['process']}.json"


def test_every_block_and_every_process_is_a_row(tmp_path: Path) -> None:
    documents = [raw_sample(p) for p in range(3)]
    documents[1]["blocks"][0]["throttle"] = ["none", "sw-power-cap"]
    tables = analysed(tmp_path, {named(d): d for d in documents})
    blocks, replicates = tables["blocks"], tables["replicates"]
    assert len(blocks) == 3 * 8
    assert set(blocks["kind"]) == {"AB", "AA"}
    assert (blocks["voided"] == "True").sum() == 1
    first = blocks[(blocks["process"] == "0") & (blocks["kind"] == "AB")]["log_ratio_percent"].astype(float)
    assert first.to_numpy() == pytest.approx(100 * math.log(1.01), abs=1e-4)
    assert replicates["process"].tolist() == ["0", "1", "2"]
    assert replicates["blocks"].tolist() == ["4", "3", "4"]
    assert replicates["voided"].tolist() == ["0", "1", "0"]
    assert float(replicates["overhead_percent"][0]) == pytest.approx(1.0, abs=1e-3)
    mean = math.fsum(math.log1p(float(v) / 100) for v in replicates["overhead_percent"]) / 3
    assert float(tables["overhead"]["overhead_percent"][0]) == pytest.approx(100 * math.expm1(mean), abs=1e-3)


def test_a_process_whose_blocks_are_all_voided_is_a_row_with_the_reason(tmp_path: Path) -> None:
    document = raw_sample(0)
    for block in document["blocks"]:
        block["sm_clock_mhz"] = [1980, 1000]
    replicates = analysed(tmp_path, {named(document): document})["replicates"]
    assert replicates[["overhead_percent", "problem"]].to_numpy().tolist() == [["", "no usable block"]]


@pytest.mark.parametrize("damage", ["{", '{"schema": "other"}', "[]"])
def test_a_file_that_cannot_be_read_makes_its_cell_broken_and_no_other(tmp_path: Path, damage: str) -> None:
    good = raw_sample(0, workload=SOFTMAX)
    files: dict[str, Any] = {named(good): good, f"{GEMM}.xtrace.pp.0.json": damage}
    table = analysed(tmp_path, files, f"{GEMM}:xtrace:pp", f"{SOFTMAX}:xtrace:pp")["overhead"]
    assert dict(zip(table["workload"], table["source"], strict=True)) == {GEMM: "broken", SOFTMAX: "measured"}
    assert f"{GEMM}.xtrace.pp.0.json" in table[table["workload"] == GEMM]["problems"].item()


def test_one_unreadable_process_makes_the_cell_doubtful(tmp_path: Path) -> None:
    files: dict[str, Any] = {named(d): d for d in (raw_sample(0), raw_sample(1))}
    table = analysed(tmp_path, files | {f"{SOFTMAX}.xtrace.pp.2.json": "{"})["overhead"]
    assert table["processes"].tolist() == ["2"]
    assert "some processes gave no samples" in table["problems"].item()


def test_a_bad_block_makes_its_cell_broken_and_no_other(tmp_path: Path) -> None:
    good, bad = raw_sample(0), raw_sample(0, workload=GEMM)
    bad["blocks"][2]["ns"] = [1.0]
    tables = analysed(tmp_path, {named(d): d for d in (good, bad)})
    rows = tables["overhead"].set_index("workload")
    assert rows.loc[GEMM, "source"] == "broken"
    assert "needs 4 times, not 1" in rows.loc[GEMM, "problems"]
    assert set(tables["blocks"]["workload"]) == {SOFTMAX}


def test_an_unreadable_file_without_a_cell_in_its_name_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        analysed(tmp_path, {"samples.json": "{"})


def test_a_device_that_cannot_measure_is_a_row_beside_one_that_did(tmp_path: Path) -> None:
    good = raw_sample(0)
    empty = raw_sample(0) | {"blocks": [], "unsupported": "no such GPU here"}
    empty["cell"] = empty["cell"] | {"device": "mi300x"}
    table = analysed(tmp_path, {named(good): good, f"mi300x.{named(empty)}": empty})["overhead"]
    rows = dict(zip(table["device"], table["source"], strict=True))
    assert rows == {"NVIDIA H200": "measured", "mi300x": "not measured"}
    assert table[table["device"] == "NVIDIA H200"]["problems"].item() == "A/A' control not shown to be within +-0.75 %"


def test_the_gate_adds_its_verdict_to_cells_with_a_budget(tmp_path: Path) -> None:
    documents = [raw_sample(p, ratio=r, probes=n) for p in range(6) for n, r in (("pp", 1.01), ("sche", 1.2))]
    documents += [raw_sample(p, tracer="proton") for p in range(6)]
    budgets = "schema: xtrace/budgets/1\nbudgets:\n  - {budget: 2}\n"
    table = analysed(tmp_path, {named(d): d for d in documents}, budgets=budgets)["overhead"]
    verdicts = {(r["tracer"], r["probes"]): r["verdict"] for r in table.to_dict("records")}
    assert verdicts == {("xtrace", "pp"): "PASS", ("xtrace", "sche"): "FAIL", ("proton", "pp"): ""}
    assert table["budget_percent"].tolist() == ["2.0", "2.0", ""]


def test_records_per_iteration_are_those_of_the_busiest_loop() -> None:
    sites = {"k": {"1": 10, "2": 4000, "3": 4000, "4": 2500, "5": 900}}
    counted = dose({"warps_seen": 10, "records_emitted": 12_000, "records_per_site": sites})
    assert counted == {"warps": 10, "records_per_warp": 1200.0, "records_per_iteration": 3}
    assert dose({"warps_seen": 10, "records_emitted": 20, "records_per_site": {}})["records_per_iteration"] == 0
    assert dose({}) == {"warps": None, "records_per_warp": None, "records_per_iteration": None}


def test_a_line_through_known_doses_is_found(tmp_path: Path) -> None:
    cell = {"workload": "w", "tracer": "xtrace", "device": "d", "shape": "s"}
    doses = {"sche": 2.0, "waits": 50.0, "pp": 100.0}
    overhead = pd.DataFrame(
        [
            {**cell, "probes": p, "source": "measured", "overhead_percent": str(0.1 + 0.02 * x), "note": ""}
            | {"low_percent": "", "high_percent": "", "records_per_warp": str(x), "records_per_iteration": "1"}
            | {"problems": ""}
            for p, x in doses.items()
        ]
    )
    replicates = pd.DataFrame(
        [
            {**cell, "probes": p, "process": str(n), "overhead_percent": str(0.1 + luck + (0.02 + tilt) * x)}
            for n, (luck, tilt) in enumerate([(-0.05, 0.001), (0.0, 0.0), (0.05, -0.001)])
            for p, x in doses.items()
        ]
    )
    points, lines = dose_table.rows(overhead, replicates)
    assert [p["probes"] for p in points] == ["sche", "waits", "pp"]
    assert lines[0]["slope_percent"] == pytest.approx(0.02)
    assert lines[0]["slope_low"] < 0.02 < lines[0]["slope_high"]
    at_end = lines[-1]
    assert at_end["dose"] == 100
    assert at_end["fit_percent"] == pytest.approx(2.1)
    assert at_end["fit_low"] < 2.1 < at_end["fit_high"]
    assert dose_table.rows(overhead[:1], replicates)[1] == []  # one dose is no line


def test_a_trend_has_a_cell_once_a_revision_and_the_run_wins(tmp_path: Path) -> None:
    documents = [raw_sample(p) for p in range(2)]
    for document in documents:
        document["provenance"]["git"] = "abcdef0123456789"
    now = analysed(tmp_path, {named(d): d for d in documents}, f"{GEMM}:xtrace:pp")["overhead"]
    past = now.assign(git="0123456789abcdef", measured_at="2026-01-01")
    rows = trend_table.rows([("overhead.csv", now), ("old.csv", pd.concat([past, now.assign(processes="99")]))])
    assert [(r["revision"], r["from"], r["processes"]) for r in rows] == [
        ("012345678", "old.csv", "2"),
        ("abcdef012", "overhead.csv", "2"),
    ]  # oldest first, and the cell that was not measured is not there


def test_the_recorded_history_can_be_read() -> None:
    files = sorted((Path(__file__).parents[2] / "results" / "recorded" / "history").glob("*.csv"))
    assert files
    for path in files:
        rows = trend_table.rows([(path.name, read_table(path, trend_table.NEEDED))])
        assert {r["revision"] for r in rows} == {path.stem}


def test_architectures_say_how_far_each_tracer_got(tmp_path: Path) -> None:
    write_results(tmp_path)
    tables = [read_table(tmp_path / f"{n}.csv", []) for n in ("certificates", "preservation", "overhead")]
    archs = dict.fromkeys((SOFTMAX, GEMM, FA3), "sm_90a")

    def states(*tables: pd.DataFrame) -> dict[tuple[str, str], str]:
        rows = architecture_table.rows(archs, ["proton"], *tables)
        return {(r["arch"], r["tracer"]): r["state"] for r in rows}

    found = states(*tables)
    assert found["sm_90a", "xtrace"] == "measured"
    assert found["sm_90a", "proton"] == "built"
    assert found["gfx942", "xtrace"] == "unsupported"
    assert found["gfx942", "proton"] == "no data"
    certificates, preservation, overhead_rows = tables
    assert states(certificates, preservation, overhead_rows.head(0))["sm_90a", "xtrace"] == "verified"
    assert states(certificates.replace("PASS", "FAIL"), preservation, overhead_rows)["sm_90a", "xtrace"] == "failed"


def test_tables_for_papers_have_every_row_in_three_formats(tmp_path: Path) -> None:
    write_results(tmp_path)
    export_tables.main(["--results", str(tmp_path), "--out", str(tmp_path / "tables")])
    names = {p.name for p in (tmp_path / "tables").iterdir()}
    assert names == {f"{n}.{s}" for n in export_tables.VIEWS for s in ("md", "csv", "tex")}
    markdown = (tmp_path / "tables" / "overhead.md").read_text()
    assert len([line for line in markdown.splitlines() if line.startswith("|")]) == 2 + 4
    assert "not measured" in markdown
    latex = (tmp_path / "tables" / "overhead.tex").read_text()
    assert "\\begin{longtable}" in latex
    assert "softmax\\_triton" in latex


def test_a_missing_table_is_exported_as_missing(tmp_path: Path) -> None:
    write_results(tmp_path)
    (tmp_path / "coverage.csv").unlink()
    export_tables.main(["--results", str(tmp_path), "--out", str(tmp_path / "tables")])
    assert "cannot be read" in (tmp_path / "tables" / "coverage.md").read_text()


@pytest.mark.fuzz
def test_the_report_of_500_cells_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, few in (("PROCESSES", 2), ("BLOCKS", 4), ("CONTROL", 4)):  # the figures do not matter here
        monkeypatch.setattr(bench_report, name, few)
    every = bench_report.cells(500)
    bench_report.main(["--cells", "500", "--out", str(tmp_path)])
    text = (tmp_path / "report.html").read_text()
    table = read_table(tmp_path / "overhead.csv", overhead_table.COLUMNS)
    assert len(table) == len(every) == 500
    assert set(table["source"]) == {"recorded", "not measured", "broken"}
    assert "Not available" not in text
    assert "No picture" not in text.split('id="timeline"')[0]
    section = text.split('id="overhead"')[1].split("</table>")[0]
    for workload in {w for w, _, _ in every}:
        assert section.count(f"<td>{workload}</td>") == 20
