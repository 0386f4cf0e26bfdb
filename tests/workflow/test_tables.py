"""Documents of the steps -> tables: what is counted, what is refused, what is never turned into a zero."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.workflow.samples import (
    GEMM,
    SOFTMAX,
    certificate,
    kernel,
    plan,
    preservation_document,
    preservation_rows,
    raw_sample,
)
from workflow.scripts import certificate_table, coverage_table, overhead_table, preservation_table
from workflow.scripts.common import read_json, read_table, write_json, write_table
from xtrace.errors import BadInput


def test_preservation_counts_new_records_as_sites_and_names_closing_ones() -> None:
    document = preservation_document(kernel("k", 0.1, sites=None), sites={"source": 30, "closing": 6})
    (row,) = preservation_table.rows("proton", SOFTMAX, "pp", document)
    assert (row["sites"], row["closing_sites"]) == (24, 6)


def test_an_unsupported_cell_keeps_its_reason_and_has_no_shares() -> None:
    document = preservation_document(status="unsupported", reason="no source")
    (row,) = preservation_table.rows("proton", SOFTMAX, "pp", document)
    assert (row["status"], row["reason"]) == ("unsupported", "no source")
    assert "strict" not in row


def test_ok_without_a_kernel_is_a_contradiction() -> None:
    with pytest.raises(BadInput, match="no kernel was compared"):
        preservation_table.rows("xtrace", SOFTMAX, "pp", preservation_document())


def test_shares_of_several_kernels_are_weighted_by_instructions(tmp_path: Path) -> None:
    document = preservation_document(kernel("a", 1.0, instructions=100), kernel("b", 0.5, instructions=300))
    write_table(tmp_path / "t.csv", preservation_table.rows("xtrace", "w", "pp", document), preservation_table.COLUMNS)
    (cell,) = preservation_table.aggregate(read_table(tmp_path / "t.csv", preservation_table.COLUMNS))
    assert cell["strict"] == pytest.approx(0.625)
    assert (cell["kernels"], cell["sites"], cell["instructions"]) == (2, 48, 400)


def test_preservation_reads_the_cell_from_the_path(tmp_path: Path) -> None:
    path = tmp_path / "proton" / SOFTMAX / "pp.json"
    write_json(path, preservation_document(kernel("k", 0.1)))
    preservation_table.main(["--out", str(tmp_path / "t.csv"), str(path)])
    table = read_table(tmp_path / "t.csv", preservation_table.COLUMNS)
    assert table[["tracer", "workload", "probes"]].iloc[0].tolist() == ["proton", SOFTMAX, "pp"]


@pytest.mark.parametrize(
    "document", [{}, {"status": "ok", "reason": "", "kernels": [{}]}, {"status": "ok", "reason": "", "kernels": 7}]
)
def test_a_broken_preservation_document_names_its_file(tmp_path: Path, document: dict[str, Any]) -> None:
    path = tmp_path / "proton" / "w" / "pp.json"
    write_json(path, document)
    with pytest.raises(BadInput) as caught:
        preservation_table.main(["--out", str(tmp_path / "t.csv"), str(path)])
    assert str(path) in caught.value.where
    assert not (tmp_path / "t.csv").exists()


def test_coverage_and_refusals() -> None:
    covered, refused = coverage_table.coverage(GEMM, "pp", plan("placed", "refused", "placed"))
    assert covered == [{"workload": GEMM, "probes": "pp", "kernel": "k", "requested": 3, "placed": 2, "refused": 1}]
    assert [(r["pc"], r["reason"]) for r in refused] == [("0x10", "no free register")]


def test_a_kernel_without_such_sites_is_a_row_of_zeros() -> None:
    covered, _ = coverage_table.coverage(SOFTMAX, "matrix", plan())
    assert covered[0]["requested"] == 0


def test_totals_that_contradict_the_sites_are_refused() -> None:
    with pytest.raises(BadInput, match="listed are 1 and 0"):
        coverage_table.coverage(GEMM, "pp", plan("placed") | {"placed": 2})


def test_certificates_become_one_row_a_promise_with_its_witness() -> None:
    rows = certificate_table.rows(GEMM, "pp", certificate(liveness="FAIL"))
    assert [r["status"] for r in rows] == ["PASS", "PASS", "FAIL"]
    assert rows[2]["witness"] == "k at 0x40: R1 is live"
    assert rows[0]["instructions"] == 1000


def test_a_certificate_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(BadInput, match="contradicts"):
        certificate_table.rows(GEMM, "pp", certificate(liveness="FAIL") | {"ok": True})
    with pytest.raises(BadInput, match="contradicts"):
        certificate_table.rows(GEMM, "pp", certificate() | {"promises": {}})


@pytest.mark.parametrize("status", ["FAIL", "NOT-CHECKED"])
def test_a_promise_that_does_not_pass_fails_the_run(tmp_path: Path, status: str) -> None:
    table, receipt = tmp_path / "c.csv", tmp_path / "verified.txt"
    write_table(table, certificate_table.rows(GEMM, "pp", certificate(targets=status)), certificate_table.COLUMNS)
    with pytest.raises(BadInput, match=f"promise targets is {status}") as caught:
        certificate_table.main(["--enforce", str(table), "--out", str(receipt)])
    assert caught.value.where == f"{GEMM} / pp"
    assert not receipt.exists()


def test_kept_promises_leave_a_receipt(tmp_path: Path) -> None:
    table, receipt = tmp_path / "c.csv", tmp_path / "verified.txt"
    write_table(table, certificate_table.rows(GEMM, "pp", certificate()), certificate_table.COLUMNS)
    certificate_table.main(["--enforce", str(table), "--out", str(receipt)])
    assert receipt.read_text() == "3 promises of 1 traced images hold\n"


def overhead(tmp_path: Path, documents: list[dict[str, Any]], *expect: str) -> list[dict[str, str]]:
    raw = []
    for i, document in enumerate(documents):
        raw.append(str(tmp_path / f"{i}.json"))
        write_json(raw[-1], document)
    out = tmp_path / "overhead.csv"
    overhead_table.main(["--source", "recorded", "--out", str(out), "--expect", *expect, "--raw", *raw])
    return read_table(out, overhead_table.COLUMNS).to_dict("records")


def test_overhead_of_a_measured_cell(tmp_path: Path) -> None:
    (row,) = overhead(tmp_path, [raw_sample(p) for p in range(6)])
    assert float(row["overhead_percent"]) == pytest.approx(1.0, abs=0.06)
    assert float(row["low_percent"]) < 1.03 < float(row["high_percent"])
    assert row["control_ok"] == "True"
    assert (row["source"], row["processes"], row["records_emitted"], row["problems"]) == ("recorded", "6", "600", "")
    assert (row["driver"], row["date"]) == ("580.95", "2026-11-29")


def test_few_processes_give_no_exact_interval(tmp_path: Path) -> None:
    (row,) = overhead(tmp_path, [raw_sample(p) for p in range(3)])
    assert row["low_percent"]
    assert row["exact_low_percent"] == ""
    assert "needs >= 6" in row["note"]


def test_missing_cells_are_rows_that_say_so(tmp_path: Path) -> None:
    rows = overhead(tmp_path, [raw_sample(0)], f"{SOFTMAX}:xtrace:pp", f"{GEMM}:xtrace:pp")
    assert [(r["workload"], r["source"], r["overhead_percent"]) for r in rows if r["workload"] == GEMM] == [
        (GEMM, "not measured", "")
    ]
    assert len(rows) == 2


def test_no_samples_at_all_is_a_table_of_not_measured(tmp_path: Path) -> None:
    (row,) = overhead(tmp_path, [], f"{GEMM}:xtrace:pp")
    assert (row["source"], row["note"]) == ("not measured", "no samples")


def test_why_a_baseline_is_missing_comes_from_its_result(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    write_json(
        result, {"workload": GEMM, "tracer": "proton", "probes": "pp", "status": "unsupported", "reason": "no TTGIR"}
    )
    out = tmp_path / "o.csv"
    overhead_table.main(
        ["--source", "recorded", "--out", str(out), "--expect", f"{GEMM}:proton:pp", "--baseline-results", str(result)]
    )
    assert read_table(out, overhead_table.COLUMNS)["note"].tolist() == ["unsupported: no TTGIR"]


def test_an_unsupported_cell_of_a_measurement_is_not_measured_with_its_reason(tmp_path: Path) -> None:
    document = raw_sample(0, workload=GEMM, tracer="proton") | {"blocks": [], "unsupported": "needs 9 registers more"}
    (row,) = overhead(tmp_path, [document], f"{GEMM}:proton:pp")
    assert (row["source"], row["note"], row["overhead_percent"]) == ("not measured", "needs 9 registers more", "")


def test_processes_that_disagree_on_provenance_are_all_named(tmp_path: Path) -> None:
    documents = [raw_sample(p) for p in range(2)]
    documents[1]["provenance"]["driver"] = "590.1"
    (row,) = overhead(tmp_path, documents)
    assert row["driver"] == "580.95 | 590.1"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": NaN', "\x00"])
def test_a_file_that_is_no_json_object_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(BadInput) as caught:
        read_json(path)
    assert caught.value.where == str(path)


def test_a_table_without_its_columns_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(BadInput, match="lacks the columns workload"):
        read_table(path, ["workload"])


def test_tables_keep_text_as_it_is(tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv", [{"a": "NA", "b": None, "c": 10}], ["a", "b", "c"])
    assert read_table(tmp_path / "t.csv", ["a"]).iloc[0].tolist() == ["NA", "", "10"]


def test_the_sample_tables_cover_an_unsupported_tracer() -> None:
    assert {r["status"] for r in preservation_rows()} == {"ok", "unsupported"}
