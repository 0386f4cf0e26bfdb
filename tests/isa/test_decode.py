"""Whole kernels: flow, tags, latency classes, register caps."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from xtrace import isa
from xtrace.errors import Unsupported
from xtrace.isa.model import Flow, Instruction, Latency
from xtrace.isa.nvidia.decode import NvidiaIsa


def all_of(decoded: dict[str, tuple[Instruction, ...]], base: str) -> list[Instruction]:
    return [i for kernel in decoded.values() for i in kernel if i.base == base]


def test_no_instruction_of_the_golden_kernels_is_opaque(decoded: dict) -> None:
    assert [(name, i.text) for name, kernel in decoded.items() for i in kernel if i.opaque] == []


def test_addresses_count_from_the_kernel_not_from_the_disassembler_run(decoded: dict) -> None:
    for kernel in decoded.values():
        assert [i.pc for i in kernel] == [16 * n for n in range(len(kernel))]
        for ins in kernel:
            if ins.target is not None:
                assert 0 <= ins.target < 16 * len(kernel)
                assert ins.target % 16 == 0
                assert ins.text.endswith(f"{ins.target:#x}")
            if ins.flow is Flow.RETURN:
                assert ins.text.endswith(" 0x0"), "the register holds a text offset: anchor zero"


def test_one_run_for_many_kernels_gives_what_single_runs_give(hopper: NvidiaIsa, decoded: dict) -> None:
    for name in list(decoded)[:2]:
        code = b"".join(i.word.to_bytes(16, "little") for i in decoded[name])
        assert hopper.decode(code) == decoded[name]


def test_flow_of_the_golden_kernels(decoded: dict) -> None:
    exits = all_of(decoded, "EXIT")
    assert {i.flow for i in exits} == {Flow.EXIT}
    assert all(i.falls_through == bool(i.guard) for i in exits)
    assert {i.flow for i in all_of(decoded, "CALL")} == {Flow.CALL}
    assert all(i.falls_through for i in all_of(decoded, "CALL"))
    assert {i.flow for i in all_of(decoded, "BRX")} == {Flow.INDIRECT}
    assert {i.flow for i in all_of(decoded, "BSSY")} == {Flow.PUSH}
    loops = [i for i in all_of(decoded, "BRA") if i.target == i.pc]
    assert loops, "the tail of every kernel branches to itself"
    assert not any(i.falls_through for i in loops if not i.guard)
    assert all(i.falls_through for i in all_of(decoded, "BRA") if ".DIV" in i.opcode)


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("HGMMA.64x64x16.F32 R24, gdesc[UR8], RZ, !UPT", "matrix matrix_async"),
        ("HGMMA.64x64x16.F32 R24, gdesc[UR8], R24, gsb0", "matrix matrix_async matrix_commit"),
        ("HGMMA.NEW R24, gdesc[UR8], R24, gsb0", "matrix matrix_async matrix_commit"),  # opaque, and still asynchronous
        ("HMMA.16816.F32 R4, R8, R12, R4", "matrix"),
        ("WARPGROUP.ARRIVE", "matrix_fence"),
        ("WARPGROUP.DEPBAR.LE gsb0, 0x1", "matrix_wait pending=1"),
        ("BAR.SYNC.DEFER_BLOCKING 0x1, 0x100", "barrier memory"),
        ("BAR.ARV 0x1, 0x100", "barrier_arrive memory"),
        ("SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [UR4], R9", "mbarrier_wait memory"),
        ("SYNCS.ARRIVE.TRANS64 RZ, [UR4], R9", "mbarrier_arrive memory"),
        ("UTMALDG.2D [UR8], [UR4]", "copy_async memory"),
        ("LDGSTS.E [R4], desc[UR4][R6.64]", "copy_async global_load memory"),
        ("LDGDEPBAR", "copy_commit memory"),
        ("UTMACMDFLUSH", "copy_commit memory"),
        ("DEPBAR.LE SB0, 0x1", "copy_wait"),
        ("LD.E R4, desc[UR4][R6.64]", "global_load generic memory"),
        ("STG.E desc[UR4][R6.64], R4", "global_store memory"),
        ("LDS R4, [R5]", "shared_load memory"),
        ("STL [R1], R5", "local_store memory"),
        ("ATOMS.ADD R4, [R5], R6", "atomic memory"),
        ("USETMAXREG.DEALLOC.CTAPOOL 0x18", "setmaxreg"),
        ("ELECT P0, URZ, PT", "elect"),
        ("BSYNC B0", "converge"),
        ("NANOSLEEP.SYNCS 0x989680", "nanosleep"),
        ("IADD3 R1, R2, R3, R4", ""),
    ],
)
def test_tags(read: Callable[..., Instruction], text: str, tags: str) -> None:
    assert read(text).tags == frozenset(tags.split())


def test_latency_classes(read: Callable[..., Instruction]) -> None:
    assert read("IADD3 R1, R2, R3, R4").latency is Latency.FIXED
    assert read("LDG.E R1, desc[UR4][R2.64]").latency is Latency.VARIABLE
    assert read("HGMMA.64x64x16.F32 R24, gdesc[UR8], R24").latency is Latency.ASYNC_MATRIX
    assert read("HGMMA.NEW R24, gdesc[UR8], R24").latency is Latency.ASYNC_MATRIX
    claims = 3 << 110 | 7 << 113 | 0x918
    assert read("HMMA.16816.F32 R4, R8, R12, R4", claims).latency is Latency.VARIABLE


def test_register_caps(hopper: NvidiaIsa, read: Callable[..., Instruction]) -> None:
    assert hopper.max_registers(read("USETMAXREG.DEALLOC.CTAPOOL 0x18")) == 24
    assert hopper.max_registers(read("USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xf0")) == 240
    assert hopper.max_registers(read("MOV R1, 0x18")) is None


def test_a_call_through_a_register_may_do_anything(hopper: NvidiaIsa) -> None:
    word = 0x001FEA0003C000000000000008007343
    ins = hopper.instruction(0, word, "CALL.ABS.NOINC R8")
    assert (ins.flow, ins.opaque, ins.falls_through) == (Flow.INDIRECT, True, True)
    assert hopper.retarget(word, 0, 0x100, None) == word


def test_text_that_contradicts_the_word_is_opaque(hopper: NvidiaIsa) -> None:
    branch = 0x000FEA0003800000000000FC00347947
    assert not hopper.instruction(0, branch, "BRA 0x0").opaque
    assert hopper.instruction(0, branch, "MOV R1, 0x0").opaque


def test_uniform_registers_end_at_62_on_this_family(hopper: NvidiaIsa) -> None:
    assert hopper.layout["UR"].count == 63
    assert (hopper.scoreboards, hopper.word_bytes, hopper.reserved_registers) == (6, 16, 2)


@pytest.mark.parametrize(
    ("arch", "code"), [("sm_80", "XT2002"), ("sm_100a", "XT2002"), ("gfx942", "XT2002"), ("sm_42", "XT2001")]
)
def test_what_is_not_verified_is_refused_with_a_reason(arch: str, code: str) -> None:
    with pytest.raises(Unsupported, match=code):
        isa.for_arch(arch)
