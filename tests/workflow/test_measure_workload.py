"""A measurement leaves every expected file, and a failed cell does not take the others with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.workflow.samples import SOFTMAX, raw_sample
from workflow.scripts import overhead_table
from workflow.scripts.common import read_json, read_table, write_json
from workflow.scripts.measure_workload import main
from xtrace.errors import BadInput


def run(out: Path, code: int = 1, cells: Sequence[str] = ("xtrace:pp", "proton:pp")) -> list[str]:
    """Measure with a stand-in that knows xtrace:pp and fails for proton:pp in process 1."""
    seen: list[str] = []

    def measure(arguments: Sequence[str]) -> int:
        seen.extend(arguments)
        for process in range(2):
            write_json(out / f"{SOFTMAX}.xtrace.pp.{process}.json", raw_sample(process))
        write_json(out / f"{SOFTMAX}.proton.pp.0.json", raw_sample(0, tracer="proton", ratio=1.3))
        error = {"error": "Traceback ...\nerror[XT5007] the launch never ended\n"}
        write_json(out / "errors" / f"{SOFTMAX}.proton.pp.1.json", error)
        return code

    main(["--workload", SOFTMAX, "--cells", *cells, "--processes", "2", "--out", str(out), "--seed", "3"], measure)
    return seen


def test_the_protocol_is_handed_on(tmp_path: Path) -> None:
    seen = run(tmp_path)
    assert seen[seen.index("--seed") + 1] == "3"
    assert seen[seen.index("--cells") + 1 :] == [f"{SOFTMAX}:xtrace:pp", f"{SOFTMAX}:proton:pp"]


def test_a_failed_process_leaves_a_file_with_its_reason(tmp_path: Path) -> None:
    run(tmp_path)
    document = read_json(tmp_path / f"{SOFTMAX}.proton.pp.1.json")
    assert document["unsupported"] == "failed: error[XT5007] the launch never ended"
    assert document["blocks"] == []


def test_a_cell_without_a_word_says_so(tmp_path: Path) -> None:
    run(tmp_path, cells=["xtrace:pp", "xtrace:sche"])
    assert "without a word" in read_json(tmp_path / f"{SOFTMAX}.xtrace.sche.0.json")["unsupported"]


def test_the_table_counts_what_is_left_and_says_what_is_not(tmp_path: Path) -> None:
    run(tmp_path / "raw", cells=["xtrace:pp", "proton:pp", "xtrace:sche"])
    out = tmp_path / "o.csv"
    expect = [f"{SOFTMAX}:{c}" for c in ("xtrace:pp", "xtrace:sche", "proton:pp")]
    overhead_table.main(
        ["--source", "measured", "--out", str(out), "--expect", *expect, "--raw", str(tmp_path / "raw")]
    )
    rows = {(r["tracer"], r["probes"]): r for r in read_table(out, overhead_table.COLUMNS).to_dict("records")}
    assert (rows["xtrace", "pp"]["processes"], rows["xtrace", "pp"]["source"]) == ("2", "measured")
    assert rows["proton", "pp"]["processes"] == "1"
    assert "some processes gave no samples: failed: error[XT5007]" in rows["proton", "pp"]["problems"]
    assert rows["xtrace", "sche"]["source"] == "not measured"
    assert "without a word" in rows["xtrace", "sche"]["note"]


def test_errors_of_an_earlier_run_are_not_taken_for_new_ones(tmp_path: Path) -> None:
    stale = tmp_path / "errors" / f"{SOFTMAX}.xtrace.sche.0.json"
    write_json(stale, {"error": "old"})
    run(tmp_path, cells=["xtrace:sche"])
    assert "old" not in read_json(tmp_path / f"{SOFTMAX}.xtrace.sche.0.json")["unsupported"]


def test_a_measuring_program_that_cannot_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="ended with 2"):
        run(tmp_path, code=2)
