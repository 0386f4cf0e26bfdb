"""A second copy of the code in front of the edited one: which tables name it, and which begin behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from xtrace.errors import BadInput, Unsupported
from xtrace.image import CodeEdit, Image, eiattr, load, parse, rewrite
from xtrace.image.info import u32s
from xtrace.image.writer import PADDING_WORD
from xtrace.verify.debug import LINES, _addresses
from xtrace.verify.lines import read_lines

SHIFT = 128  # bytes of NOPs in front of the first instruction


def edit_of(image: Image, *, copy: int | None = None) -> CodeEdit:
    kernel = image.kernels[0]
    nops = PADDING_WORD * (SHIFT // 16)

    def moved(old: int) -> int:
        return old + SHIFT + len(kernel.text)

    place = SHIFT if copy is None else copy
    return CodeEdit(kernel.name, nops + 2 * kernel.text, kernel.registers, moved, lambda old: old and moved(old), place)


@pytest.mark.parametrize("name", ["spin", "triton_fa_fwd", "warp_specialised", "many_registers"])
def test_lists_symbols_and_lines_of_a_kernel_with_a_copy(golden_image: Callable[[str], Path], name: str) -> None:
    image = load(golden_image(name))
    out = parse(rewrite(image, [edit_of(image)]), name)
    before, after = image.kernels[0], out.kernels[0]
    size = len(before.text)
    assert len(after.text) == SHIFT + 2 * size
    for old, new in zip(before.info, after.info, strict=True):
        if eiattr.CARRIES.get(old.attr) is eiattr.Carries.OFFSETS:
            offsets = u32s(old, name)
            assert u32s(new, name) == (*(SHIFT + size + k for k in offsets), *(SHIFT + k for k in offsets))
        elif eiattr.CARRIES.get(old.attr) is eiattr.Carries.NOTHING:
            assert new == replace(old, offset=new.offset)
    (symbol,) = [s for s in out.symbols if s.index == after.symbol]
    assert (symbol.value, symbol.size) == (0, len(after.text))
    for section in out.sections:
        if section.name in LINES and section.size:
            rows = read_lines(out.content(section), _addresses(out, section), section.name)
            addresses = [row.address for row in rows if row.text == after.section]
            assert (min(addresses), max(addresses)) == (SHIFT + size, SHIFT + 2 * size)


@pytest.mark.parametrize("place", [0, 256, 1 << 20])
def test_a_copy_must_lie_within_the_new_code(golden_image: Callable[[str], Path], place: int) -> None:
    image = load(golden_image("many_registers"))
    edit = edit_of(image, copy=place)
    if place == 256:  # a place that would do, but not for all of it
        edit = replace(edit, text=edit.text[: len(image.kernels[0].text) + 128])
    with pytest.raises(BadInput, match="reaches beyond the new code") as caught:
        rewrite(image, [edit])
    assert caught.value.code == "XT1021"


def test_a_list_that_cannot_name_both_copies_is_refused(golden_image: Callable[[str], Path]) -> None:
    image = load(golden_image("brx_table"))
    with pytest.raises(Unsupported, match="both copies") as caught:
        rewrite(image, [edit_of(image)])
    assert caught.value.code == "XT1110"
