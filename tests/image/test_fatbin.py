"""Containers: found anywhere in a file, unpacked within bounds, repacked without moving anything."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import lz4.block
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.image.growth import golden, grow
from xtrace import image
from xtrace.errors import BadInput, Refused, XtraceError
from xtrace.image import fatbin
from xtrace.image.repack import repack_images

ELF, PTX = 2, 1
LZ4, ZSTD, ARCH_A = 0x2000, 0x8000, 0x100000
OPTIONS = struct.pack("<II", 0x48, 8) + b"-g -O3  "  # stands for the compiler options block, which must survive


def entry(content: bytes, *, kind: int = ELF, sm: int = 90, flags: int = ARCH_A, unpacked: int | None = None) -> bytes:
    packed = content
    if flags & ZSTD:
        packed = zstandard.ZstdCompressor().compress(content)
    elif flags & LZ4:
        packed = lz4.block.compress(content, store_size=False)
    compressed = len(packed) if flags & (ZSTD | LZ4) else 0
    size = (len(content) if compressed else 0) if unpacked is None else unpacked
    stored = packed + bytes(-len(packed) % 8)
    header = 64 + len(OPTIONS)
    fields = (kind, 0x0101, header, len(stored), compressed, 64, 7, 1, sm, 0, 0, flags | 0x11, 0, size)
    return struct.pack("<HHIQIIHHIIIQQQ", *fields) + OPTIONS + stored


def container(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


PTX_TEXT = b".version 9.0\n.target sm_90\n" * 40


@pytest.fixture
def library() -> bytes:
    """Bytes of a library with two containers, a chance hit of the magic number and unrelated bytes around."""
    spin, two = golden("spin"), golden("two_kernels")
    first = container(entry(spin), entry(PTX_TEXT, kind=PTX, flags=ZSTD))
    second = container(entry(two, flags=ARCH_A | ZSTD), entry(two, flags=LZ4 | ARCH_A), entry(two, sm=80, flags=0))
    return b"\x7fELF" + bytes(1000) + first + b"\x50\xed\x55\xba junk" + bytes(3000) + second + bytes(77)


def test_every_entry_is_found_and_unpacked(library: bytes) -> None:
    found = list(fatbin.scan(library))
    assert [(f.number, [(e.kind, e.arch, e.compression) for e in f.entries]) for f in found] == [
        (0, [("elf", "sm_90a", "none"), ("ptx", "compute_90", "zstd")]),
        (1, [("elf", "sm_90a", "zstd"), ("elf", "sm_90a", "lz4"), ("elf", "sm_80", "none")]),
    ]
    contents = [fatbin.payload(library, e).rstrip(b"\0") for f in found for e in f.entries]
    spin, two = golden("spin").rstrip(b"\0"), golden("two_kernels").rstrip(b"\0")
    assert contents == [spin, PTX_TEXT, two, two, two]


@pytest.mark.parametrize("flags", [ZSTD, LZ4])
@pytest.mark.parametrize("claim", [0, 10, 1 << 20, 1 << 40])
def test_wrong_sizes_and_bombs_do_not_unpack(flags: int, claim: int) -> None:
    data = container(entry(bytes(5000), flags=flags, unpacked=claim))
    found = next(fatbin.scan(data)).entries[0]
    with pytest.raises(BadInput) as caught:
        fatbin.payload(data, found, "lib.so")
    assert caught.value.code in ("XT1202", "XT1203")
    assert "lib.so: fatbin 0 entry 0 @0x10" in str(caught.value)


def test_a_frame_that_lies_about_its_size_does_not_allocate_it() -> None:
    honest = container(entry(bytes(5000), flags=ZSTD))
    at = honest.index(b"\x28\xb5\x2f\xfd")
    assert honest[at + 4] & 0xC0 == 0x40  # size in two bytes, biased by 256
    lying = honest[: at + 5] + b"\xff\xff" + honest[at + 7 :]
    with pytest.raises(BadInput) as caught:
        fatbin.payload(lying, next(fatbin.scan(lying)).entries[0])
    assert caught.value.code == "XT1203"


@pytest.mark.parametrize("flags", [ZSTD, LZ4])
def test_a_real_bomb_is_not_unpacked(flags: int) -> None:
    megabytes = bytes(1 << 23)
    data = container(entry(megabytes, flags=flags))
    found = next(fatbin.scan(data)).entries[0]
    if found.compressed * fatbin.MAX_RATIO >= len(megabytes):  # LZ4 cannot pack tighter than 255 to 1
        assert flags == LZ4
        assert fatbin.payload(data, found) == megabytes
        return
    with pytest.raises(BadInput) as caught:
        fatbin.payload(data, found)
    assert caught.value.code == "XT1203"


@pytest.mark.parametrize("name", ["libcublas.so.12", "libcublasLt.so", "libcudnn_engines.so.9", "cublas64_12.dll"])
def test_libraries_whose_licence_forbids_it_are_refused(name: str, tmp_path: Path, library: bytes) -> None:
    (tmp_path / name).write_bytes(library)
    alias = tmp_path / "harmless.so"
    alias.symlink_to(tmp_path / name)
    for path in (tmp_path / name, alias):
        with pytest.raises(Refused) as caught, fatbin.open_library(path):
            pass
        assert caught.value.code == "XT1201"


def test_repack_changes_one_image_and_nothing_else(tmp_path: Path, library: bytes) -> None:
    source, out = tmp_path / "lib.so", tmp_path / "copy.so"
    source.write_bytes(library)
    source.chmod(0o755)
    before = image.parse(golden("spin"), "spin")
    new = image.rewrite(before, [grow(before.kernels[0], {0: 50, 64: 50})])
    assert len(new) > len(before.data)
    assert fatbin.repack(source, out, 0, 0, new)["dropped"] == 0
    copy = out.read_bytes()
    assert source.read_bytes() == library
    assert len(copy) == len(library)
    assert os.access(out, os.X_OK)
    first, second = fatbin.scan(copy)
    assert fatbin.payload(copy, first.entries[0]) == new
    assert OPTIONS in copy[first.entries[0].offset : first.entries[0].offset + first.entries[0].header]
    assert fatbin.payload(copy, first.entries[1]) == PTX_TEXT
    untouched = second.offset
    assert copy[untouched:] == library[untouched:]
    assert list(tmp_path.glob(".*")) == []


def test_several_images_of_one_library_in_one_go(tmp_path: Path, library: bytes) -> None:
    source, out = tmp_path / "lib.so", tmp_path / "copy.so"
    source.write_bytes(library)
    spin, two = golden("spin"), golden("two_kernels")
    assert repack_images(source, out, {(0, 0): spin, (1, 1): two})["replaced"] == 2
    copy = out.read_bytes()
    first, second = fatbin.scan(copy)
    assert fatbin.payload(copy, first.entries[0]) == spin
    assert [fatbin.payload(copy, e).rstrip(b"\0") for e in second.entries] == [two.rstrip(b"\0")] * 3


def test_repack_refuses_what_cannot_work(tmp_path: Path, library: bytes) -> None:
    source = tmp_path / "lib.so"
    source.write_bytes(library)
    out, link = tmp_path / "copy.so", tmp_path / "link.so"
    spin = golden("spin")
    link.symlink_to(out)
    cases = [
        ((source, source, 0, 0, spin), "XT1206"),
        ((source, link, 0, 0, spin), "XT7001"),
        ((source, out, 9, 0, spin), "XT1204"),
        ((source, out, 0, 9, spin), "XT1204"),
        ((source, out, 0, 1, spin), "XT1204"),  # PTX
        ((source, out, 1, 2, spin), "XT1021"),  # another architecture
        ((source, out, 0, 0, b"not an image"), "XT1002"),
        ((source, tmp_path / "no" / "copy.so", 0, 0, spin), "XT7002"),
    ]
    for arguments, code in cases:
        with pytest.raises(XtraceError) as caught:
            fatbin.repack(*arguments)
        assert caught.value.code == code
    assert source.read_bytes() == library
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lib.so", "link.so"]


def test_an_image_that_does_not_fit_is_refused_unless_others_may_go(tmp_path: Path) -> None:
    spin, noise = golden("spin"), os.urandom(20_000)
    source, out = tmp_path / "lib.so", tmp_path / "copy.so"
    source.write_bytes(container(entry(spin, flags=ZSTD), entry(noise, sm=80, flags=0)))
    bulky = bytearray(spin)
    section = image.parse(spin, "x").section_named(".nv_debug_ptx_txt") or image.parse(spin, "x").sections[1]
    bulky += os.urandom(15_000)  # trailing bytes belong to no section
    assert section is not None
    with pytest.raises(BadInput) as caught:
        fatbin.repack(source, out, 0, 0, bytes(bulky))
    assert caught.value.code == "XT1205"
    assert not out.exists()
    assert repack_images(source, out, {(0, 0): bytes(bulky)}, drop_others=True)["dropped"] == 1
    assert fatbin.payload(out.read_bytes(), next(fatbin.scan(out.read_bytes())).entries[0]) == bytes(bulky)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_libraries_raise_only_our_errors(data: st.DataObject) -> None:
    small = container(entry(golden("spin"), flags=ZSTD | ARCH_A), entry(PTX_TEXT, kind=PTX, flags=LZ4))
    damaged = bytearray(b"\0" * 8 + small)
    for _ in range(data.draw(st.integers(1, 8))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))]) if data.draw(st.booleans()) else bytes(damaged)
    for found in fatbin.scan(cut):
        for each in found.entries:
            try:
                assert len(fatbin.payload(cut, each)) <= max(each.unpacked, each.stored)
            except XtraceError:
                continue


def test_a_library_that_is_cut_short_is_an_error_not_a_shorter_list(tmp_path: Path) -> None:
    whole = (Path(__file__).resolve().parents[1] / "golden" / "triton_gemm.cubin").read_bytes()  # an ELF file like any
    for keep in (len(whole) // 2, 100):
        path = tmp_path / f"{keep}.so"
        path.write_bytes(whole[:keep])
        with pytest.raises(BadInput, match="XT1210"), fatbin.open_library(path):
            pass
