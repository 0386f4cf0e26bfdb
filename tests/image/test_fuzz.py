"""Damaged images: reader and writer answer with our errors, in bounded time and memory, or they answer right."""

from __future__ import annotations

import contextlib
import random
import resource
import struct
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.image.growth import NAMES, golden, grow
from xtrace import image
from xtrace.errors import XtraceError
from xtrace.image import rewrite

EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)


def damage(data: bytes, draw: random.Random) -> bytes:
    """A few flipped bytes, extreme numbers in header fields and tables, or a cut; mostly where structure is."""
    out = bytearray(data)
    shoff, shnum = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, shoff + 64 * i) for i in range(shnum)]
    tables = [(s[4], s[4] + s[5]) for s in sections if s[1] != 8 and s[5] and not s[2] & 4]
    places = [(0, 64), (shoff, shoff + 64 * shnum), (shoff + 64 * shnum, len(data)), *tables]
    for _ in range(draw.randint(1, 6)):
        start, end = draw.choice(places)
        if end <= start:
            continue
        at = draw.randrange(start, end)
        kind = draw.randrange(3)
        if kind == 0:
            out[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            out[at] = draw.randrange(256)
        else:
            width = draw.choice((1, 2, 4, 8))
            value = draw.choice(EXTREMES) & ((1 << 8 * width) - 1)
            out[at : at + width] = value.to_bytes(width, "little")[: len(out) - at]
    if draw.random() < 0.15:
        del out[draw.randrange(len(out)) :]
    return bytes(out)


def exercise(data: bytes) -> str:
    """Read and grow; the outcome for statistics."""
    code, text = "", ""
    try:
        parsed = image.parse(data, "damaged.cubin")
    except XtraceError as error:
        code, text = error.code, str(error)
    if code:
        assert text.startswith(f"error[{code}] damaged.cubin")
        return code
    for kernel in parsed.kernels:
        assert len(kernel.text) % 16 == 0
        assert data[kernel.offset : kernel.offset + len(kernel.text)] == kernel.text
    assert rewrite(parsed, []) == data
    try:
        out = rewrite(parsed, [grow(k, {0: 2, 32: 1}) for k in parsed.kernels])
    except XtraceError as error:
        code, text = error.code, str(error)
    if code:
        assert "damaged.cubin" in text
        return code
    again = image.parse(out, "grown.cubin")  # what the writer gives out, the reader takes
    assert [k.name for k in again.kernels] == [k.name for k in parsed.kernels]
    return "read and grown"


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(name=st.sampled_from(NAMES), seed=st.integers(0, 1 << 32))
def test_damaged_images_give_clear_errors(name: str, seed: int) -> None:
    exercise(damage(golden(name), random.Random(seed)))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(NAMES), st.data())
def test_truncated_images_give_clear_errors(name: str, data: st.DataObject) -> None:
    whole = golden(name)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with contextlib.suppress(XtraceError):
        image.parse(whole[:cut], "cut.cubin")


@given(st.binary(max_size=400))
def test_random_bytes_are_no_image(data: bytes) -> None:
    for content in (data, b"\x7fELF" + data, golden("spin")[:64] + data):
        with pytest.raises(XtraceError):
            image.parse(content, "noise")


@pytest.mark.fuzz
def test_thousands_of_damaged_images_within_bounds() -> None:
    outcomes: dict[str, int] = {}
    slowest = 0.0
    for seed in range(4000):
        draw = random.Random(seed)
        data = damage(golden(NAMES[seed % len(NAMES)]), draw)
        start = time.perf_counter()
        outcome = exercise(data)
        slowest = max(slowest, time.perf_counter() - start)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"slowest {slowest * 1e3:.0f} ms, peak {peak:.0f} MiB, {sorted(outcomes.items())}")
    assert slowest < 1
    assert peak < 512
    assert len(outcomes) > 8  # the damage reaches many different checks


def test_thousands_of_sections_over_the_same_bytes_are_no_memory_bomb() -> None:
    data = golden("two_kernels")
    parsed = image.parse(data, "x")
    bomb = bytearray(data)
    for section in parsed.sections:
        if section.name.startswith(".text."):
            at = parsed.header.shoff + 64 * section.index
            bomb[at + 24 : at + 40] = struct.pack("<QQ", 0, len(data) // 16 * 16)
    with pytest.raises(XtraceError) as caught:
        image.parse(bytes(bomb), "bomb")
    assert caught.value.code == "XT1016"
