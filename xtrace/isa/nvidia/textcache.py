"""Disassembly kept on disk, so that looking at the same kernel again costs no disassembler run.

Entries are named by content (tool build, architecture, code bytes) and carry a checksum: a damaged, truncated or
foreign file is a miss, never an error. Writing is atomic. The cache is bounded; the oldest entries go first.
``XTRACE_NO_CACHE=1`` turns it off. Nothing in it is ever executed or trusted beyond being text.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import zlib
from pathlib import Path

__all__ = ["folder", "key", "load", "store"]

_MAGIC = b"xtrace-disasm-1\n"
_DIGEST = hashlib.sha256().digest_size
_MAX_ENTRY = 32 << 20  # uncompressed bytes
_MAX_TOTAL = 64 << 20
_MAX_ENTRIES = 512


def folder() -> Path | None:
    """Where entries live; None if the cache is off or the user has no home."""
    if os.environ.get("XTRACE_NO_CACHE", "") not in ("", "0"):
        return None
    root = os.environ.get("XDG_CACHE_HOME", "")
    try:
        base = Path(root) if os.path.isabs(root) else Path.home() / ".cache"
    except RuntimeError:
        return None
    return base / "xtrace" / "disasm"


def key(tool: str, arch: str, code: bytes) -> str:
    """Name of the entry for ``code`` as this tool build shows it."""
    digest = hashlib.sha256()
    for part in (tool.encode(), arch.encode(), code):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def load(name: str) -> list[str] | None:
    """Texts of an entry, or None."""
    where = folder()
    if where is None:
        return None
    try:
        data = (where / name).read_bytes()
    except OSError:
        return None
    body = data[len(_MAGIC) + _DIGEST :]
    if data[: len(_MAGIC)] != _MAGIC or data[len(_MAGIC) : len(_MAGIC) + _DIGEST] != _checksum(name, body):
        return None
    unpack = zlib.decompressobj()
    try:
        text = unpack.decompress(body, _MAX_ENTRY)
        return text.decode("ascii").split("\n") if unpack.eof else None
    except (zlib.error, UnicodeDecodeError):
        return None


def store(name: str, texts: list[str]) -> None:
    """Keeps ``texts``; failing to do so is no error."""
    where = folder()
    if where is None:
        return
    text = "\n".join(texts).encode("ascii", errors="replace")
    if len(text) > _MAX_ENTRY:
        return
    body = zlib.compress(text, 1)
    try:
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=where, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + _checksum(name, body) + body)
            os.replace(temporary, where / name)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise
        _shrink(where)
    except OSError:
        return


def _checksum(name: str, body: bytes) -> bytes:
    return hashlib.sha256(name.encode() + body).digest()


def _shrink(where: Path) -> None:
    """Removes the oldest entries beyond the bounds."""
    entries = sorted(((e.stat().st_mtime, e.stat().st_size, e.path) for e in os.scandir(where)), reverse=True)
    total = 0
    for count, (_, size, path) in enumerate(entries, start=1):
        total += size
        if total > _MAX_TOTAL or count > _MAX_ENTRIES:
            Path(path).unlink(missing_ok=True)
