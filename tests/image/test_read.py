"""What the reader says about images, and what it says about files that are none."""

from __future__ import annotations

import io
import struct
import time

import pytest
from elftools.elf.elffile import ELFFile

from tests.image.growth import GOLDEN, NAMES, golden
from xtrace import image
from xtrace.errors import BadInput, Unsupported, XtraceError
from xtrace.image.names import demangle


@pytest.fixture(scope="module", params=NAMES)
def data(request: pytest.FixtureRequest) -> bytes:
    return golden(request.param)


def test_sections_and_symbols_agree_with_an_independent_reader(data: bytes) -> None:
    ours, theirs = image.parse(data, "x"), ELFFile(io.BytesIO(data))
    assert [s.name for s in ours.sections] == [s.name for s in theirs.iter_sections()]
    assert [(s.offset, s.size, s.flags, s.info) for s in ours.sections] == [
        (s["sh_offset"], s["sh_size"], s["sh_flags"], s["sh_info"]) for s in theirs.iter_sections()
    ]
    symbols = list(theirs.get_section_by_name(".symtab").iter_symbols())
    named = [s for s in ours.symbols if s.type != 3]  # pyelftools gives section symbols their section's name
    assert [(s.name, s.value, s.size) for s in named] == [
        (symbols[s.index].name, symbols[s.index]["st_value"], symbols[s.index]["st_size"]) for s in named
    ]


def test_golden_images_are_for_sm_90a_and_hold_kernels_of_whole_instructions(data: bytes) -> None:
    parsed = image.parse(data, "x")
    assert (parsed.arch, parsed.sm) == ("sm_90a", 90)
    for kernel in parsed.kernels:
        assert kernel.text == data[kernel.offset : kernel.offset + len(kernel.text)]
        assert len(kernel.text) % 128 == 0
        assert 1 <= kernel.registers <= 255
        assert kernel.param_base == 0x210


def test_both_generations_of_ptxas_are_told_apart() -> None:
    assert image.parse(golden("triton_gemm"), "x").flavour == "abi7"
    assert image.parse(golden("spin"), "x").flavour == "abi8"


def test_facts_of_a_kernel() -> None:
    kernel = image.load(GOLDEN / "triton_fa_fwd.cubin").kernels[0]
    assert kernel.required_threads == (256, 1, 1)
    assert kernel.max_threads == 256
    assert kernel.barriers == 1


def test_local_functions_are_listed_with_their_place() -> None:
    kernel = image.parse(golden("call_rel"), "x").kernels[0]
    assert kernel.functions
    for _, offset, size in kernel.functions:
        assert 0 < offset < offset + size <= len(kernel.text)


def test_kernels_are_found_by_glob_on_either_name() -> None:
    parsed = image.parse(golden("two_kernels"), "x")
    names = {k.name for k in parsed.kernels}
    assert len(names) == 2
    assert {k.name for k in parsed.select("*")} == names
    one = parsed.kernels[0]
    assert parsed.select(one.demangled) == parsed.select(one.name) == [one]
    assert parsed.kernel(one.name) is one


def test_a_glob_that_matches_nothing_lists_the_kernels() -> None:
    parsed = image.parse(golden("two_kernels"), "two.cubin")
    with pytest.raises(BadInput, match="no kernel matches 'nope\\*'") as caught:
        parsed.select("nope*")
    assert caught.value.code == "XT1020"
    assert all(k.demangled in str(caught.value) for k in parsed.kernels)


@pytest.mark.parametrize(
    ("mangled", "readable"),
    [
        ("_Z3addPfPKfi", "add(float*, float const*, int)"),
        ("_Z1fILi128ELb1EEvv", "void f<128, true>()"),
        ("attn_fwd", "attn_fwd"),
        ("_Z", "_Z"),
        ("_Z" + "N" * 9000, "_Z" + "N" * 9000),
    ],
)
def test_demangling_falls_back_to_the_name_itself(mangled: str, readable: str) -> None:
    assert demangle(mangled) == readable


def test_a_name_that_would_unfold_without_end_stays_mangled() -> None:
    doublings = "".join(f"St4pairIS{i}_S{i}_E" for i in "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    name = f"_Z1fN1aISt4pairIiiE{doublings}EE"
    start = time.perf_counter()
    assert demangle(name) == name
    assert time.perf_counter() - start < 1


def patched(data: bytes, offset: int, form: str, *values: int) -> bytes:
    out = bytearray(data)
    struct.pack_into(form, out, offset, *values)
    return bytes(out)


HEADER_FAULTS = {
    "empty": (lambda d: b"", "XT1001"),
    "text": (lambda d: b"hello, world\n" * 20, "XT1002"),
    "ptx": (lambda d: b"//\n.version 8.7\n.target sm_90a\n", "XT1002"),
    "fatbin": (lambda d: b"\x50\xed\x55\xba" + bytes(64), "XT1002"),
    "half a header": (lambda d: d[:40], "XT1003"),
    "no section table": (lambda d: d[: len(d) // 2], "XT1003"),
    "32-bit": (lambda d: patched(d, 4, "B", 1), "XT1004"),
    "big endian": (lambda d: patched(d, 5, "B", 2), "XT1005"),
    "another ELF version": (lambda d: patched(d, 6, "B", 0), "XT1006"),
    "no sections": (lambda d: patched(d, 60, "<H", 0), "XT1006"),
    "strange section headers": (lambda d: patched(d, 58, "<H", 40), "XT1006"),
    "x86-64": (lambda d: patched(d, 18, "<H", 62), "XT1011"),
    "amd": (lambda d: patched(d, 18, "<H", 224), "XT1011"),
    "relocatable": (lambda d: patched(d, 16, "<H", 1), "XT1012"),
}


@pytest.mark.parametrize("fault", HEADER_FAULTS)
def test_every_kind_of_wrong_file_has_its_own_error(fault: str) -> None:
    change, code = HEADER_FAULTS[fault]
    with pytest.raises(BadInput) as caught:
        image.parse(change(golden("spin")), "some.file")
    assert caught.value.code == code
    assert str(caught.value).startswith(f"error[{code}] some.file")
    assert "\n" not in str(caught.value)


def test_a_library_is_pointed_to_extract() -> None:
    with pytest.raises(BadInput, match="xtrace extract"):
        image.load("/proc/self/exe")


def test_a_new_flavour_and_a_new_architecture_are_unsupported_not_bad() -> None:
    with pytest.raises(Unsupported) as caught:
        image.parse(patched(golden("spin"), 7, "B", 0x42), "x")
    assert caught.value.code == "XT1013"
    with pytest.raises(Unsupported) as caught:
        image.parse(patched(golden("spin"), 48, "<I", 0x0600_C804), "x")
    assert caught.value.code == "XT1014"
    assert "sm_200" in str(caught.value)


def test_an_image_without_kernels_says_so() -> None:
    data = golden("spin")
    kernel = image.parse(data, "x").kernels[0]
    symbol = next(s for s in image.parse(data, "x").symbols if s.index == kernel.symbol)
    with pytest.raises(BadInput) as caught:
        image.parse(patched(data, symbol.offset + 5, "B", 0), "x")  # no longer marked as an entry
    assert caught.value.code == "XT1015"


@pytest.mark.parametrize("path", ["/nonexistent/a.cubin", "/", "a\0b"])
def test_unreadable_paths_are_bad_input(path: str) -> None:
    with pytest.raises(BadInput) as caught:
        image.load(path)
    assert caught.value.code == "XT1000"


def test_errors_name_file_table_and_offset() -> None:
    data = golden("two_kernels")
    info = next(s for s in image.parse(data, "x").sections if s.name.startswith(".nv.info."))
    with pytest.raises(XtraceError) as caught:
        image.parse(patched(data, info.offset, "<BBH", 4, 0x1C, 0xFFFF), "two.cubin")
    assert caught.value.code == "XT1010"
    assert f"two.cubin: {info.name} @{info.offset:#x}" in str(caught.value)
    assert "EIATTR_EXIT_INSTR_OFFSETS" in str(caught.value)
