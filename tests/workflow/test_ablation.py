"""The ablation: its images, its measurement on the simulated device, its table and figure."""

from __future__ import annotations

import hashlib
import json
import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.runtime.stand_ins import KERNEL, toy_kernel, trace_map
from workflow.scripts import ablation, ablation_images, ablation_table, gpu_cells, gpu_files
from workflow.scripts.ablation_images import ARMS, STEPS
from workflow.scripts.common import read_table
from workflow.scripts.gpu_files import Folders
from xtrace.errors import BadInput
from xtrace.image import load
from xtrace.runtime.device import LaunchConfig
from xtrace.runtime.params import PackedParams
from xtrace.runtime.simulated import SimulatedDevice, simulated_image

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A corpus of one small kernel, under the name of a workload that has a layout of its own."""
    image = GOLDEN / "triton_gemm.cubin"
    folder = tmp_path / "corpus" / "gemm_bf16_triton"
    folder.mkdir(parents=True)
    (folder / "original.cubin").write_bytes(image.read_bytes())
    meta = {"kernel": load(image).kernels[0].name, "sha256": hashlib.sha256(image.read_bytes()).hexdigest()}
    (folder / "meta.json").write_text(json.dumps(meta))
    return tmp_path / "corpus"


def test_every_image_is_written_with_what_is_in_it(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "images"
    ablation_images.main(["--out", str(out), "--corpus", str(corpus), "--workloads", "gemm_bf16_triton"])
    folder = out / "gemm_bf16_triton"
    document = json.loads((folder / "images.json").read_text())
    arms = document["arms"]
    assert list(arms) == [arm.name for arm in ARMS]
    folders = Folders(corpus, out, out)
    for name, facts in arms.items():
        data, trace_map = folders.traced_image("gemm_bf16_triton", name)
        assert hashlib.sha256(data).hexdigest() == facts["sha256"] == trace_map["output"]["sha256"]
        assert facts["words"] > 0
    assert len({facts["sha256"] for facts in arms.values()}) == len(ARMS)
    for step in STEPS:
        assert set(arms[step]["promises"].values()) == {"PASS"}
        assert arms[step]["events"] > 0
    assert arms["packed"]["packets"] < arms["lane"]["packets"] == arms["lane"]["events"]
    assert arms["prologue"]["words"] < arms["ends"]["words"] < arms["clocks"]["words"] < arms["nops"]["words"]
    assert arms["clocks"]["events"] == arms["scheduled"]["events"]
    assert {arms[name]["words"] for name in ("nops", "stalls", "unstored", "scheduled")} == {arms["scheduled"]["words"]}
    assert document["layout"] == 1


def test_an_image_that_is_not_proved_is_not_written(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = type("Certificate", (), {"promises": {"instructions": "PASS", "hazards": "FAIL"}})
    monkeypatch.setattr(ablation_images, "verify", lambda *_: broken)
    with pytest.raises(BadInput, match="naive: not proved: hazards"):
        ablation_images.main(["--out", str(tmp_path), "--corpus", str(corpus), "--workloads", "gemm_bf16_triton"])
    assert not list((tmp_path / "gemm_bf16_triton").glob("*"))


SLOWER = {"naive": 1.10, "separate": 1.08, "lane": 1.05, "packed": 1.02, "scheduled": 1.01, "clocks": 1.005}


def simulated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedDevice:
    """Corpus, images and inputs of a made-up kernel whose time depends on the image."""
    files = {"corpus/toy/original.cubin": simulated_image(KERNEL, "original")}
    facts = {}
    for arm in ARMS:
        data = simulated_image(KERNEL, arm.name)
        entry = trace_map(data)
        if arm.name in ("prologue", "nops", "stalls", "unstored"):
            entry["kernels"][0] |= {"slot": None, "patches": [], "sites": []}
        files[f"images/toy/{arm.name}.cubin"] = data
        files[f"images/toy/{arm.name}.cubin.map.json"] = json.dumps(entry).encode()
        facts[arm.name] = {"sha256": hashlib.sha256(data).hexdigest(), "events": 3, "packets": 3, "words": 9}
        facts[arm.name]["registers"] = 40
    files["images/toy/images.json"] = json.dumps({"arms": facts}).encode()
    sizes = {"bytes": 8, "role": "output"}
    shape = {"sizes": {"n": 5}, "grid": [4, 1, 1], "buffers": {"OUT": sizes}, "scalars": {"n": 5}}
    parameters = [{"name": "OUT", "type": "*i8", "role": "buffer"}, {"name": "n", "type": "i32", "role": "scalar"}]
    launch = {"block": [64, 1, 1], "shared": 0, "parameters": parameters, "shapes": {"default": shape}}
    meta = {"kernel": KERNEL, "variant": "default", "dtype": "i32", "seed": 1, "launch": launch}
    meta["sha256"] = hashlib.sha256(files["corpus/toy/original.cubin"]).hexdigest()
    files["corpus/toy/meta.json"] = json.dumps(meta).encode()
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    made = type("Made", (), {"inputs": {}})
    monkeypatch.setattr(gpu_files.cases, "make", lambda workload, sizes, seed: made)
    monkeypatch.setattr(gpu_cells, "source_expectation", lambda *_: None)

    def behaviour(device: SimulatedDevice, image: bytes, config: LaunchConfig, packed: PackedParams) -> float:
        name = json.loads(image[image.index(b"{") :])["content"]
        ran = toy_kernel(corrupt=name == "lane" and device.info.name == "broken")(device, image, config, packed)
        return ran * SLOWER.get(name, 1.0)

    return SimulatedDevice({KERNEL: behaviour})


def measured(folder: Path, device: SimulatedDevice, monkeypatch: pytest.MonkeyPatch, *more: str) -> dict[str, Any]:
    """The document of a run whose processes are calls in this one."""
    monkeypatch.setattr(ablation, "open_device", lambda _: device)
    out = folder / "out"

    def child(command: list[str], **_: object) -> None:
        assert ablation.main(command[2:]) == 0

    monkeypatch.setattr(ablation, "subprocess", SimpleNamespace(**vars(subprocess) | {"run": child}))
    places = ["--out", str(out), "--images", str(folder / "images"), "--corpus", str(folder / "corpus")]
    ablation.main([*places, "--blocks", "2", "--warm-up", "0.05", *more])
    return json.loads((out / "steps.json").read_text())


def test_steps_are_compared_within_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    device = simulated(tmp_path, monkeypatch)
    document = measured(tmp_path, device, monkeypatch, "--cells", "toy:3")
    assert [p["process"] for p in document["processes"]] == [0, 1, 2]
    assert document["processes"][0]["provenance"]["device"] == device.info.name
    first, second = ([b["kind"] for b in p["workloads"]["toy"]["blocks"]] for p in document["processes"][:2])
    assert sorted(first) == sorted(second) == sorted([*(arm.name for arm in ARMS), "AA"] * 2)
    assert first != second  # mixed at random
    table = {row["arm"]: row for row in ablation_table.rows(document, ["toy"])}
    for arm, factor in SLOWER.items():
        assert table[arm]["overhead_percent"] == pytest.approx(100 * (factor - 1), abs=1e-3)
    assert table["AA"]["overhead_percent"] == pytest.approx(0, abs=1e-3)
    for before, step in pairwise(STEPS):
        gain = 100 * (SLOWER[before] / SLOWER[step] - 1)
        assert table[step]["gain_percent"] == pytest.approx(gain, abs=1e-3)
        assert table[step]["gain_low_percent"] <= table[step]["gain_percent"] <= table[step]["gain_high_percent"]
    assert table["all steps"]["gain_percent"] == pytest.approx(100 * (1.10 / 1.01 - 1), abs=1e-3)
    assert table["naive"]["gain_percent"] == table["clocks"]["gain_percent"] == ""
    assert {row["note"] for row in table.values()} == {""}
    assert "process 2: toy:3 in " in capsys.readouterr().out


def test_a_run_that_was_cut_short_goes_on_and_measures_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    device = simulated(tmp_path, monkeypatch)
    cut = measured(tmp_path, device, monkeypatch, "--cells", "toy:2", "--budget", "0")
    assert len(cut["processes"]) < 2
    table = ablation_table.rows(cut, ["toy"])
    assert all(row["low_percent"] == "" for row in table)  # one process has no interval
    whole = measured(tmp_path, device, monkeypatch, "--cells", "toy:2")
    assert whole["processes"][: len(cut["processes"])] == cut["processes"]
    assert len(whole["processes"]) == 2


def test_an_image_with_other_outputs_is_not_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = simulated(tmp_path, monkeypatch)
    device.info = replace(device.info, name="broken")
    document = measured(tmp_path, device, monkeypatch, "--cells", "toy:2")
    table = {row["arm"]: row for row in ablation_table.rows(document, ["toy"])}
    assert table["lane"]["overhead_percent"] == table["packed"]["gain_percent"] == ""
    assert table["lane"]["note"] == "2 of 2 processes: failed: bit_identical"
    assert table["packed"]["overhead_percent"] == pytest.approx(2, abs=1e-3)


def test_without_samples_every_row_says_so(tmp_path: Path) -> None:
    out = tmp_path / "ablation.csv"
    ablation_table.main(["--workloads", "toy", "--out", str(out)])
    table = read_table(out, ablation_table.COLUMNS)
    assert set(table["note"]) == {"not measured"}
    assert set(table["overhead_percent"]) == {""}
    assert len(table) == len(ARMS) + 2


def test_samples_of_another_kind_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "steps.json"
    path.write_text(json.dumps({"schema": "xtrace/ablation/1"}))
    with pytest.raises(BadInput, match="expected 'xtrace/ablation-steps/1'"):
        ablation_table.main(["--samples", str(path), "--out", str(tmp_path / "out.csv")])
    path.write_text(json.dumps({"schema": ablation_table.SCHEMA, "images": {"toy": {}}, "processes": [1]}))
    with pytest.raises(BadInput, match="not samples of the ablation"):
        ablation_table.main(["--samples", str(path), "--out", str(tmp_path / "out.csv")])


@pytest.mark.parametrize("cell", ["toy", "toy:0", ":3", "toy:x"])
def test_a_cell_needs_a_number_of_processes(cell: str) -> None:
    with pytest.raises(BadInput, match="not a cell"):
        ablation.parse_cells([cell])
