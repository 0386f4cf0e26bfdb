"""The pad control: same size, same kernel words, nothing inserted but NOPs."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import xtrace
from xtrace.errors import BadInput
from xtrace.fidelity import compare
from xtrace.image import Image, Kernel, parse
from xtrace.isa import for_arch
from xtrace.splice import SpliceResult
from xtrace.splice.pad import Padding, inserted_islands, pad

# With a probe at every instruction there are islands whose store waits for the scoreboard that it claims.
CASES = (
    ("spin", "pp"),
    ("triton_softmax", "pp"),
    ("many_registers", "pp"),
    ("brx_table", "pp"),
    ("odd_block", "op:*"),
    ("triton_softmax", "op:*"),
)


@pytest.fixture(params=CASES, ids=" ".join)
def spliced(request: pytest.FixtureRequest, golden_image: Callable[[str], Path]) -> tuple[Image, SpliceResult]:
    name, probes = request.param
    original = xtrace.load(golden_image(name))
    return original, xtrace.splice(original, probes=probes)


def inserted(image: Image, trace_map: Mapping[str, Any], kernel: Kernel) -> set[int]:
    """Indices of the kernel's words that are no words of the original."""
    islands = [island for name, _, island in inserted_islands(image, trace_map) if name == kernel.name]
    return {(at - kernel.offset) // 16 for island in islands for at in island}


def test_only_inserted_words_differ_and_they_are_nops_that_wait_for_nothing(spliced) -> None:
    _, traced = spliced
    padded = pad(traced.data, traced.map)
    assert len(padded.data) == len(traced.data)
    places = {at for _, _, island in inserted_islands(parse(traced.data, "traced"), traced.map) for at in island}
    outside = bytearray(traced.data), bytearray(padded.data)
    for at in places:
        for data in outside:
            data[at : at + 16] = bytes(16)
    assert outside[0] == outside[1]
    image = parse(padded.data, "padded")
    isa = for_arch(image.arch)
    for kernel in image.kernels:
        mine = inserted(image, padded.map, kernel)
        words = [ins for ins in isa.decode(kernel.text) if ins.index in mine]
        assert len(words) == len(mine)
        for ins in words:
            assert ins.text.strip() == "NOP"
            assert ins.control.wait_mask == 0
            assert ins.control.write_sb is None
            assert ins.control.read_sb is None


def test_nops_may_take_as_long_as_what_they_stand_for_and_stand_for_stores_alone(spliced) -> None:
    _, traced = spliced
    isa = for_arch("sm_90a")
    images = {p: parse(pad(traced.data, traced.map, padding=p).data, p.name) for p in Padding}
    before = parse(traced.data, "traced")
    stored = 0
    for kernel in before.kernels:
        decoded = {p: isa.decode(image.kernel(kernel.name).text) for p, image in images.items()}
        mine = inserted(before, traced.map, kernel)
        for ins in isa.decode(kernel.text):
            words = {p: code[ins.index] for p, code in decoded.items()}
            if ins.index not in mine:
                assert {w.word for w in words.values()} == {ins.word}
                continue
            assert words[Padding.NOPS].control.stall == 1
            assert words[Padding.STALLS].base == "NOP"
            assert words[Padding.STALLS].control.stall == ins.control.stall
            assert words[Padding.STALLS].control.wait_mask == 0
            if ins.index - 1 not in mine:
                claimed = 0  # by stores of this island
            left = words[Padding.UNSTORED]
            if ins.base == "STG":
                stored += 1
                assert left.base == "NOP"
                assert left.control.read_sb is None
                claimed |= 0 if ins.control.read_sb is None else 1 << ins.control.read_sb
            assert left.control.wait_mask == ins.control.wait_mask & ~claimed
            assert left.control.stall == ins.control.stall
            if ins.base != "STG" and not ins.control.wait_mask & claimed:
                assert left.word == ins.word
    assert stored


@pytest.mark.parametrize("padding", Padding)
def test_the_kernel_is_whole_in_the_pad_image(spliced, padding: Padding) -> None:
    original, traced = spliced
    padded = pad(traced.data, traced.map, padding=padding)
    before = {k.name: k.registers for k in parse(traced.data, "traced").kernels}
    image = parse(padded.data, "padded")
    assert {k.name: k.registers for k in image.kernels} == before
    for result in compare(original, image, map=padded.map):
        assert result.relocated == 1.0
        assert result.changed_blocks == 0
    promises = xtrace.verify(original, padded.data, padded.map).promises
    for name in ("instructions", "targets", "liveness", "hazards", "wellformed"):
        assert promises[name] == "PASS"


@pytest.mark.parametrize("padding", Padding)
def test_a_pad_image_traces_nothing(spliced, padding: Padding) -> None:
    padded = pad(spliced[1].data, spliced[1].map, padding=padding)
    assert all(not k["patches"] and not k["sites"] and k["slot"] is None for k in padded.map["kernels"])


def test_the_map_must_belong_to_the_image(golden_image: Callable[[str], Path]) -> None:
    original = xtrace.load(golden_image("spin"))
    traced = xtrace.splice(original, probes="pp")
    with pytest.raises(BadInput, match="another image"):
        pad(original.data, traced.map)
    broken = {**traced.map, "kernels": [{**k, "islands": [{"pc": 1 << 20, "words": 1}]} for k in traced.map["kernels"]]}
    with pytest.raises(BadInput, match="outside the kernel"):
        pad(traced.data, broken)
