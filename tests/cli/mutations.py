"""Damaged inputs, reproducible from a seed: what an interrupted download, a bad disk or an attacker would hand in."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable

__all__ = ["MUTATIONS", "fatbin", "for_architecture"]

Mutation = Callable[[bytes, random.Random], bytes]


def for_architecture(data: bytes, sm: int) -> bytes:
    """The same image with another architecture number in the flags of its ELF header."""
    out = bytearray(data)
    if data[8] == 7:  # EI_ABIVERSION: ptxas 12 and older keep the real and the virtual number
        out[48] = out[50] = sm
    else:
        out[49] = sm
    return bytes(out)


def empty(_data: bytes, _rng: random.Random) -> bytes:
    return b""


def truncated(data: bytes, rng: random.Random) -> bytes:
    """Anywhere, but often inside the headers or at the tables at the end."""
    near = rng.choice([rng.randrange(len(data)), rng.randrange(200), len(data) - rng.randrange(1, 2000)])
    return data[: max(near, 0)]


def not_elf(data: bytes, rng: random.Random) -> bytes:
    kinds = [
        b"#!/bin/sh\necho hello\n" * 20,
        b"PK\x03\x04" + rng.randbytes(300),
        b"\x7fEL" + data[3:],
        rng.randbytes(rng.randrange(1, 4000)),
        data[rng.randrange(1, 64) :],
        b"\x00" * rng.randrange(1, 4096),
        b"\x7fELF" + rng.randbytes(rng.randrange(0, 600)),
        zlib.compress(data),
    ]
    return rng.choice(kinds)


def wrong_architecture(data: bytes, rng: random.Random) -> bytes:
    """Another machine, class, byte order, or architecture number in the flags of the ELF header."""
    out = bytearray(data)
    if len(out) < 64:
        return bytes(out)
    kind = rng.randrange(4)
    if kind == 0:
        struct.pack_into("<H", out, 18, rng.choice([3, 62, 183, 224, 243]))  # e_machine
    elif kind == 1:
        out[rng.choice([4, 5, 6])] = rng.randrange(256)
    else:
        flags = struct.unpack_from("<I", out, 48)[0]
        sm = rng.choice([30, 50, 70, 75, 80, 86, 89, 100, 103, 120, 121, 255])
        struct.pack_into(
            "<I", out, 48, flags & 0xFFFF00FF & 0xFFFFFF00 | sm | sm << 8 if kind == 2 else rng.getrandbits(32)
        )
    return bytes(out)


def header_flips(data: bytes, rng: random.Random) -> bytes:
    """A few bytes in the ELF header, the section headers or the program headers."""
    out = bytearray(data)
    if len(out) < 64:
        return bytes(out)
    table = struct.unpack_from("<Q", out, 40)[0]
    spans = [(0, 64), (min(table, len(out) - 1), len(out)), (max(len(out) - 600, 0), len(out))]
    for _ in range(rng.randrange(1, 6)):
        low, high = rng.choice(spans)
        out[rng.randrange(low, max(high, low + 1))] = rng.randrange(256)
    return bytes(out)


def wild_numbers(data: bytes, rng: random.Random) -> bytes:
    """An aligned word becomes a size or offset that no file has."""
    out = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        width, form = rng.choice([(2, "<H"), (4, "<I"), (8, "<Q")])
        value = rng.choice([0, 1, (1 << 8 * width) - 1, 1 << (8 * width - 1), rng.getrandbits(8 * width)])
        struct.pack_into(form, out, rng.randrange(0, max(len(out) - width, 1)) // width * width, value)
    return bytes(out)


def flips(data: bytes, rng: random.Random) -> bytes:
    """Single bits anywhere: code, tables, names."""
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 8, 64])):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def overwritten(data: bytes, rng: random.Random) -> bytes:
    """A block lost on the way: zeros, noise, or a copy of another part of the file."""
    out = bytearray(data)
    size = rng.choice([16, 64, 512, 4096])
    at, source = rng.randrange(len(out)), rng.randrange(len(out))
    block = rng.choice([b"\x00" * size, rng.randbytes(size), bytes(out[source : source + size])])
    out[at : at + len(block)] = block
    return bytes(out[: len(data)])


MUTATIONS: dict[str, Mutation] = {
    m.__name__: m
    for m in (empty, truncated, not_elf, wrong_architecture, header_flips, wild_numbers, flips, overwritten)
}


def fatbin(*images: bytes, sm: int = 90) -> bytes:
    """A container of uncompressed images, sm_90a unless told otherwise, in a file with other bytes.

    Layout: docs of the fatbin reader.
    """
    entries = b""
    for image in images:
        padded = image + b"\x00" * (-len(image) % 8)
        fields = (2, 0x0101, 64, len(padded), 0, 0, 8, 1, sm, 0, 0, 0x100011, 0, 0)
        entries += struct.pack("<HHIQIIHHIIIQQQ", *fields) + padded
    return b"library" * 10 + b"\x00\x00" + struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries + b"end."
