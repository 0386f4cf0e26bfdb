"""The table of matched sites is data with a checked schema."""

from __future__ import annotations

from pathlib import Path

import pytest

from baselines.sites import load_groups
from xtrace.errors import BadInput

GOOD = """
schema: xtrace/matched-sites/1
phases:
  wait: {xtrace: [BAR*], ttgir: {ops: [a.b], exact: true}, ptx: {ops: [bar.sync], exact: true}}
groups:
  g: {xtrace: "op:BAR*", marks: [{phase: wait, at: [after, before]}]}
"""


def test_the_shipped_table_loads_and_its_selectors_are_valid() -> None:
    selectors = pytest.importorskip("xtrace.probe.selectors")
    groups = load_groups()
    assert {"sche", "matrix", "waits", "pp"} <= set(groups)
    for group in groups.values():
        selectors.validate(group.xtrace)


def test_waits_are_exact_in_every_language() -> None:
    for mark in load_groups()["waits"].marks:
        assert mark.phase.ttgir.exact
        assert mark.phase.ptx.exact
        assert mark.at == ("before", "after")


def test_a_small_table(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(GOOD)
    assert load_groups(path)["g"].marks[0].at == ("before", "after")


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ("matched-sites/1", "matched-sites/9", "schema"),
        ("phase: wait", "phase: sleep", "groups.g.marks[0]"),
        ("at: [after, before]", "at: [during]", "groups.g.marks[0]"),
        ("at: [after, before]", "at: []", "groups.g.marks[0]"),
        ("ops: [a.b], exact: true", "ops: [a.b]", "phases.wait.ttgir"),
        ("ops: [a.b], exact: true", "ops: [a.b], exact: false", "phases.wait.ttgir"),
        ("ops: [bar.sync]", "ops: bar.sync", "phases.wait.ptx.ops"),
        ("xtrace: [BAR*],", "xtrace: [BAR*], run_gap: soon,", "phases.wait.run_gap"),
        ("marks:", "other:", "groups.g"),
        ("phases:", "phase: [", ""),
    ],
)
def test_a_wrong_table_names_the_key(tmp_path: Path, old: str, new: str, where: str) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(BadInput) as caught:
        load_groups(path)
    assert caught.value.code == "XT7304"
    assert where in caught.value.where
