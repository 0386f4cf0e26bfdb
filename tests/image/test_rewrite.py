"""An image whose code has grown is the same image in every other respect."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.image.growth import NAMES, WORD, arrives_at, golden, grow
from xtrace import image
from xtrace.errors import BadInput, Unsupported
from xtrace.image import CodeEdit, Image, InfoRecord, Kernel, rewrite
from xtrace.image.eiattr import CARRIES, Carries
from xtrace.image.elf import find_overlaps, read_relocations, read_segments
from xtrace.image.tables import branch_tables


def islands(kernel: Kernel, seed: int, share: float = 0.1) -> dict[int, int]:
    draw = random.Random(seed)
    return {pc: draw.randint(1, 3) for pc in range(0, len(kernel.text), WORD) if draw.random() < share}


def grown(name: str, seed: int = 1, share: float = 0.1) -> tuple[Image, Image, list[CodeEdit]]:
    before = image.parse(golden(name), name)
    edits = [grow(k, islands(k, seed, share)) for k in before.kernels]
    return before, image.parse(rewrite(before, edits), f"grown {name}"), edits


@pytest.mark.parametrize("name", NAMES)
def test_nothing_to_change_gives_the_same_bytes(name: str) -> None:
    data = golden(name)
    assert rewrite(image.parse(data, name), []) == data


@pytest.mark.parametrize("name", NAMES)
def test_an_edit_that_changes_nothing_gives_the_same_bytes(name: str) -> None:
    before = image.parse(golden(name), name)
    assert rewrite(before, [grow(k, {}) for k in before.kernels]) == before.data


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_table_still_names_the_same_instructions(name: str, seed: int) -> None:
    check_tables(*grown(name, seed))


@settings(max_examples=25, deadline=None)
@given(name=st.sampled_from(NAMES), data=st.data())
def test_any_set_of_places_will_do(name: str, data: st.DataObject) -> None:
    before = image.parse(golden(name), name)
    edits = []
    for kernel in before.kernels:
        pcs = st.integers(0, kernel.instructions - 1).map(lambda i: i * WORD)
        edits.append(grow(kernel, data.draw(st.dictionaries(pcs, st.integers(1, 3), max_size=40))))
    check_tables(before, image.parse(rewrite(before, edits), "grown"), edits)


def check_tables(before: Image, after: Image, edits: list[CodeEdit]) -> None:
    assert find_overlaps(after.header, after.sections) == []
    assert [(s.name, s.type, s.flags, s.link, s.align) for s in after.sections] == [
        (s.name, s.type, s.flags, s.link, s.align) for s in before.sections
    ]
    assert after.arch == before.arch
    for section in after.sections:
        if section.file_size and section.align > 1:
            assert section.offset % section.align == 0
    for old, new, edit in zip(before.kernels, after.kernels, edits, strict=True):
        assert new.text.startswith(edit.text)
        assert len(new.text) % 128 == 0
        check_attributes(old, new)
        check_functions(old, new)
    check_jump_tables(before, after)
    check_symbols(before, after)
    check_segments(before, after)
    check_relocations(before, after)
    for old_section, new_section in zip(before.sections, after.sections, strict=True):
        if old_section.name.startswith(
            (".nv.constant0", ".nv.global", ".note", ".nv.callgraph", ".nv_debug_ptx", ".sh")
        ):
            assert before.content(old_section) == after.content(new_section)


def instruction_offsets(record: InfoRecord) -> list[int]:
    words = [int.from_bytes(record.payload[i : i + 4], "little") for i in range(0, len(record.payload), 4)]
    kind = CARRIES.get(record.attr)
    first, stride = {
        Carries.OFFSETS: (0, 1),
        Carries.PAIRS_FIRST: (0, 2),
        Carries.PAIRS_SECOND: (1, 2),
        Carries.QUADS_FIRST: (0, 4),
    }.get(kind, (len(words), 1))
    return words[first::stride]


def check_attributes(old: Kernel, new: Kernel) -> None:
    for was, now in zip(old.info, new.info, strict=True):
        assert (was.fmt, was.attr, len(was.payload)) == (now.fmt, now.attr, len(now.payload))
        for a, b in zip(instruction_offsets(was), instruction_offsets(now), strict=True):
            assert new.text[b : b + WORD] == old.text[a : a + WORD]
        if CARRIES.get(was.attr) is Carries.NOTHING:
            assert was.payload == now.payload
        if CARRIES.get(was.attr) is Carries.BRANCHES:
            for (branch, targets), (moved, aims) in zip(branch_tables(was, ""), branch_tables(now, ""), strict=True):
                assert new.text[moved : moved + WORD] == old.text[branch : branch + WORD]
                for a, b in zip(targets, aims, strict=True):
                    assert arrives_at(new.text, b) == old.text[a : a + WORD]


def check_functions(old: Kernel, new: Kernel) -> None:
    for (name, start, size), (same, moved, now) in zip(old.functions, new.functions, strict=True):
        assert name == same
        assert arrives_at(new.text, moved) == old.text[start : start + WORD]
        end = start + size
        if end < len(old.text):
            assert arrives_at(new.text, moved + now) == old.text[end : end + WORD]
        else:
            assert moved + now == len(new.text)


def check_jump_tables(before: Image, after: Image) -> None:
    for old, new in zip(before.kernels, after.kernels, strict=True):
        bank, moved = (i.section_named(f".nv.constant2.{old.name}") for i in (before, after))
        if bank is None or moved is None:
            continue
        for at in range(0, bank.size, 4):
            a, b = (int.from_bytes(i.content(s)[at : at + 4], "little") for i, s in ((before, bank), (after, moved)))
            assert arrives_at(new.text, b) == old.text[a : a + WORD]


def check_symbols(before: Image, after: Image) -> None:
    entries = {k.symbol: k for k in after.kernels}
    inside = {k.section for k in after.kernels}
    for old, new in zip(before.symbols, after.symbols, strict=True):
        assert (old.name, old.type, old.binding, old.other, old.section) == (
            new.name,
            new.type,
            new.binding,
            new.other,
            new.section,
        )
        if new.index in entries:
            assert (new.value, new.size) == (0, len(entries[new.index].text))
        elif new.section not in inside:
            assert (old.value, old.size) == (new.value, new.size)


def check_segments(before: Image, after: Image) -> None:
    def covered(of: Image) -> list[set[str]]:
        return [
            {s.name for s in of.sections if s.file_size and x.offset <= s.offset and s.end <= x.offset + x.filesz}
            for x in read_segments(of.data, of.header)
        ]

    assert covered(after) == covered(before)
    for old, new in zip(
        read_segments(before.data, before.header), read_segments(after.data, after.header), strict=True
    ):
        assert new.memsz - new.filesz == old.memsz - old.filesz


def check_relocations(before: Image, after: Image) -> None:
    texts = {k.section: k.text for k in before.kernels}
    moved = {k.section: k.text for k in after.kernels}
    for old_section, new_section in zip(before.sections, after.sections, strict=True):
        if old_section.type not in (4, 9):
            continue
        olds = read_relocations(before.data, old_section, before.symbols, "")
        news = read_relocations(after.data, new_section, after.symbols, "")
        for old, new in zip(olds, news, strict=True):
            assert (old.symbol, old.type) == (new.symbol, new.type)
            section = before.symbols[old.symbol].section
            if section in texts and old.addend is not None and new.addend is not None:
                a = before.symbols[old.symbol].value + old.addend
                b = after.symbols[new.symbol].value + new.addend
                assert b == 0 if a == 0 else arrives_at(moved[section], b) == texts[section][a : a + WORD]


def test_registers_change_in_both_places() -> None:
    data = bytearray(golden("two_kernels"))
    before = image.parse(bytes(data), "x")
    raised, other = before.kernels
    at = before.header.shoff + 64 * raised.section + 44
    data[at + 3] = raised.registers  # images of older architectures keep the count here as well
    before = image.parse(bytes(data), "x")
    after = image.parse(rewrite(before, [grow(raised, {0: 1}, more_registers=4)]), "y")
    assert after.kernel(raised.name).registers == raised.registers + 4
    assert after.sections[raised.section].info >> 24 == raised.registers + 4
    assert after.kernel(other.name).registers == other.registers
    assert after.sections[other.section].info >> 24 == 0


def test_the_other_kernel_of_an_image_is_left_alone() -> None:
    before = image.parse(golden("two_kernels"), "x")
    first, second = before.kernels
    after = image.parse(rewrite(before, [grow(first, {16: 3})]), "y")
    assert after.kernel(second.name).text == second.text
    assert [r.payload for r in after.kernel(second.name).info] == [r.payload for r in second.info]


def test_original_parameters_of_an_edit_are_checked() -> None:
    before = image.parse(golden("spin"), "x")
    kernel = before.kernels[0]
    same = (lambda o: o, lambda o: o)
    wrong = [
        CodeEdit(kernel.name, kernel.text[:-16], kernel.registers, *same),
        CodeEdit(kernel.name, kernel.text + b"\0", kernel.registers, *same),
        CodeEdit(kernel.name, kernel.text, kernel.registers - 1, *same),
        CodeEdit(kernel.name, kernel.text, 256, *same),
    ]
    for edit in wrong:
        with pytest.raises(BadInput) as caught:
            rewrite(before, [edit])
        assert caught.value.code == "XT1021"
    with pytest.raises(BadInput, match="two edits"):
        rewrite(before, [grow(kernel, {}), grow(kernel, {})])


def test_a_map_that_cannot_be_right_is_refused() -> None:
    before = image.parse(golden("triton_softmax"), "x")
    edit = grow(before.kernels[0], {16: 1})
    with pytest.raises(Unsupported) as caught:
        rewrite(before, [CodeEdit(edit.kernel, edit.text, edit.registers, edit.instr_off, lambda o: o + (1 << 20))])
    assert caught.value.code == "XT1105"


def with_attribute(name: str, attr: int, *, value: int) -> Image:
    """The image with its first 4-byte attribute (CUDA_API_VERSION) turned into another one."""
    data = bytearray(golden(name))
    record = next(r for r in image.parse(bytes(data), "x").kernels[0].info if r.attr == 0x37)
    data[record.offset + 1] = attr
    data[record.offset + 4 : record.offset + 8] = value.to_bytes(4, "little")
    return image.parse(bytes(data), "x.cubin")


@pytest.mark.parametrize("attr", [0x03, 0x40, 0x56, 0x7A])
def test_attributes_that_may_hold_offsets_are_refused_by_name(attr: int) -> None:
    before = with_attribute("spin", attr, value=16)
    with pytest.raises(Unsupported) as caught:
        rewrite(before, [grow(before.kernels[0], {0: 1})])
    assert caught.value.code == "XT1102"
    assert f"{attr:#04x}" in str(caught.value)


def test_an_attribute_offset_between_instructions_is_refused() -> None:
    before = with_attribute("spin", 0x46, value=24)
    with pytest.raises(Unsupported, match="EIATTR_SYSCALL_OFFSETS"):
        rewrite(before, [grow(before.kernels[0], {0: 1})])


def test_a_jump_table_that_no_attribute_explains_is_refused() -> None:
    data = bytearray(golden("brx_table"))
    before = image.parse(bytes(data), "x")
    bank = before.section_named(f".nv.constant2.{before.kernels[0].name}")
    assert bank is not None
    first = int.from_bytes(data[bank.offset : bank.offset + 4], "little")
    data[bank.offset : bank.offset + 4] = (first ^ 16).to_bytes(4, "little")
    before = image.parse(bytes(data), "x")
    with pytest.raises(Unsupported) as caught:
        rewrite(before, [grow(before.kernels[0], {0: 1})])
    assert caught.value.code == "XT1104"


def test_relocated_code_is_refused() -> None:
    data = bytearray(golden("call_rel"))
    before = image.parse(bytes(data), "x")
    kernel = before.kernels[0]
    section = next(s for s in before.sections if s.name == f".rela.text.{kernel.name}")
    donor = before.section_named(".rela.debug_line")
    assert donor is not None
    header = before.header.shoff + 64 * section.index
    data[header + 24 : header + 40] = donor.offset.to_bytes(8, "little") + (24).to_bytes(8, "little")
    before = image.parse(bytes(data), "x")
    assert before.kernels[0].has_text_relocations
    with pytest.raises(Unsupported) as caught:
        rewrite(before, [grow(before.kernels[0], {0: 1})])
    assert caught.value.code == "XT1101"


def test_overlapping_sections_are_never_rewritten() -> None:
    data = bytearray(golden("spin"))
    before = image.parse(bytes(data), "x")
    header = before.header.shoff + 64 * before.section_named(".nv.callgraph").index  # type: ignore[union-attr]
    data[header + 24 : header + 32] = before.kernels[0].offset.to_bytes(8, "little")
    before = image.parse(bytes(data), "x")
    with pytest.raises(BadInput) as caught:
        rewrite(before, [grow(before.kernels[0], {0: 1})])
    assert caught.value.code == "XT1017"


DISASSEMBLER = next(iter(Path(sys.prefix).glob("lib/python*/site-packages/nvidia/*/bin/nvdisasm")), None)


@pytest.mark.skipif(DISASSEMBLER is None and shutil.which("nvdisasm") is None, reason="nvdisasm is not installed")
@pytest.mark.parametrize("name", ["brx_table", "call_rel"])
def test_the_vendors_disassembler_finds_lines_and_functions_where_they_went(name: str, tmp_path: Path) -> None:
    before, after, _ = grown(name, share=0.05)

    def described(of: Image) -> list[tuple[str, str]]:
        """(last line mark, word) of every original instruction, in order; labels of functions as marks too."""
        path = tmp_path / "x.cubin"
        path.write_bytes(of.data)
        tool = str(DISASSEMBLER or shutil.which("nvdisasm"))
        text = subprocess.run([tool, "-g", "-hex", path], capture_output=True, text=True, check=True, timeout=60).stdout
        lines, mark, found = text.splitlines(), "", []
        for i, line in enumerate(lines):
            if "//## File" in line or line.startswith("$"):
                mark = line.strip()
            elif "/* 0x" in line and line.lstrip().startswith("/*") and ";" in line:
                word = line.split("/* ")[-1][:18] + lines[i + 1].split("/* ")[-1][:18]
                if "0x00f111e400007918" not in word:
                    found.append((mark, word))
        return found

    original, moved = described(before), described(after)
    assert len(original) == sum(k.instructions for k in before.kernels)
    assert moved[: len(original)] == original
