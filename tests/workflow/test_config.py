"""Every mistake in a configuration is one line with the file, the key, the value and what is allowed."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from workflow.scripts.config import check, load_yaml, probe_specs
from xtrace.errors import BadInput

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(ROOT)
    return copy.deepcopy(load_yaml("configs/default.yaml"))


@pytest.mark.parametrize("path", sorted(p.name for p in (ROOT / "configs").glob("*.yaml")))
def test_shipped_configurations_are_valid(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.chdir(ROOT)
    document = load_yaml(f"configs/{path}")
    if "workloads" in document and "overhead" in document:
        check(document, path)


@pytest.mark.parametrize(
    ("keys", "value", "words"),
    [
        (
            ["overhead"],
            "sometimes",
            ["c.yaml: overhead", "'sometimes' is not allowed", "allowed: auto, measure, recorded"],
        ),
        (["overhed"], "auto", ["c.yaml: overhed", "unknown key", "did you mean 'overhead'?"]),
        (["measurement", "processes"], 0, ["measurement.processes", "0 is not allowed", "at least 1"]),
        (["measurement", "processes"], 99, ["measurement.processes", "at most 40"]),
        (["measurement", "blocks"], "many", ["measurement.blocks", "'many' is not of type integer"]),
        (["measurement", "block"], 3, ["measurement.block", "did you mean 'blocks'?"]),
        (["workloads"], [], ["workloads", "at least"]),
        (
            ["workloads"],
            ["softmax"],
            ["workloads[0]", "'softmax' is not defined in configs/suite.yaml", "softmax_triton"],
        ),
        (["workloads"], ["../../etc"], ["workloads[0]", "'../../etc'"]),
        (["probes"], ["ppp"], ["probes[0]", "did you mean 'pp'?", "allowed: sche"]),
        (["baselines", "tracers"], ["gprof"], ["baselines.tracers[0]", "'gprof' is not allowed", "proton"]),
        (["baselines", "groups"], ["warps"], ["baselines.groups[0]", "configs/matched_sites.yaml"]),
        (["suite"], "configs/gone.yaml", ["configs/gone.yaml", "cannot be read"]),
    ],
)
def test_a_mistake_is_explained(config: dict[str, Any], keys: list[str], value: object, words: list[str]) -> None:
    place = config
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    with pytest.raises(BadInput) as caught:
        check(config, "c.yaml")
    line = str(caught.value)
    assert "\n" not in line
    assert all(word in line for word in words), line


def test_a_missing_key_is_named(config: dict[str, Any]) -> None:
    del config["measurement"]["seed"]
    with pytest.raises(BadInput) as caught:
        check(config, "c.yaml")
    assert "c.yaml: measurement.seed: missing" in str(caught.value)


@pytest.mark.parametrize("text", ["- a\n", "a: [\n", "a: !!python/object/apply:os.system ['true']\n", ""])
def test_what_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(BadInput) as caught:
        load_yaml(path)
    assert str(path) in str(caught.value)


def test_every_group_of_matched_sites_has_a_specification() -> None:
    specs = probe_specs(ROOT / "configs" / "matched_sites.yaml")
    assert specs["sche"] == "sche"
    assert specs["pp"] == "pp"
    assert all(specs.values())
