"""``xtrace results``: what is there, and one folder out of several, whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.workflow.samples import raw_sample
from xtrace.cli import results
from xtrace.errors import BadInput


def write(folder: Path, *documents: dict[str, Any]) -> Path:
    folder.mkdir(parents=True)
    for n, document in enumerate(documents):
        (folder / f"{n}.json").write_text(json.dumps(document))
    return folder


def machine(number: int, processes: int = 2) -> list[dict[str, Any]]:
    found = [raw_sample(process) for process in range(processes)]
    for document in found:
        document["provenance"] = {**document.get("provenance", {}), "uuid": f"GPU-{number:08d}-0", "driver": "580"}
    return found


def run(*arguments: object) -> str:
    done = CliRunner().invoke(results.command, list(map(str, arguments)), catch_exceptions=False)
    return done.output


def test_merge_copies_every_sample_and_says_where_it_came_from(tmp_path: Path) -> None:
    one, two = write(tmp_path / "one", *machine(1)), write(tmp_path / "two", *machine(2, 3))
    (one / "notes.json").write_text("{}")
    manifest = json.loads(run("merge", one, two, "-o", tmp_path / "out", "--json"))
    assert json.loads((tmp_path / "out" / "merged.json").read_text()) == manifest
    assert [len(c["processes"]) for c in manifest["cells"]] == [2, 3]
    assert len({c["device"] for c in manifest["cells"]}) == 2
    for entry in manifest["files"]:
        copied = json.loads((tmp_path / "out" / entry["file"]).read_text())
        original = json.loads(Path(entry["from"]).read_text())
        assert copied.pop("cell").pop("device").startswith(original.pop("cell").pop("device"))
        assert copied == original


def test_what_was_merged_can_be_listed_and_merged_on(tmp_path: Path) -> None:
    one, two, three = (write(tmp_path / str(n), *machine(n)) for n in (1, 2, 3))
    run("merge", one, two, "-o", tmp_path / "out")
    assert len(json.loads(run("list", tmp_path / "out", "--json"))["cells"]) == 2
    run("merge", tmp_path / "out", three, "-o", tmp_path / "more")
    assert len(json.loads(run("list", tmp_path / "more", "--json"))["cells"]) == 3
    with pytest.raises(BadInput, match="is there twice"):
        run("merge", tmp_path / "out", one, "-o", tmp_path / "never")


def test_a_refused_merge_leaves_nothing_behind(tmp_path: Path) -> None:
    one, two = write(tmp_path / "one", *machine(1)), write(tmp_path / "two", *machine(1))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(BadInput, match="is there twice"):
        run("merge", one, two, "-o", tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == before


def test_an_existing_folder_is_not_touched(tmp_path: Path) -> None:
    one = write(tmp_path / "one", *machine(1))
    (tmp_path / "out").mkdir()
    with pytest.raises(BadInput, match="exists already"):
        run("merge", one, "-o", tmp_path / "out")


def test_a_folder_without_samples_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(BadInput, match="no raw samples"):
        run("list", tmp_path)


def test_the_list_shows_why_a_cell_is_empty(tmp_path: Path) -> None:
    empty = {
        **raw_sample(0),
        "blocks": [],
        "provenance": {},
        "unsupported": "AMD architecture gfx942 is not modelled yet",
    }
    write(tmp_path / "a", empty)
    assert "not measured: AMD architecture gfx942" in run("list", tmp_path / "a")


def test_names_in_samples_cannot_leave_the_folder_or_hide_each_other(tmp_path: Path) -> None:
    hostile = raw_sample(0)
    hostile["cell"] |= {"workload": "../../w", "device": "/etc", "tracer": "a/b"}
    hostile["provenance"]["device"] = "../.."
    run("merge", write(tmp_path / "one", hostile), "-o", tmp_path / "deep" / "out")
    inside = list((tmp_path / "deep").rglob("*.json"))
    assert len(inside) == 2
    assert {p.name for p in tmp_path.iterdir()} == {"one", "deep"}
    alike = [raw_sample(0), raw_sample(0)]
    alike[0]["cell"]["workload"], alike[1]["cell"]["workload"] = "a+b", "a/b"
    with pytest.raises(BadInput, match="the same file name"):
        run("merge", write(tmp_path / "two", *alike), "-o", tmp_path / "never")
    assert not (tmp_path / "never").exists()
