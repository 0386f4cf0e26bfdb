"""Pinned wheels: only the pinned content is ever used, and nothing half-written stays behind."""

import hashlib
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from workflow.kernels import wheels
from xtrace.errors import BadInput, MissingTool

CONTENT = b"a library" * 1000


@pytest.fixture
def pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """One pinned wheel in a local folder, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XTRACE_WHEELS", str(tmp_path / "local"))
    (tmp_path / "local").mkdir()
    path = tmp_path / "local" / "some-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("some/lib.so", CONTENT)
    files = {"some/lib.so": {"bytes": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest()}}
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    pin = {"version": "1.0", "wheel": path.name, "platform": "any", "bytes": path.stat().st_size, "sha256": digest}
    return {"some": {**pin, "files": files}}


def fake_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str) -> None:
    """Replace pip by a script; it finds the download folder behind --dest."""
    script = tmp_path / "fake_pip"
    script.write_text(f"#!{sys.executable}\nimport sys\ndest = sys.argv[sys.argv.index('--dest') + 1]\n{body}\n")
    script.chmod(0o755)
    monkeypatch.setattr(wheels.sys, "executable", str(script))


def test_local_wheel_is_used_and_its_file_extracted(pinned: dict[str, Any], tmp_path: Path) -> None:
    target = wheels.extract("some", "some/lib.so", tmp_path / "out" / "lib.so", pinned)
    assert target.read_bytes() == CONTENT
    assert [p.name for p in target.parent.iterdir()] == ["lib.so"]


def test_extracted_file_must_have_the_pinned_content(pinned: dict[str, Any], tmp_path: Path) -> None:
    pinned["some"]["files"]["some/lib.so"]["sha256"] = "0" * 64
    with pytest.raises(BadInput, match="XT7107"):
        wheels.extract("some", "some/lib.so", tmp_path / "out" / "lib.so", pinned)
    assert list((tmp_path / "out").iterdir()) == []


def test_file_larger_than_pinned_is_refused(pinned: dict[str, Any], tmp_path: Path) -> None:
    pinned["some"]["files"]["some/lib.so"]["bytes"] = 10
    with pytest.raises(BadInput, match="XT7107"):
        wheels.extract("some", "some/lib.so", tmp_path / "lib.so", pinned)
    assert not (tmp_path / "lib.so").exists()


def test_changed_download_is_refused_and_not_kept(
    pinned: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XTRACE_WHEELS", "")
    fake_pip(monkeypatch, tmp_path, f"open(dest + '/{pinned['some']['wheel']}', 'wb').write(b'evil')")
    with pytest.raises(BadInput, match="XT7107"):
        wheels.fetch("some", packages=pinned)
    assert list(wheels.cache_folder().iterdir()) == []


def test_download_is_shown_and_cached(pinned: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XTRACE_WHEELS", "")
    source = tmp_path / "local" / pinned["some"]["wheel"]
    copy = (
        f"import shutil; print('Progress 50 of 100'); print('Progress 100 of 100'); shutil.copy({str(source)!r}, dest)"
    )
    fake_pip(monkeypatch, tmp_path, copy)
    lines: list[str] = []
    first = wheels.fetch("some", lines.append, pinned)
    assert [line.split()[:2] for line in lines[1:3]] == [["50", "%"], ["100", "%"]]
    source.unlink()
    assert wheels.fetch("some", lines.append, pinned) == first
    assert len(lines) == 4  # the second call says nothing: nothing happened


def test_failed_download_says_what_to_do(
    pinned: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XTRACE_WHEELS", "")
    fake_pip(monkeypatch, tmp_path, "print('ERROR: no route'); sys.exit(1)")
    with pytest.raises(MissingTool, match=r"XT6102.*no route.*XTRACE_WHEELS"):
        wheels.fetch("some", packages=pinned)


def test_unknown_package_and_bad_table(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="XT7106"):
        wheels.fetch("other", packages={})
    (tmp_path / "packages.yaml").write_text("packages: {a: {version: 1}}")
    with pytest.raises(BadInput, match="XT7105"):
        wheels.pins(tmp_path / "packages.yaml")
