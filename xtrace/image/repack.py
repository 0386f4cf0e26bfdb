"""Put changed images into a copy of a library, without moving anything else in it.

Every container keeps its place and room, so the copy has the library's size and no pointer changes. Replaced images are
packed with zstd, which leaves room for code that grew several times; the driver unpacks them on load (tried with driver
580). The rest of the freed room is zero.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path

import zstandard

from xtrace.errors import BadInput, Refused
from xtrace.image.cubin import parse
from xtrace.image.fatbin import (
    CONTAINER,
    ELF,
    LZ4,
    ZSTD,
    Bytes,
    Entry,
    Fatbin,
    check_licence,
    open_library,
    payload,
    scan,
)

__all__ = ["repack_images"]

LEVEL = 19
_STORED, _COMPRESSED, _FLAGS, _UNPACKED = 8, 16, 40, 56  # of the fields in an entry header


def repack_images(
    library: str | Path,
    out: str | Path,
    images: Mapping[tuple[int, int], bytes],
    *,
    drop_others: bool = False,
) -> dict[str, int]:
    """Write a copy of ``library`` in which some images are replaced.

    Parameters
    ----------
    library
        Shared library or program; never changed.
    out
        New file; must not be the library.
    images
        New cubins by (fatbin number, entry number) as :func:`xtrace.image.fatbin.scan` counts them.
    drop_others
        When the new images do not fit beside the container's other entries, leave those out.

    Returns
    -------
    dict
        ``replaced``, ``dropped`` (entries) and ``bytes`` (size of the copy).

    Raises
    ------
    BadInput
        XT1021 for a cubin of another architecture, XT1204 no such entry, XT1205 does not fit, XT7001/XT7002 the output
        cannot be written, and what :func:`xtrace.image.parse` raises about the new cubin.
    Refused
        XT1201 by licence, XT1206 when the output is the library itself.
    """
    source, target = Path(library), Path(out)
    check_licence(target)
    with open_library(source) as data:
        if target.exists() and target.samefile(source):
            raise Refused("XT1206", "the output is the library itself", where=str(out), hint="write to a new file")
        if target.is_symlink():
            raise BadInput("XT7001", "output is a symbolic link", where=str(out), hint="name a plain file")
        fatbins = {f.number: f for f in scan(data)}
        bodies: list[tuple[Fatbin, bytes]] = []
        dropped = 0
        for number in sorted({fat for fat, _ in images}):
            fatbin = fatbins.get(number)
            wanted = {entry: cubin for (fat, entry), cubin in images.items() if fat == number}
            if fatbin is None or any(not 0 <= e < len(fatbin.entries) for e in wanted):
                what = f"no fatbin {number} with entries {sorted(wanted)}"
                raise BadInput("XT1204", what, where=str(library), hint="see `xtrace extract --list`")
            body, left_out = _body(data, fatbin, wanted, str(library), drop_others)
            bodies.append((fatbin, body))
            dropped += left_out
        size = len(data)
    temporary = target.with_name(f".{target.name[:64]}.{secrets.token_hex(6)}.tmp")
    try:
        shutil.copyfile(source, temporary)
        with temporary.open("r+b") as stream:
            for fatbin, body in bodies:
                stream.seek(fatbin.offset + CONTAINER.size - 8)
                stream.write(struct.pack("<Q", len(body)) + body + bytes(fatbin.size - len(body)))
        shutil.copymode(source, temporary)
        _check(temporary, size, {f.offset: body for f, body in bodies})
        os.replace(temporary, target)
    except OSError as error:
        what = f"cannot write the output: {error.strerror or error}"
        raise BadInput("XT7002", what, where=str(out), hint="check that the folder exists and has room") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    return {"replaced": len(images), "dropped": dropped, "bytes": size}


def _body(data: Bytes, fatbin: Fatbin, wanted: Mapping[int, bytes], name: str, drop_others: bool) -> tuple[bytes, int]:
    """(all entries of the container anew, how many old ones were left out)."""
    new = {i: _entry(data, fatbin.entries[i], cubin, name) for i, cubin in wanted.items()}
    kept = {e.index: bytes(data[e.offset : e.offset + e.size]) for e in fatbin.entries if e.index not in new}
    body = b"".join(new.get(e.index) or kept[e.index] for e in fatbin.entries)
    dropped = 0
    if len(body) > fatbin.size and drop_others:
        body, dropped = b"".join(new[i] for i in sorted(new)), len(kept)
    if len(body) > fatbin.size:
        what = f"fatbin {fatbin.number} has room for {fatbin.size} bytes and needs {len(body)}"
        hint = "fewer probes, or leave out the images of other architectures (drop_others)"
        raise BadInput("XT1205", what, where=name, hint=hint)
    return body, dropped


def _entry(data: Bytes, entry: Entry, cubin: bytes, name: str) -> bytes:
    where = f"{name}: fatbin {entry.fat} entry {entry.index}"
    if entry.kind_code != ELF:
        raise BadInput("XT1204", f"the entry is {entry.kind}, not an image", where=where)
    image = parse(cubin, f"new image for {where}")
    if image.sm != entry.sm:
        what = f"an image for sm_{image.sm} in place of one for sm_{entry.sm}"
        raise BadInput("XT1021", what, where=where, hint="splice the image that was extracted from there")
    packed = zstandard.ZstdCompressor(level=LEVEL).compress(cubin)
    padding = -len(packed) % 8
    head = bytearray(data[entry.offset : entry.offset + entry.header])  # with its options block, which stays
    struct.pack_into("<Q", head, _STORED, len(packed) + padding)
    struct.pack_into("<I", head, _COMPRESSED, len(packed))
    struct.pack_into("<Q", head, _FLAGS, entry.flags & ~LZ4 | ZSTD)
    struct.pack_into("<Q", head, _UNPACKED, len(cubin))
    return bytes(head) + packed + bytes(padding)


def _check(path: Path, size: int, bodies: Mapping[int, bytes]) -> None:
    """Read the copy back before it gets its name."""
    with open_library(path) as data:
        found = {f.offset: f for f in scan(data)}
        for offset, body in bodies.items():
            fatbin = found.get(offset)
            start = offset + CONTAINER.size
            if len(data) != size or fatbin is None or data[start : start + len(body)] != body:
                raise BadInput("XT7002", "the copy does not read back", where=str(path), hint="is the disk full?")
            for entry in fatbin.entries:
                if entry.kind_code == ELF:
                    payload(data, entry, str(path))
