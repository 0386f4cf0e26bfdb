"""``xtrace verify``: exit codes, the JSON document, what people read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.verify import handmade as h
from xtrace.cli.main import cli


def run(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as leaving:
        cli.main([str(a) for a in args], "xtrace")
    out, err = capsys.readouterr()
    return int(leaving.value.code or 0), out, err


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    traced = h.spin()
    image, out = tmp_path / "spin.cubin", tmp_path / "traced.cubin"
    image.write_bytes(traced.original)
    out.write_bytes(traced.data)
    (tmp_path / "traced.cubin.map.json").write_text(json.dumps(traced.map))
    return image, out


def test_sound_image_exits_0(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "verify", *files)
    assert code == 0
    assert out.count("PASS") == 7
    assert "0 kernel control fields changed" in out


def test_json_is_the_certificate(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    saved = files[0].with_name("certificate.json")
    code, out, _ = run(capsys, "verify", *files, "--json", "--certificate", saved)
    document = json.loads(out)
    assert code == 0
    assert document["ok"] is True
    assert document["promises"]["hazards"] == "PASS"
    assert json.loads(saved.read_text()) == document


def test_broken_promise_exits_1_with_its_witness(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    bad = h.spin(h.record_words(data=8))
    files[1].write_bytes(bad.data)
    files[1].with_name("bad.json").write_text(json.dumps(bad.map))
    code, out, _ = run(capsys, "verify", *files, "--map", files[1].with_name("bad.json"))
    assert code == 1
    assert "FAIL" in out
    assert "writes R8" in out


def test_missing_map_is_said_and_exits_1(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    files[1].with_name("traced.cubin.map.json").unlink()
    code, out, _ = run(capsys, "verify", *files)
    assert code == 1
    assert "NOT-CHECKED" in out
    assert "no trace map" in out


@pytest.mark.parametrize("content", ["", "{", "[]", "[" * 100000, '{"schema": "x"}', "\x00"])
def test_unusable_map_exits_2(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str], content: str) -> None:
    files[1].with_name("traced.cubin.map.json").write_text(content)
    code, out, err = run(capsys, "verify", *files, "--json")
    assert (code, out) == (2, "")
    assert err.startswith("error[XT400")
    assert err.count("\n") == 1


def test_unusable_file_exits_2_and_writes_nothing(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    files[1].write_bytes(files[1].read_bytes()[:1000])
    saved = files[0].with_name("certificate.json")
    code, out, err = run(capsys, "verify", *files, "--certificate", saved)
    assert (code, out) == (2, "")
    assert err.startswith("error[XT1")
    assert not saved.exists()
