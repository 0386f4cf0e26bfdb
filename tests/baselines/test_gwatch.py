"""The G-Watch baseline and the comparison with it: what the tool cannot do is written down, never hidden."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from baselines.api import Workload
from baselines.gwatch.build import GWatch
from baselines.gwatch.records import read_records
from baselines.gwatch.tool import Tool
from baselines.run import BaselineArm
from tests.baselines import fake_gwatch
from workflow.scripts import compare_gwatch, gwatch_report, measure_overhead
from workflow.scripts.common import read_json, write_json
from workflow.scripts.gwatch_pairs import Layout
from xtrace.errors import BadInput
from xtrace.image import load
from xtrace.runtime.device import LaunchConfig
from xtrace.stats.samples import SCHEMA

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
NAME = "softmax_triton"
PARAMETERS = [("ptr", 0), ("ptr", 0), ("i32", 1), ("i32", 1), ("i32", 1), ("ptr", 0), ("ptr", 0)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus" / NAME
    folder.mkdir(parents=True)
    shutil.copyfile(GOLDEN / "triton_softmax.cubin", folder / "original.cubin")
    shapes = {"default": {"grid": [4, 1, 1]}, "check": {"grid": [2, 1, 1]}}
    launch = {"block": [256, 1, 1], "shared": 128, "shapes": shapes, "parameters": [{}] * len(PARAMETERS)}
    kernel = load(GOLDEN / "triton_softmax.cubin").kernels[0].name
    (folder / "meta.json").write_text(json.dumps({"workload": NAME, "kernel": kernel, "launch": launch}))
    return folder.parent


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    return Tool(fake_gwatch.write(tmp_path / "packages"))


def test_sites_that_cannot_be_placed_are_named_and_the_others_stay(
    corpus: Path, tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = GWatch(tool, records=64).build(Workload.open(corpus / NAME), "pp", tmp_path / "plain")
    assert plain.status == "ok", plain.reason
    pcs = sorted(plain.record["pcs"].values())
    assert len(pcs) > 2
    monkeypatch.setenv("FAKE_REFUSES", f"{pcs[0] // 16} {pcs[2] // 16}")
    some = GWatch(tool, records=64).build(Workload.open(corpus / NAME), "pp", tmp_path / "some")
    assert sorted(some.record["pcs"].values()) == [pcs[1], *pcs[3:]]
    assert [r["pc"] for r in some.record["refused"]] == [pcs[0], pcs[2]]
    assert all("no feasible schedule" in r["reason"] for r in some.record["refused"])
    monkeypatch.setenv("FAKE_REFUSES", " ".join(str(pc // 16) for pc in pcs))
    none = GWatch(tool, records=64).build(Workload.open(corpus / NAME), "pp", tmp_path / "none")
    assert (none.status, "no site could be placed" in none.reason) == ("failed", True)


def test_entry_and_exits_are_records_with_the_device_wide_timer(corpus: Path, tool: Tool, tmp_path: Path) -> None:
    result = GWatch(tool).build(Workload.open(corpus / NAME), "sche", tmp_path / "out")
    assert result.status == "ok", result.reason
    assert result.record["clock"] == "gpu"
    assert result.record["pcs"][1] == 16  # nothing can stand before the tool's own prologue
    assert {s.op.split(".")[0] for s in result.sites[1:]} == {"EXIT"}


def test_a_tool_that_is_missing_or_hangs_gives_a_reason(
    corpus: Path, tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = Workload.open(corpus / NAME)
    absent = GWatch(Tool(tmp_path / "nothing"))
    assert not absent.available().ok
    assert absent.build(workload, "pp", tmp_path / "a").status == "unsupported"
    monkeypatch.setenv("FAKE_HANGS", "30")
    slow = GWatch(tool, timeout_s=1.0).build(workload, "pp", tmp_path / "b")
    assert (slow.status, "did not end within 1 s" in slow.reason) == ("failed", True)


def test_the_appended_parameter_takes_the_buffer(corpus: Path, tool: Tool, tmp_path: Path) -> None:
    from baselines.api import write_result
    from xtrace.runtime.simulated_machine import SimulatedMachine

    result = GWatch(tool, records=64).build(Workload.open(corpus / NAME), "pp", tmp_path / "out")
    write_result(result, tmp_path / "out")
    assert result.launch
    assert result.launch.buffers[0].parameter == len(PARAMETERS) == result.launch.parameters - 1
    device = SimulatedMachine.open()
    arm = BaselineArm.load(device, tmp_path / "out", LaunchConfig((4, 1, 1), (256, 1, 1)), [PARAMETERS])
    block = result.launch.buffers[0].bytes_per_unit
    assert block >= result.record["header_bytes"] + 4 * 64
    assert arm.buffers[0][1] >= 32 * block
    arm.launch(0)


RECORD = {"bytes": 4, "block_bytes": 96, "header_bytes": 40, "id_bits": 6, "capacity": 12, "pcs": {"1": 16, "2": 48}}


def test_records_are_counted_by_site_and_what_is_wrong_is_seen() -> None:
    blocks = np.zeros((4, 24), "<u4")
    blocks[0, 10:14] = [100 << 6 | 1, 110 << 6 | 2, 120 << 6 | 1, 130 << 6 | 2]
    blocks[1, 10:13] = [200 << 6 | 1, 190 << 6 | 2, 77 << 6 | 9]  # backwards, and a word of no site
    blocks[2, 10:22] = np.arange(12) << 6 | 1
    blocks[2, :10] = 0xFFFFFFFF  # the header is not a record
    found = read_records(blocks.tobytes() + bytes(64), RECORD, 4)
    assert found.per_site == {1: 15, 2: 3}
    assert (found.total, found.stray, found.full, found.silent, found.backwards) == (18, 1, 1, 1, 1)
    wrapped = np.zeros((1, 24), "<u4")
    wrapped[0, 10:12] = [((1 << 26) - 5) << 6 | 1, 3 << 6 | 2]
    assert read_records(wrapped.tobytes(), RECORD, 1).backwards == 0
    with pytest.raises(BadInput, match="blocks"):
        read_records(blocks.tobytes(), RECORD, 5)


def compare(corpus: Path, tool: Tool, out: Path, *steps: str) -> dict:
    arguments = ["--out", str(out), "--corpus", str(corpus), "--kernels", NAME, "--groups", "pp"]
    arguments += ["--gwatch", str(tool.packages), "--steps", *steps]
    assert compare_gwatch.main(arguments) == 0
    return read_json(Layout(out, corpus).pair(NAME, "pp-matched"))


def test_both_images_have_their_probes_at_the_same_places(
    corpus: Path, tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_REFUSES", "")
    document = compare(corpus, tool, tmp_path / "out", "build")
    assert document["failures"] == []
    assert document["timed"]
    assert document["xtrace"]["certificate"] is True
    assert len(document["sites"]) <= min(document["xtrace"]["placed"], document["gwatch"]["placed"])
    assert all(site["xtrace"] and site["gwatch"] for site in document["sites"])
    layout = Layout(tmp_path / "out", corpus)
    entry = read_json(f"{layout.xtrace_image(NAME, 'pp-matched')}.map.json")["kernels"][0]
    ours = sorted(s["pc"] for s in entry["sites"] if s["id"] is not None)
    theirs = read_json(layout.gwatch(NAME, "pp-matched") / "result.json")["record"]["pcs"]
    assert ours == sorted(theirs.values()) == [site["pc"] for site in document["sites"]]
    assert document["preservation"]["xtrace"]["relocated"] == 1.0


def test_a_failure_of_either_tool_is_part_of_the_report(
    corpus: Path, tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_REFUSES", " ".join(map(str, range(2000))))
    document = compare(corpus, tool, tmp_path / "out", "build", "check", "own", "time", "report")
    assert not document["timed"]
    assert [f["step"] for f in document["failures"]] == ["gwatch build"]
    assert "no site could be placed" in capsys.readouterr().out


def test_both_tools_are_timed_in_the_same_processes(
    corpus: Path, tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(corpus, tool, tmp_path / "out", "build")
    seen: list[list[str]] = []
    monkeypatch.setattr(compare_gwatch.subprocess, "run", lambda command, **_: seen.append(command))
    compare(corpus, tool, tmp_path / "out", "time")
    (command,) = seen
    given = measure_overhead.parser().parse_args(command[2:])
    assert given.cells == [f"{NAME}:xtrace:pp-matched", f"{NAME}:gwatch:pp-matched"]
    layout = Layout(tmp_path / "out", corpus)
    assert (given.corpus, given.traced, given.baselines) == (corpus, layout.traced, layout.baselines)
    assert given.control_blocks > 0


def test_the_report_gives_intervals_outputs_and_record_counts(corpus: Path, tool: Tool, tmp_path: Path) -> None:
    document = compare(corpus, tool, tmp_path / "out", "build")
    layout = Layout(tmp_path / "out", corpus)
    document["gwatch_trace"] = {"per_site": {str(s["gwatch"]): 7 for s in document["sites"]}}
    write_json(layout.pair(NAME, "pp-matched"), document)
    counts = {document["kernel"]: {str(s["xtrace"]): 7 for s in document["sites"]}}
    for process in range(6):
        for tracer, ratio in (("xtrace", 1.01), ("gwatch", 1.08)):
            cell = dict.fromkeys(("kernel", "shape", "dtype", "device"), "x")
            cell |= {"workload": NAME, "tracer": tracer, "probes": "pp-matched"}
            a = 1000.0 + process
            checks = {"bit_identical": tracer == "xtrace", "records_per_site": counts if tracer == "xtrace" else {}}
            block = {"order": "ABBA", "sm_clock_mhz": 1980, "throttle": "none"}
            blocks = [
                block | {"kind": "AB", "ns": [a, a * (ratio + 1e-4 * process), a * ratio, a]},
                block | {"kind": "AA", "ns": [a, a, a, a * 1.0001]},
            ]
            raw = {"schema": SCHEMA, "cell": cell, "provenance": {}, "process": process, "blocks": blocks}
            write_json(layout.raw / f"{NAME}.{tracer}.pp-matched.{process}.json", raw | {"checks": checks})
    row = gwatch_report.collect(layout, [NAME], ["pp"])["pairs"][0]
    ours, theirs = row["measured"]["xtrace"], row["measured"]["gwatch"]
    assert ours["overhead"]["low_percent"] < ours["overhead"]["percent"] < ours["overhead"]["high_percent"] < 2
    assert theirs["overhead"]["low_percent"] > 7
    assert (ours["outputs_equal"], theirs["outputs_equal"]) == (True, False)
    assert row["records_agree"] is True
    assert "outputs DIFFER" in gwatch_report.table({"pairs": [row]})
