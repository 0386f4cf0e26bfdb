"""Results are written whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from xtrace.errors import BadInput
from xtrace.files import write_atomic


def test_bytes_and_text_replace_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    assert write_atomic(target, "grün\n") == target
    assert target.read_bytes() == "grün\n".encode()
    write_atomic(str(target), b"\0\1")
    assert target.read_bytes() == b"\0\1"
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]


def test_the_file_gets_the_usual_permissions(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_atomic(tmp_path / "a", b"x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


@pytest.mark.parametrize("dangling", [True, False])
def test_symbolic_links_are_refused_and_stay(tmp_path: Path, dangling: bool) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    if not dangling:
        real.write_bytes(b"keep")
    link.symlink_to(real)
    with pytest.raises(BadInput) as caught:
        write_atomic(link, b"x")
    assert caught.value.code == "XT7001"
    assert link.is_symlink()
    assert dangling or real.read_bytes() == b"keep"


def test_a_folder_is_no_output(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        write_atomic(tmp_path, b"x")
    assert caught.value.code == "XT7001"


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out"
    target.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(BadInput, match="No space left on device") as caught:
        write_atomic(target, b"new")
    assert caught.value.code == "XT7002"
    assert target.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_missing_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file or directory") as caught:
        write_atomic(tmp_path / "no" / "out", b"x")
    assert caught.value.code == "XT7002"
