"""Fatbins: the containers in which libraries carry their GPU images.

The whole file is searched for the container's magic number, then each hit is validated, because some libraries keep
fatbins outside the usual section. Layout (checked against twelve libraries and against cuobjdump's output):

* container: u32 magic 0xBA55ED50, u16 version, u16 header size 16, u64 size of all entries;
* entry: a 64-byte header (``ENTRY``), an optional block with compiler options, then the payload, padded to 8 bytes.

NVIDIA's cuBLAS and cuDNN are refused by name: their licence forbids taking them apart.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import lz4.block
import zstandard

from xtrace.errors import BadInput, Refused

__all__ = ["Entry", "Fatbin", "check_licence", "open_library", "payload", "repack", "scan"]

_ELF_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
MAGIC = struct.pack("<I", 0xBA55ED50)
CONTAINER = struct.Struct("<IHHQ")
ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
PTX, ELF = 1, 2
LZ4, ZSTD, ARCH_A, ARCH_F = 0x2000, 0x8000, 0x100000, 0x200000
MAX_ENTRY_HEADER = 4096
MAX_ENTRIES = 4096  # of one container; the largest seen has 20
MAX_UNPACKED = 1 << 28  # the largest image seen is 9 MB
MAX_RATIO = 2048  # a cubin compresses 10 to 60 times; zeros up to about 1000 times a block

Bytes = bytes | bytearray | mmap.mmap


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: an image or PTX text for one architecture. ``offset`` is the file offset of its header."""

    fat: int
    index: int
    offset: int
    kind_code: int
    header: int
    stored: int
    compressed: int
    sm: int
    flags: int
    unpacked: int

    @property
    def kind(self) -> str:
        return {PTX: "ptx", ELF: "elf"}.get(self.kind_code, f"kind {self.kind_code}")

    @property
    def arch(self) -> str:
        suffix = "a" if self.flags & ARCH_A else "f" if self.flags & ARCH_F else ""
        return f"{'compute' if self.kind_code == PTX else 'sm'}_{self.sm}{suffix}"

    @property
    def compression(self) -> str:
        return "zstd" if self.flags & ZSTD else "lz4" if self.flags & LZ4 else "none"

    @property
    def size(self) -> int:
        """Bytes in the container, header included."""
        return self.header + self.stored


@dataclass(frozen=True, slots=True)
class Fatbin:
    """One container. ``number`` counts them in file order, ``size`` is the room for entries in bytes."""

    number: int
    offset: int
    size: int
    entries: tuple[Entry, ...]


def check_licence(path: Path) -> None:
    """Raise ``Refused`` XT1201 for a library whose licence forbids taking it apart, under any of its names."""
    for name in {path.name, path.resolve().name}:
        if re.match(r"(lib)?(cublas|cudnn)", name, re.IGNORECASE):
            raise Refused(
                "XT1201",
                "the licence of cuBLAS and cuDNN forbids extracting or disassembling their code",
                where=str(path),
                hint="trace a library whose licence allows it",
            )


@contextmanager
def open_library(path: str | Path) -> Iterator[mmap.mmap]:
    """Map a file read-only.

    Raises ``Refused`` XT1201 (see :func:`check_licence`), ``BadInput`` XT1000 when it cannot be read, XT1001 when it
    is empty, XT1210 when it is an ELF file that ends before its section headers.
    """
    source = Path(path)
    check_licence(source)
    try:
        with source.open("rb") as stream:
            if source.stat().st_size == 0:
                raise BadInput("XT1001", "file is empty", where=str(path), hint="give a library with GPU code")
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        what = f"cannot read the file: {getattr(error, 'strerror', None) or error}"
        raise BadInput("XT1000", what, where=str(path), hint="check the path") from error
    with mapped:
        _check_whole(mapped, str(path))
        yield mapped


def _check_whole(data: Bytes, where: str) -> None:
    """A cut library would silently give fewer images: its section headers, which linkers put last, would be gone."""
    if data[:6] != b"\x7fELF\x02\x01" or len(data) < _ELF_HEADER.size:
        return
    fields = _ELF_HEADER.unpack_from(data, 0)
    start, size, count = fields[6], fields[11], fields[12]
    if start + size * count > len(data):
        raise BadInput(
            "XT1210",
            f"the file ends at {len(data)} bytes, its section headers at {start + size * count}",
            where=f"{where} @0x28",
            hint="it is cut short: fetch it again",
        )


def scan(data: Bytes) -> Iterator[Fatbin]:
    """Every container whose header and entries fit, in file order. Chance hits of the magic number are passed over."""
    position, number = data.find(MAGIC), 0
    while position >= 0:
        entries, size, after = _container(data, position, number)
        if entries:
            yield Fatbin(number, position, size, entries)
            number += 1
        position = data.find(MAGIC, after)


def _container(data: Bytes, start: int, number: int) -> tuple[tuple[Entry, ...], int, int]:
    """(entries, room, where to search on) of the container at ``start``; no entries when it is none."""
    after = start + len(MAGIC)
    if start + CONTAINER.size > len(data):
        return (), 0, after
    _, version, header, size = CONTAINER.unpack_from(data, start)
    at, end = start + header, start + header + size
    if header != CONTAINER.size or version not in (1, 2) or not size or end > len(data):
        return (), 0, after
    entries: list[Entry] = []
    while at + ENTRY.size <= end and len(entries) < MAX_ENTRIES:
        kind, _, head, stored, compressed, _, _, _, sm, _, _, flags, _, unpacked = ENTRY.unpack_from(data, at)
        if not ENTRY.size <= head <= MAX_ENTRY_HEADER or at + head + stored > min(end + 8, len(data)):
            break
        if compressed > stored:
            break
        entries.append(Entry(number, len(entries), at, kind, head, stored, compressed, sm, flags, unpacked))
        at += head + stored
    else:
        after = max(end, after)
    return tuple(entries), size, after


def payload(data: Bytes, entry: Entry, name: str = "") -> bytes:
    """The unpacked content of an entry.

    Raises ``BadInput`` XT1202 when it does not unpack, XT1203 when it would unpack to more than any image needs.
    """
    where = f"{name}: fatbin {entry.fat} entry {entry.index} @{entry.offset:#x}".removeprefix(": ")
    start = entry.offset + entry.header
    packed = bytes(data[start : start + (entry.compressed or entry.stored)])
    if entry.compression == "none":
        return packed
    limit = min(MAX_UNPACKED, max(len(packed), 64) * MAX_RATIO)
    if not 0 < entry.unpacked <= limit:
        what = f"{len(packed)} bytes claim to unpack to {entry.unpacked}"
        raise BadInput("XT1203", what, where=where, hint="the library is damaged or hostile")
    try:
        if entry.compression == "zstd":
            if zstandard.frame_content_size(packed) not in (-1, entry.unpacked):
                raise BadInput("XT1203", "zstd frame disagrees about its size", where=where)
            unpacked = zstandard.ZstdDecompressor(max_window_size=MAX_UNPACKED).decompress(
                packed, max_output_size=entry.unpacked, allow_extra_data=True
            )
        else:
            unpacked = lz4.block.decompress(packed, uncompressed_size=entry.unpacked)
    except (zstandard.ZstdError, lz4.block.LZ4BlockError, ValueError, MemoryError, OverflowError) as error:
        raise BadInput("XT1202", f"does not unpack: {error}", where=where, hint="the library is damaged") from error
    if len(unpacked) != entry.unpacked:
        raise BadInput("XT1202", f"unpacked to {len(unpacked)} bytes instead of {entry.unpacked}", where=where)
    return bytes(unpacked)


def repack(library: str | Path, out: str | Path, fat: int, entry: int, new_cubin: bytes) -> dict[str, int]:
    """Write a copy of ``library`` with one image replaced; see :func:`xtrace.image.repack.repack_images`."""
    from xtrace.image.repack import repack_images  # that module reads containers through this one

    return repack_images(library, out, {(fat, entry): new_cubin})
