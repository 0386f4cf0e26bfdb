"""How long a measurement will take, and which cells get the one extension."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.workflow.samples import SOFTMAX, raw_sample
from workflow.scripts import measure_overhead, measure_plan
from workflow.scripts.common import write_json
from workflow.scripts.gpu_files import CellName
from xtrace.errors import BadInput
from xtrace.stats.budgets import parse_budgets

PP, SCHE = CellName(SOFTMAX, "xtrace", "pp"), CellName(SOFTMAX, "xtrace", "sche")


def arguments(folder: Path, *more: str):
    return measure_overhead.parse(["--out", str(folder), "--recorded", str(folder), *more])


def first_look(folder: Path, overheads: dict[str, float], processes: int = 10, spread: float = 0.004) -> None:
    for probes, overhead in overheads.items():
        rng = random.Random(probes)
        for process in range(processes):
            document = raw_sample(process, probes=probes, ratio=1 + overhead + rng.gauss(0, spread))
            document["blocks"] = [b for b in document["blocks"] if b["kind"] in {"AB", "AA"}]
            document["checks"] |= {"bit_identical": True, "records_emitted": 5, "records_expected": 5}
            write_json(folder / f"{SOFTMAX}.xtrace.{probes}.{process}.json", document)


def shape_of(folder: Path) -> tuple[str, ...]:
    document = measure_plan.read_documents(folder)[0]
    kinds = [b["kind"] for b in document["blocks"]]
    return "--blocks", str(kinds.count("AB")), "--control-blocks", str(kinds.count("AA"))


def test_recorded_seconds_are_scaled_to_the_blocks_asked_for(tmp_path: Path) -> None:
    first_look(tmp_path, {"pp": 0.01}, processes=1)
    path = tmp_path / f"{SOFTMAX}.xtrace.pp.0.json"
    document = measure_plan.read_documents(tmp_path)[0]
    del document["file"]
    write_json(path, document | {"seconds": {"checks": 2.0, "timing": 3.0}})
    count = len(document["blocks"])
    args = arguments(tmp_path, "--blocks", str(2 * count), "--control-blocks", "0")
    (estimate,) = measure_plan.plan(args, measure_plan.first_look(args, [PP], None))
    assert estimate.seconds == pytest.approx(2.0 + 2 * 3.0)
    assert estimate.basis == "recorded"
    assert len(estimate.processes) == 10
    both = arguments(tmp_path, "--blocks", str(count), "--control-blocks", "0", "--base", "old", "--pad")
    (estimate,) = measure_plan.plan(both, measure_plan.first_look(both, [PP], None))
    assert estimate.seconds == pytest.approx(2.0 + 3 * 3.0)


def test_the_plan_says_what_it_does_not_know(tmp_path: Path) -> None:
    first_look(tmp_path, {"pp": 0.01}, processes=2)
    args = arguments(tmp_path)
    text = measure_plan.table(measure_plan.plan(args, measure_plan.first_look(args, [PP, SCHE], None)))
    assert "never measured" in text
    assert "2 cells in 10 processes: about" in text
    assert "1 never measured and not counted" in text


def test_planning_touches_no_device(tmp_path: Path, capsys) -> None:
    first_look(tmp_path, {"pp": 0.01}, processes=1)
    code = measure_overhead.main(
        ["--out", str(tmp_path / "no"), "--recorded", str(tmp_path), "--plan", "--cells", str(PP)]
    )
    assert code == 0
    assert "estimated" in capsys.readouterr().out
    assert not (tmp_path / "no").exists()


def test_only_undecided_cells_are_extended_once_to_the_declared_number(tmp_path: Path) -> None:
    first_look(tmp_path, {"pp": 0.02, "sche": 0.001})
    args = arguments(tmp_path, *shape_of(tmp_path), "--extend-from", str(tmp_path))
    assert measure_plan.extension(args, [PP, SCHE], None) == {PP: range(10, 20)}


def test_a_budget_declares_processes_and_is_what_decides(tmp_path: Path) -> None:
    first_look(tmp_path, {"pp": 0.02}, processes=12)
    first_look(tmp_path, {"sche": 0.001}, processes=10)
    budgets = parse_budgets(
        {
            "schema": "xtrace/budgets/1",
            "budgets": [{"budget": 5}, {"kernel": SOFTMAX, "probes": "pp", "budget": 2, "processes": 12}],
        },
        "budgets.yaml",
    )
    args = arguments(tmp_path, *shape_of(tmp_path), "--extend-from", str(tmp_path))
    assert measure_plan.first_look(args, [PP, SCHE], budgets) == {PP: range(12), SCHE: range(10)}
    assert measure_plan.extension(args, [PP, SCHE], budgets) == {PP: range(12, 24)}
    given = arguments(tmp_path, "--processes", "3")
    assert measure_plan.first_look(given, [PP], budgets) == {PP: range(3)}


def test_an_extension_stays_in_its_folder(tmp_path: Path) -> None:
    args = arguments(tmp_path, "--extend-from", str(tmp_path / "other"))
    with pytest.raises(BadInput, match="folder of its first look"):
        measure_plan.extension(args, [PP], None)


def test_after_the_extension_nothing_is_due(tmp_path: Path) -> None:
    first_look(tmp_path, {"pp": 0.02}, processes=20)
    args = arguments(tmp_path, *shape_of(tmp_path), "--extend-from", str(tmp_path))
    assert measure_plan.extension(args, [PP], None) == {}


def test_an_unfinished_first_look_cannot_be_extended(tmp_path: Path) -> None:
    first_look(tmp_path, {"pp": 0.02}, processes=7)
    args = arguments(tmp_path, *shape_of(tmp_path), "--extend-from", str(tmp_path))
    with pytest.raises(BadInput, match="7 of 10 processes"):
        measure_plan.extension(args, [PP], None)


def test_the_extension_keeps_the_protocol_of_the_first_look(tmp_path: Path) -> None:
    first_look(tmp_path, {"pp": 0.02})
    args = arguments(tmp_path, *shape_of(tmp_path), "--extend-from", str(tmp_path), "--base", "old")
    with pytest.raises(BadInput, match="the first look had blocks"):
        measure_plan.extension(args, [PP], None)


def test_the_pad_control_is_for_cells_that_got_faster(tmp_path: Path) -> None:
    cells = [
        {"workload": SOFTMAX, "tracer": "xtrace", "probes": probes, "flags": flags}
        for probes, flags in (("pp", ["LAYOUT_SHIFT", "BIMODAL"]), ("sche", ["BIMODAL"]))
    ]
    verdict = tmp_path / "gate.json"
    write_json(verdict, {"schema": "xtrace/gate/1", "cells": cells})
    assert measure_plan.flagged(verdict, [SCHE, PP]) == [PP]
    write_json(verdict, {"schema": "xtrace/map/1"})
    with pytest.raises(BadInput, match="expected 'xtrace/gate/1'"):
        measure_plan.flagged(verdict, [PP])


def test_without_a_flag_no_pad_control_runs(tmp_path: Path, capsys) -> None:
    verdict = tmp_path / "gate.json"
    write_json(verdict, {"schema": "xtrace/gate/1", "cells": []})
    line = ["--out", str(tmp_path / "pad"), "--pad-flagged", str(verdict), "--cells", str(PP)]
    assert measure_overhead.main(line) == 0
    assert "no pad control is needed" in capsys.readouterr().out
