"""Every mistake in a configuration is one line with the file, the key, the value and what is allowed."""

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workflow.scripts.config import SCHEMA, check, load_yaml, probe_specs
from xtrace.errors import BadInput
from xtrace.isa.nvidia.families import FAMILIES
from xtrace.sampling import probe_set, sampling

ROOT = Path(__file__).resolve().parents[2]


H200 = {"name": "h200", "vendor": "nvidia", "arch": "sm_90a"}


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(ROOT)
    return copy.deepcopy(load_yaml("configs/default.yaml"))


@pytest.mark.parametrize("path", sorted(p.name for p in (ROOT / "configs").glob("*.yaml")))
def test_shipped_configurations_are_valid(config: dict[str, Any], path: str) -> None:
    document = load_yaml(f"configs/{path}")
    if "overhead" in document:  # the others say what kernels, sites, packages and budgets there are
        check(config | document, path)


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
        (["arch"], "sm_99", ["c.yaml: arch", "'sm_99' is not allowed", "allowed: sm_90a"]),
        (["measurement", "matched"], ["barriers"], ["measurement.matched[0]", "'barriers'", "allowed: sche, matrix"]),
        (["budgets"], "configs/gone.yaml", ["configs/gone.yaml", "cannot be read"]),
        (["devices"], [], ["devices", "at least"]),
        (["devices"], [{"name": "h200"}], ["devices[0].vendor", "missing"]),
        (["devices"], [H200 | {"arch": "sm_91"}], ["devices[0].arch", "'sm_91' is not allowed", "sm_90a"]),
        (["devices"], [H200 | {"vendor": "amd"}], ["devices[0].arch", "amd makes no sm_90a", "allowed: gfx90a"]),
        (["devices"], [H200 | {"arch": "gfx942"}], ["devices[0].arch", "nvidia makes no gfx942"]),
        (["devices"], [H200 | {"modle": "h200"}], ["devices[0].modle", "unknown key", "allowed: name"]),
        (["devices"], [H200 | {"gpu_model": "h200;reboot"}], ["devices[0].gpu_model"]),
        (["devices"], [H200, H200], ["devices[1].name", "'h200' is there twice"]),
        (
            ["devices"],
            [{"name": "s", "vendor": "simulated", "arch": "sm_103a"}],
            ["devices[0].arch", "not sm_103a", "allowed: sm_90a"],
        ),
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


@pytest.mark.parametrize(
    ("name", "probes", "rule"),
    [
        ("pp", "pp", None),
        ("pp@cta8", "pp", "cta=8"),
        ("sche@cta8-3+warpgroup1", "sche", "cta=8/3,warp=4-7"),
        ("pp@warp0-2", "pp", "warp=0-2"),
    ],
)
def test_a_sampled_probe_set_is_named_by_its_rule(name: str, probes: str, rule: str | None) -> None:
    found = sampling(name)
    assert probe_set(name) == probes
    assert (None if found is None else str(found)) == rule


@pytest.mark.parametrize("name", ["pp@", "pp@cta", "pp@cta0", "pp@every3", "@cta3"])
def test_a_badly_named_sampled_set_is_one_readable_error(name: str, tmp_path: Path) -> None:
    config = {**load_yaml(ROOT / "configs" / "quick.yaml"), "probes": ["sche", name]}
    with pytest.raises(BadInput) as caught:
        check(config, "c.yaml")
    assert caught.value.code == "XT7402"
    assert "probes[1]" in caught.value.where


def test_every_architecture_that_is_modelled_can_be_configured() -> None:
    known = load_yaml(SCHEMA)["$defs"]["device"]["properties"]["arch"]["enum"]
    missing = {a for family in FAMILIES for a in family.archs if not a.endswith("f")} - set(known)
    assert not missing


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (
            {"kernel": "softmax_tritn", "budget": 2},
            ["budgets[1].kernel", "softmax_tritn", "did you mean 'softmax_triton'?"],
        ),
        ({"probes": "ppp", "budget": 2}, ["budgets[1].probes", "no cell has 'ppp'", "sche"]),
        ({"kernel": "softmax_triton", "probes": "matrix", "budget": 2}, ["budgets[1].probes", "softmax_triton", "pp"]),
        ({"kernel": "softmax_triton", "budgt": 2}, ["budgets[1].budgt", "did you mean 'budget'?"]),
        ({"budget": -2}, ["budgets[1].budget", "-2", "greater than"]),
    ],
)
def test_a_budget_without_a_cell_is_found_before_anything_is_measured(
    config: dict[str, Any], tmp_path: Path, entry: dict[str, Any], words: list[str]
) -> None:
    shutil.copy("configs/suite.yaml", tmp_path)
    config["budgets"] = str(tmp_path / "b.yaml")
    document = {"schema": "xtrace/budgets/1", "suite": "suite.yaml", "budgets": [{"budget": 2}, entry]}
    (tmp_path / "b.yaml").write_text(yaml.safe_dump(document))
    with pytest.raises(BadInput) as caught:
        check(config, "c.yaml")
    line = str(caught.value)
    assert all(word in line for word in ["b.yaml", *words]), line


def places(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of everything in a configuration."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


DEFAULT = load_yaml(ROOT / "configs" / "default.yaml") | {"devices": [H200], "budgets": "configs/budgets.yaml"}
PLACES = list(places(DEFAULT))
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30) | st.sampled_from(["pp", "sm_90a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=3),
    max_leaves=6,
)


def changed(path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> dict[str, Any]:
    """A copy of the default configuration in which ``change(container, key)`` was applied at ``path``."""
    made = copy.deepcopy(DEFAULT)
    place: Any = made
    for key in path[:-1]:
        place = place[key]
    change(place, path[-1])
    return made


def complaint(config: dict[str, Any]) -> str | None:
    """The line that the user sees, or None; any other exception than BadInput is a bug."""
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        check(config, "c.yaml")
    except BadInput as error:
        return str(error)
    finally:
        os.chdir(before)
    return None


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(PLACES), ANYTHING)
def test_whatever_stands_somewhere_the_answer_is_one_short_line(path: tuple[Any, ...], value: object) -> None:
    line = complaint(changed(path, lambda place, key: place.__setitem__(key, value)))
    if line is not None:
        assert line.startswith("error[XT74")
        assert "\n" not in line
        assert len(line) < 1500


KEYS = [path for path in PLACES if isinstance(path[-1], str)]


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(KEYS), st.integers(0, 40), st.sampled_from(["drop", "double", "swap"]))
def test_a_misspelt_key_is_named_with_the_right_one(path: tuple[Any, ...], position: int, how: str) -> None:
    key = path[-1]
    at = position % (len(key) - 1)
    wrong = {
        "drop": key[:at] + key[at + 1 :],
        "double": key[: at + 1] + key[at:],
        "swap": key[:at] + key[at + 1] + key[at] + key[at + 2 :],
    }[how]
    line = complaint(changed(path, lambda place, old: place.update({wrong: place.pop(old)}))) if wrong != key else None
    if line is not None:
        assert f"{wrong}: unknown key" in line
        assert f"did you mean '{key}'?" in line or f"allowed: {key}" in line or f", {key}" in line
        assert "c.yaml" in line


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(["workloads", "probes", "timelines"]), st.text("abcdefgh_13", min_size=1, max_size=20))
def test_an_unknown_name_is_answered_with_the_known_ones(section: str, name: str) -> None:
    line = complaint(changed((section,), lambda place, key: place[key].insert(1, name)))
    assert line is not None
    assert f"c.yaml: {section}[1]" in line
    assert all(known in line for known in DEFAULT[section][:1])
