"""Code addresses in words: found, moved, and agreed on by the disassembler."""

from __future__ import annotations

import re

import pytest

from xtrace.errors import BadInput, Refused
from xtrace.isa.model import Flow
from xtrace.isa.nvidia.decode import NvidiaIsa
from xtrace.isa.nvidia.disasm import disassemble

BRX = 0x000FEA000383FFFFFFFFFFFC06787949  # BRX R6 -0x220 at 0x210
RET = 0x000FEA0003C3FFFFFFFFFFF808187950  # RET.REL.NODEC R8 0x0 at 0x790
LEPC = 0x000FCE0000000000000000001014794E  # LEPC R20, 0x720 at 0x700
JMP = 0x000FEA0003800000_000000000000794A
COLLECTIVE = 0x000FEA0003C00000_0000000009007348  # WARPSYNC.COLLECTIVE R9, next
PROBE_SHIFT = 0x230


def _direct(decoded: dict) -> list:
    return [i for kernel in decoded.values() for i in kernel if i.target is not None]


def test_golden_kernels_hold_every_kind_of_direct_address(decoded: dict) -> None:
    assert {i.base for i in _direct(decoded)} >= {"BRA", "BSSY", "CALL"}


def test_a_word_that_does_not_move_does_not_change(hopper: NvidiaIsa, decoded: dict) -> None:
    for ins in _direct(decoded):
        assert hopper.retarget(ins.word, ins.pc, ins.pc, ins.target) == ins.word


def test_moving_there_and_back_gives_the_word_and_touches_only_the_address(hopper: NvidiaIsa, decoded: dict) -> None:
    for ins in _direct(decoded):
        there = hopper.retarget(ins.word, ins.pc, ins.pc + PROBE_SHIFT, ins.target + 0x1230)
        assert (there ^ ins.word) & ~hopper.code_field_mask(ins.word) == 0
        assert there != ins.word
        assert hopper.retarget(there, ins.pc + PROBE_SHIFT, ins.pc, ins.target) == ins.word


def test_the_disassembler_sees_the_new_targets(hopper: NvidiaIsa, decoded: dict) -> None:
    kernel = next(k for name, k in decoded.items() if name.startswith("call_rel/"))
    goal = {i.pc: (i.target + 0x150) if i.target + 0x150 >= 0 else 0 for i in kernel if i.target is not None}
    words = [hopper.retarget(i.word, i.pc, i.pc, goal[i.pc]) if i.target is not None else i.word for i in kernel]
    listing = disassemble([b"".join(w.to_bytes(16, "little") for w in words)], "sm_90a")[0]
    moved = [text for ins, text in zip(kernel, listing, strict=True) if ins.pc in goal]
    addresses = [int(re.findall(r"0x([0-9a-f]+)", text)[-1], 16) for text in moved]
    assert addresses == list(goal.values())
    assert len(goal) > 5


def test_bssy_has_its_own_field(hopper: NvidiaIsa, decoded: dict) -> None:
    ins = next(i for i in _direct(decoded) if i.base == "BSSY")
    assert hopper.code_field_mask(ins.word) == ((1 << 30) - 1) << 34
    hopper.retarget(ins.word, 0, 0, 16 + 4 * ((1 << 29) - 1))
    with pytest.raises(Refused, match="XT2202"):
        hopper.retarget(ins.word, 0, 0, 16 + 4 * (1 << 29))


def test_register_jumps_keep_their_anchor(hopper: NvidiaIsa) -> None:
    for word, pc in ((BRX, 0x210), (RET, 0x790)):
        moved = hopper.retarget(word, pc, pc + PROBE_SHIFT, None)
        assert moved != word
        assert hopper.retarget(moved, pc + PROBE_SHIFT, pc, None) == word
        assert (moved ^ word) & ~hopper.code_field_mask(word) == 0
    texts = disassemble([hopper.retarget(BRX, 0x210, 0x440, None).to_bytes(16, "little")], "sm_90a")
    assert texts == [["BRX R6 -0x450"]]


def test_collective_warpsync_names_an_address(hopper: NvidiaIsa) -> None:
    moved = hopper.retarget(COLLECTIVE, 0, 0, 0x450)
    assert disassemble([moved.to_bytes(16, "little")], "sm_90a") == [["WARPSYNC.COLLECTIVE R9, 0x450"]]
    ins = hopper.instruction(0, moved, "WARPSYNC.COLLECTIVE R9, 0x450")
    assert (ins.target, ins.flow, ins.opaque) == (0x450, Flow.PUSH, False)
    assert hopper.code_field_mask(moved & ~(3 << 85)) == 0, "the other modes hold none"


def test_lepc_counts_bytes(hopper: NvidiaIsa) -> None:
    ins = hopper.instruction(0x70, LEPC, "LEPC R20, 0x720")
    assert (ins.target, ins.flow) == (0x720, Flow.PUSH)
    moved = hopper.retarget(LEPC, 0x700, 0x700, 0x731)
    assert hopper.instruction(0x70, moved, "LEPC R20, 0x0").target == 0x731


def test_absolute_jumps_cannot_be_moved(hopper: NvidiaIsa) -> None:
    with pytest.raises(Refused, match="XT2201"):
        hopper.retarget(JMP, 0, 16, None)
    assert "pinned" in hopper.instruction(0, JMP, "JMP 0x0").tags


def test_target_and_kind_must_agree(hopper: NvidiaIsa, decoded: dict) -> None:
    branch = _direct(decoded)[0]
    plain = next(i for k in decoded.values() for i in k if i.flow is Flow.FALL)
    with pytest.raises(BadInput, match="XT2203"):
        hopper.retarget(branch.word, 0, 16, None)
    with pytest.raises(BadInput, match="XT2203"):
        hopper.retarget(plain.word, 0, 16, 0)
    assert hopper.retarget(plain.word, 0, 16, None) == plain.word
    assert hopper.code_field_mask(plain.word) == 0
