"""``xtrace show`` and ``xtrace export`` on a saved trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.trace.synthetic import KERNEL, attention
from xtrace.cli.main import cli
from xtrace.trace import decode, save


def xtrace(*arguments: object) -> Result:
    return CliRunner().invoke(cli, list(map(str, arguments)), prog_name="xtrace")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    launch = attention()
    tables = decode(launch.buffer, launch.map, KERNEL, grid=launch.grid, block=launch.block)
    return save(tmp_path_factory.mktemp("t") / "t.xtrace", tables, launch.map, {"device": "model"})


def test_show_says_what_was_recorded_and_how_well_time_is_known(trace: Path) -> None:
    result = xtrace("show", trace)
    assert result.exit_code == 0, result.output
    for part in ("4 CTAs, 48 warps on 2 SMs", "0 dropped", "error below", "softmax", "warps 4-11", "CTA 0"):
        assert part in result.stdout


def test_show_as_json_is_one_document(trace: Path) -> None:
    document = json.loads(xtrace("show", trace, "--json").stdout)
    assert document["summary"]["complete"] is True
    assert {"role", "phase", "share", "mean_ns"} <= set(document["phases"][0])
    assert sum(site["records"] for site in document["sites"]) == document["summary"]["written"]


def test_show_writes_a_picture_of_a_chosen_cta(trace: Path, tmp_path: Path) -> None:
    assert xtrace("show", trace, "--plot", tmp_path / "c.svg", "--cta", 2, "--window", "2:6").exit_code == 0
    assert "CTA 2 on SM 0" in (tmp_path / "c.svg").read_text()


def test_an_incomplete_trace_ends_with_exit_code_1_and_says_why(tmp_path: Path) -> None:
    launch = attention(ring=128)
    tables = decode(launch.buffer, launch.map, KERNEL, grid=launch.grid, block=launch.block)
    path = save(tmp_path / "t.xtrace", tables, launch.map, {})
    result = xtrace("show", path)
    assert result.exit_code == 1
    assert "records were overwritten" in result.stdout
    exported = xtrace("export", path, "--format", "csv", "-o", tmp_path / "o.csv")
    assert exported.exit_code == 0
    assert "records were overwritten" in exported.stderr


@pytest.mark.parametrize("kind", ["perfetto", "chrome", "csv"])
def test_export_writes_the_file_and_nothing_on_stdout(trace: Path, tmp_path: Path, kind: str) -> None:
    result = xtrace("export", trace, "--format", kind, "-o", tmp_path / "out", "--cta", "0,2-3")
    assert (result.exit_code, result.stdout) == (0, "")
    assert (tmp_path / "out").stat().st_size > 1000


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "absent.xtrace"],
        ["show", "TRACE", "--cta", "99"],
        ["show", "TRACE", "--window", "5"],
        ["show", "TRACE", "--window", "nan:1"],
        ["show", "TRACE", "--launch", "3"],
        ["export", "TRACE", "-o", "OUT", "--cta", "x"],
        ["export", "TRACE", "-o", "OUT", "--cta", "0-99999999999"],
        ["export", "TRACE", "-o", "OUT", "--cta", "50"],
        ["export", "TRACE", "-o", "OUT", "--launch", "-1"],
        ["export", "TRACE", "-o", "OUT", "--format", "pdf"],
        ["export", "NOISE", "-o", "OUT"],
    ],
    ids=" ".join,
)
def test_wrong_requests_are_one_line_and_leave_no_file(trace: Path, tmp_path: Path, arguments: list[str]) -> None:
    noise = tmp_path / "noise"
    noise.write_bytes(b"PK\x03\x04" + bytes(range(256)))
    places = {"TRACE": trace, "OUT": tmp_path / "out", "NOISE": noise}
    result = xtrace(*(places.get(a, a) for a in arguments))
    assert result.exit_code == 2
    assert result.stderr.startswith("error[XT")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
