"""Run a traced kernel inside an unmodified program: a private copy of a library package that carries the traced image.

The image holds its buffer's address, so a copy belongs to one process: allocate the buffer, patch, write the copy,
import it. The installed package is never written to. (The driver accepts a fatbin whose entry was replaced on disk
and compressed; measured on an H200 with driver 580.)

Two copies of a PyTorch extension cannot register the same operators in one process. The namespace under which a copy
registers is one string in its read-only data; :func:`rename_namespace` replaces it by another of equal length, so that
the original, the original again, and the traced library can be timed against each other in the same process, each with
its own module loading and its own kernels, called through PyTorch exactly as before. The alternatives were worse:
replaying captured launches needs live pointers and tensor maps of the host code, and a hook on the launch call would
sit in the timed path.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import stat
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from xtrace.errors import BadInput, MissingTool, XtraceError

if TYPE_CHECKING:
    from xtrace.image.fatbin import Entry

__all__ = [
    "PackageCopy",
    "copy_package",
    "find_package",
    "load_library",
    "put_on_path",
    "rename_namespace",
    "replace_image",
]

_MAX_MEMBER = 2 << 30
_CHUNK = 1 << 22


@dataclass(frozen=True)
class PackageCopy:
    """A self-contained copy of a package: put ``root`` first on ``sys.path`` to import it."""

    root: Path
    library: Path


def find_package(module: str, given: Path | None = None) -> Path:
    """The wheel file or directory that holds top-level ``module``: ``given``, else where Python would import it from.

    Raises ``MissingTool`` XT5030 if it is not installed, without importing it.
    """
    if given is not None:
        if not given.exists():
            raise BadInput("XT5030", "no such wheel or directory", where=str(given))
        return given
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.origin:
        raise MissingTool("XT5030", f"the package {module} is not installed", hint="pass its wheel or directory")
    return Path(spec.origin).resolve().parent


def copy_package(source: Path, target: Path, library: str, names: tuple[str, ...]) -> PackageCopy:
    """Copy the top-level files and folders ``names`` out of a wheel or directory into the empty folder ``target``.

    ``library`` is the shared library's path inside. Raises ``BadInput`` XT5030 for anything that does not fit.
    """
    if target.exists() and any(target.iterdir()):
        raise BadInput("XT5030", "the folder for the package copy is not empty", where=str(target))
    target.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        for name in names:
            _copy_tree(source / name, target / name)
    else:
        _unpack(source, target, names)
    found = target / library
    if not found.is_file():
        raise BadInput("XT5030", f"the package has no {library}", where=str(source))
    return PackageCopy(target, found)


def _copy_tree(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    elif source.is_file():
        shutil.copyfile(source, target)


def _unpack(wheel: Path, target: Path, names: tuple[str, ...]) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                path = PurePosixPath(member.filename)
                if not path.parts or path.parts[0] not in names or member.is_dir():
                    continue
                if path.is_absolute() or ".." in path.parts or stat.S_ISLNK(member.external_attr >> 16):
                    raise BadInput("XT5030", f"unsafe member {member.filename!r}", where=str(wheel))
                if member.file_size > _MAX_MEMBER:
                    raise BadInput("XT5030", f"member {member.filename!r} is too large", where=str(wheel))
                out = target.joinpath(*path.parts)
                out.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as src, out.open("wb") as dst:
                    shutil.copyfileobj(src, dst, _CHUNK)
    except (zipfile.BadZipFile, OSError, EOFError) as error:
        raise BadInput("XT5030", f"not a readable wheel: {error}", where=str(wheel)) from error


def rename_namespace(library: Path, old: str, new: str) -> None:
    """Replace the operator namespace string ``old`` in a copied library by ``new``, in place.

    The two differ in the first letter only: linkers let strings share tails, so the later letters may belong to an
    operator's name as well (FlashAttention-3's ``fwd`` is the tail of ``fa3_fwd``).

    Raises ``BadInput`` XT5031 unless the string stands exactly once in the file as a whole C string, and the file is
    a private copy (one hard link).
    """
    if old[1:] != new[1:] or not new.isidentifier() or not new.isascii():
        raise BadInput("XT5031", f"namespace {new!r} cannot replace {old!r}", hint="only the first letter may differ")
    if library.stat().st_nlink != 1:
        raise BadInput("XT5031", "the library is hard-linked", where=str(library), hint="work on a copy")
    data = library.read_bytes()
    needle = b"\0" + old.encode() + b"\0"
    at = data.find(needle)
    if at < 0 or data.find(needle, at + 1) >= 0:
        count = "no" if at < 0 else "more than one"
        raise BadInput("XT5031", f"{count} namespace string {old!r} in the library", where=str(library))
    with library.open("r+b") as f:
        f.seek(at + 1)
        f.write(new.encode())


def replace_image(library: Path, original: bytes, image: bytes) -> tuple[int, int]:
    """Put ``image`` in the place of ``original`` in a copied library; returns fatbin and entry number.

    The place is found by content. Raises ``BadInput`` XT5032 if the library does not carry ``original`` (exactly once).
    """
    from xtrace.image import fatbin  # needs the unpackers, which launching a cubin does not

    data = library.read_bytes()
    hits = [
        (number, index)
        for number, fat in enumerate(fatbin.scan(data))
        for index, entry in enumerate(fat.entries)
        if _holds(data, entry, original)
    ]
    if len(hits) != 1:
        raise BadInput(
            "XT5032",
            f"the library carries the original image {len(hits)} times",
            where=str(library),
            hint="extract the image from this very library (xtrace extract) and splice that",
        )
    number, index = hits[0]
    out = library.with_name(library.name + ".new")
    fatbin.repack(library, out, number, index, image)
    os.replace(out, library)
    return number, index


def _holds(data: bytes, entry: Entry, original: bytes) -> bool:
    from xtrace.image import fatbin

    try:
        return fatbin.payload(data, entry) == original
    except XtraceError:  # an entry of another kind or compression that cannot be read is not ours
        return False


def load_library(library: Path) -> ctypes.CDLL:
    """Load a copied extension so that its symbols stay its own (no other library, and no other copy, binds to them)."""
    try:
        return ctypes.CDLL(str(library), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        raise XtraceError(
            "XT5033", f"the library copy cannot be loaded: {error}", where=str(library), hint="import torch first"
        ) from error


def put_on_path(copy: PackageCopy, *modules: str) -> None:
    """Make ``import`` find the copy first; refuses (XT5033) when one of ``modules`` was imported already."""
    loaded = [m for m in modules if m in sys.modules]
    if loaded:
        raise BadInput("XT5033", f"already imported: {', '.join(loaded)}", hint="patch before the first import")
    sys.path.insert(0, str(copy.root))
    importlib.invalidate_caches()
