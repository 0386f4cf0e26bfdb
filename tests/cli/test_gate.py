"""``xtrace gate``: exit codes, outputs and the mistakes that must never end as a pass."""

from __future__ import annotations

import json
import random
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from xtrace.cli._gate_input import VERDICT_SCHEMA
from xtrace.cli.main import cli
from xtrace.config import check_schema, load_yaml

HEALTHY = {"bit_identical": True, "records_emitted": 4, "records_expected": 4, "records_lost": 0, "monotonic": True}


def write(
    folder: Path,
    overhead: float,
    *,
    workload: str = "softmax",
    tracer: str = "xtrace",
    probes: str = "pp",
    processes: int = 10,
    control: float = 0.0,
    old: float | None = None,
    spread: float = 0.05,
    checks: dict[str, Any] | None = None,
    kernel: str = "",
) -> None:
    """Raw sample documents of one cell; overheads in percent, ``spread`` between processes."""
    folder.mkdir(parents=True, exist_ok=True)
    for process, luck in enumerate(np.linspace(-spread, spread, processes)):
        kinds = {"AB": overhead + luck, "AA": control + luck / 10} | ({} if old is None else {"AO": old + luck})
        blocks = [
            {"kind": kind, "order": "ABBA", "ns": [1000.0, b, b, 1000.0]}
            for kind, percent in kinds.items()
            for b in [1000 * (1 + percent / 100)]
        ]
        document = {
            "schema": "xtrace/overhead-raw/1",
            "cell": {
                "workload": workload,
                "kernel": kernel or f"{workload}_kernel",
                "shape": {"rows": 4},
                "dtype": "bf16",
                "device": "NVIDIA H200",
                "tracer": tracer,
                "probes": probes,
            },
            "process": process,
            "blocks": blocks,
            "checks": HEALTHY | (checks or {}),
        }
        (folder / f"{workload}.{tracer}.{probes}.{process}.json").write_text(json.dumps(document))


def gate(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["gate", *map(str, arguments)], prog_name="xtrace")


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    return tmp_path / "raw"


@pytest.mark.parametrize(
    ("cell", "code", "verdict"),
    [
        ({"overhead": 1.0}, 0, "PASS"),
        ({"overhead": 3.0}, 1, "FAIL"),
        ({"overhead": 2.0}, 2, "INCONCLUSIVE"),
        ({"overhead": 1.0, "control": 2.0}, 3, "INVALID-ENV"),
        ({"overhead": 1.0, "processes": 5}, 2, "INCONCLUSIVE"),
        ({"overhead": 1.0, "checks": {"bit_identical": False}}, 1, "FAIL"),
        ({"overhead": 1.0, "checks": {"records_emitted": 0}}, 1, "FAIL"),
    ],
)
def test_exit_codes(raw: Path, cell: dict[str, Any], code: int, verdict: str) -> None:
    write(raw, **cell)
    done = gate(raw, "--budget", 2)
    assert done.exit_code == code
    assert done.output.splitlines()[-1].startswith(f"{verdict}: ")
    document = json.loads(gate(raw, "--budget", 2, "--json").stdout)
    assert document["schema"] == "xtrace/gate/1"
    assert document["verdict"] == document["cells"][0]["verdict"] == verdict


def test_the_worst_cell_counts(raw: Path) -> None:
    write(raw / "deep" / "er", 1.0, workload="a")
    assert gate(raw, "--budget", 2).exit_code == 0
    write(raw, 2.0, workload="b")
    assert gate(raw, "--budget", 2).exit_code == 2
    write(raw, 1.0, workload="c", control=2.0)
    assert gate(raw, "--budget", 2).exit_code == 3
    write(raw, 3.0, workload="d")
    assert gate(raw, "--budget", 2).exit_code == 1
    assert gate(raw, "--budget", 2, "--kernel", "a*").exit_code == 0
    assert gate(raw, "--budget", 2, "--kernel", "b_kernel").exit_code == 2


@pytest.mark.parametrize(("policy", "code"), [("report", 2), ("pass", 0), ("fail", 1)])
def test_the_policy_for_what_is_open_changes_the_code_and_not_the_word(raw: Path, policy: str, code: int) -> None:
    write(raw, 2.0)
    done = gate(raw, "--budget", 2, "--inconclusive", policy)
    assert done.exit_code == code
    assert done.output.splitlines()[-1].startswith("INCONCLUSIVE")
    assert "extension due: measure up to 20 processes" in done.output
    write(raw, 3.0, workload="worse")
    assert gate(raw, "--budget", 2, "--inconclusive", policy).exit_code == 1


def budgets(path: Path, *entries: str) -> Path:
    path.write_text("schema: xtrace/budgets/1\nbudgets:\n" + "".join(f"  - {{{e}}}\n" for e in entries))
    return path


def test_budgets_of_a_file(raw: Path, tmp_path: Path) -> None:
    write(raw, 3.0)
    write(raw, 3.0, probes="sche")
    file = budgets(tmp_path / "b.yaml", "budget: 2", "budget: 5, probes: pp, why: known")
    done = gate(raw, "--budgets", file, "--explain")
    assert done.exit_code == 1
    assert "softmax sche FAIL" in done.output
    assert f"budget 5 % from {file}: budgets[1] (known)" in done.output
    assert gate(raw, "--budgets", file, "--budget", 5).exit_code == 0


def test_another_budget_leaves_the_declared_processes(raw: Path, tmp_path: Path) -> None:
    write(raw, 1.0, processes=12)
    file = budgets(tmp_path / "b.yaml", "budget: 2", "budget: 5, probes: pp, processes: 12")
    assert gate(raw, "--budgets", budgets(tmp_path / "c.yaml", "budget: 2")).exit_code == 2
    assert gate(raw, "--budgets", file, "--budget", 2).exit_code == 0


def test_other_tracers_are_reported_and_not_gated(raw: Path) -> None:
    write(raw, 1.0)
    write(raw, 40.0, tracer="proton", checks={"records_emitted": None})
    document = json.loads(gate(raw, "--budget", 2, "--json").stdout)
    assert document["verdict"] == "PASS"
    assert [(c["tracer"], "verdict" in c) for c in document["reported"]] == [("proton", False)]
    assert gate(raw, "--budget", 2, "--tracer", "proton").exit_code == 1
    assert gate(raw, "--budget", 50, "--tracer", "proton").exit_code == 2  # nobody counted its records


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "cannot be read"),
        (["raw", "--kernel", "sofmax"], "no cell matches --kernel 'sofmax' (there are: softmax)"),
        (["raw", "--tracer", "x"], "no cell of tracer 'x' (there are: xtrace)"),
        (["raw", "--budget", "-1"], "--budget"),
        (["raw", "--bugdet", "1"], "No such option"),
        (["raw", "--expect", "a:b"], "is not WORKLOAD:TRACER:PROBES"),
        (["raw", "--budgets", "b.yaml"], "budgets[0].kernel: no cell has 'x'"),
        (["raw", "--budgets", "c.yaml"], "no budget for the cell softmax / xtrace / pp / NVIDIA H200"),
        (["raw", "--out", "missing/gate.json"], "cannot write the output"),
        (["empty"], "holds no raw sample documents"),
        (["other.json"], "neither a raw sample document nor a verdict"),
        (["broken.json"], "is not JSON"),
        (["verdict.json"], "verdict"),
        (["wrong"], "expected 'xtrace/overhead-raw/1'"),
        ([], "Missing argument"),
    ],
)
def test_what_is_no_question_has_a_code_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("raw"), 1.0)
    write(Path("raw"), 5.0, tracer="other")
    for file in Path("raw").glob("*.other.*"):
        file.unlink()
    budgets(Path("b.yaml"), "budget: 2, kernel: x")
    budgets(Path("c.yaml"), "budget: 2, probes: pp, gpu: NVIDIA B300")
    Path("c.yaml").write_text(Path("c.yaml").read_text() + "gpus: [NVIDIA B300]\n")
    Path("empty").mkdir()
    Path("empty/unrelated.json").write_text("{}")
    Path("wrong").mkdir()
    Path("wrong/a.json").write_text('{"schema": "xtrace/overhead-raw/9", "cell": {}, "blocks": []}')
    Path("other.json").write_text("[]")
    Path("broken.json").write_text("{")
    Path("verdict.json").write_text('{"schema": "xtrace/gate/1", "verdict": "PASS", "cells": []}')
    if "--budgets" not in arguments and "--budget" not in arguments:
        arguments = [*arguments, "--budget", "2"] if arguments and arguments[0] != "verdict.json" else arguments
    done = gate(*arguments)
    assert done.exit_code == 4
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error[XT")
    assert words in done.stderr


def test_without_any_budget_nothing_is_decided(raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(raw, 1.0)
    monkeypatch.chdir(tmp_path)
    done = gate(raw)
    assert done.exit_code == 4
    assert "--budgets FILE or --budget PERCENT" in done.stderr


def test_a_cell_that_is_not_there_is_open(raw: Path) -> None:
    write(raw, 1.0)
    done = gate(raw, "--budget", 2, "--expect", "gemm:xtrace:pp", "--expect", "softmax:xtrace:pp")
    assert done.exit_code == 2
    assert "no samples" in done.output
    excuse = {
        "schema": "xtrace/overhead-raw/1",
        "cell": {"workload": "fa", "tracer": "xtrace", "probes": "pp"},
        "process": 0,
        "blocks": [],
        "unsupported": "needs more registers",
    }
    (raw / "fa.json").write_text(json.dumps(excuse))
    done = gate(raw, "--budget", 2)
    assert done.exit_code == 2
    assert "not measured: needs more registers" in done.output


def test_some_processes_without_samples_withhold_a_pass(raw: Path) -> None:
    write(raw, 1.0, processes=8)
    document = json.loads((raw / "softmax.xtrace.pp.0.json").read_text())
    excuse = {**document, "process": 9, "blocks": [], "unsupported": "the launch failed"}
    (raw / "softmax.xtrace.pp.9.json").write_text(json.dumps(excuse))
    done = gate(raw, "--budget", 2)
    assert done.exit_code == 2
    assert "some processes gave no samples: the launch failed" in done.output


def test_an_older_version_in_the_same_processes(raw: Path) -> None:
    write(raw, 1.2, old=1.1)
    done = gate(raw, "--budget", 2)
    assert done.exit_code == 0
    assert "Against the older version" in done.output
    write(raw, 1.9, workload="gemm", old=1.0)
    done = gate(raw, "--budget", 3, "--markdown", raw.parent / "g.md")
    assert done.exit_code == 1  # within its budget, and yet more than half a point worse
    change = json.loads(gate(raw, "--budget", 3, "--json").stdout)["changes"][0]
    assert change["workload"] == "gemm"
    assert change["verdict"] == "FAIL"
    assert change["change"]["percent"] == pytest.approx(0.89, abs=0.01)
    assert "against the older version" in (raw.parent / "g.md").read_text()


def test_which_cells_are_above_their_budget(raw: Path) -> None:
    write(raw, 1.0, workload="a")
    write(raw, 3.0, workload="b")
    document = json.loads(gate(raw, "--budget", 2, "--json").stdout)
    assert document["above_budget"] == ["b / xtrace / pp / NVIDIA H200"]
    assert document["suites"][0]["percent"] == pytest.approx(2.0, abs=0.01)
    assert document["suites"][0]["cells"] == ["a", "b"]


def test_files_and_a_verdict_shown_again(raw: Path, tmp_path: Path) -> None:
    write(raw, 1.0, workload="a")
    write(raw, 3.0, workload="b")
    write(raw, 2.0, workload="c")
    write(raw, 1.0, workload="d", control=2.0)
    out, md, xml = (tmp_path / name for name in ("gate.json", "gate.md", "gate.xml"))
    first = gate(raw, "--budget", 2, "--out", out, "--markdown", md, "--junit", xml)
    texts = md.read_text(), xml.read_bytes()
    again = gate(out, "--markdown", md, "--junit", xml)
    assert (again.exit_code, again.output) == (first.exit_code, first.output)
    assert (md.read_text(), xml.read_bytes()) == texts
    suite = ET.fromstring(xml.read_bytes())
    assert {k: suite.get(k) for k in ("tests", "failures", "errors", "skipped")} == {
        "tests": "4",
        "failures": "1",
        "errors": "1",
        "skipped": "1",
    }
    kinds = {case.get("name"): [e.tag for e in case if e.tag != "system-out"] for case in suite.iter("testcase")}
    assert kinds == {"a pp": [], "b pp": ["failure"], "c pp": ["skipped"], "d pp": ["error"]}
    assert md.read_text().startswith("### ❌ Tracing overhead: FAIL: ")
    assert "<details>" in texts[0]
    assert texts[0].count("\n| ") == 5  # one table with all cells


def test_the_verdict_keeps_to_its_schema(raw: Path) -> None:
    write(raw, 3.0, old=1.0)
    write(raw, 1.0, workload="few", processes=5)
    write(raw, 9.0, tracer="proton")
    document = json.loads(gate(raw, "--budget", 2, "--json", "--expect", "a:xtrace:pp").stdout)
    check_schema(document, load_yaml(VERDICT_SCHEMA), "gate.json")
    assert [c["verdict"] for c in document["cells"]] == ["INCONCLUSIVE", "FAIL", "INCONCLUSIVE"]


@pytest.mark.parametrize("seed", range(30))
def test_a_verdict_that_was_tampered_with_is_bad_input_and_no_bug(raw: Path, tmp_path: Path, seed: int) -> None:
    write(raw, 3.0, old=1.0)
    document = json.loads(gate(raw, "--budget", 2, "--json", "--expect", "a:xtrace:pp").stdout)
    rng = random.Random(seed)
    place: Any = document
    while isinstance(place, dict | list) and place:
        parent = place
        key = rng.choice(list(place) if isinstance(place, dict) else list(range(len(place))))
        place = place[key]
        if rng.random() < 0.2:
            break
    if rng.random() < 0.5:
        parent[key] = rng.choice(["x", None, 7, -1.5, [], {}, True])
    else:
        del parent[key]
    (tmp_path / "gate.json").write_text(json.dumps(document))
    done = gate(tmp_path / "gate.json", "--explain", "--markdown", tmp_path / "g.md", "--junit", tmp_path / "g.xml")
    assert "XT0001" not in done.stderr
    assert done.exit_code in range(5)


def test_hostile_names_stay_in_their_place(raw: Path, tmp_path: Path) -> None:
    name = 'x|<img src=1>\x00\x1b[31m"&]]>`@all`\ud800'
    write(raw, 3.0, workload="w")
    for file in raw.glob("*.json"):
        document = json.loads(file.read_text())
        document["cell"]["workload"] = name
        file.write_text(json.dumps(document))
    md, xml = tmp_path / "g.md", tmp_path / "g.xml"
    done = gate(raw, "--budget", 2, "--markdown", md, "--junit", xml)
    assert done.exit_code == 1
    assert "<img" not in md.read_text().replace("`x|<img", "")  # only inside a code span
    (case,) = ET.fromstring(xml.read_bytes()).iter("testcase")
    assert "<img src=1>" in str(case.get("name"))
    assert "\x1b" not in done.output
