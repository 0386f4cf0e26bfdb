"""Promise ``targets``: all that names a code address names the image of what it named before."""

from __future__ import annotations

import re

from xtrace.errors import XtraceError
from xtrace.isa.model import Flow, Instruction
from xtrace.verify.certificate import Promise
from xtrace.verify.pair import Pair, is_return_literal

__all__ = ["check"]

_PRINTED = re.compile(r"0x([0-9a-f]+)\s*$")


def check(pair: Pair) -> None:
    """Branches, calls, convergence targets, register-jump anchors and return-address literals of one kernel."""
    literals: set[int] = set()
    for old, j in zip(pair.original.code, pair.align.position, strict=True):
        new = pair.output.code[j]
        if pair.isa.code_field_mask(old.word):
            _field(pair, old, new)
        elif is_return_literal(old.word, pair.return_points):
            was, now = (word >> 32 & 0xFFFFFFFF for word in (old.word, new.word))
            literals.add(was)
            if now != pair.target_off(was):
                pair.fail(Promise.TARGETS, f"return address {now:#x}, expected {pair.target_off(was):#x}", new)
        elif old.pc != new.pc and not _movable(pair, old):
            pair.fail(Promise.TARGETS, "holds an absolute code address; it cannot be moved", new)
    if any(ins.flow is Flow.RETURN for ins in pair.original.code):
        for point in sorted(pair.return_points - literals):
            if pair.target_off(point) != point:
                pair.fail(Promise.TARGETS, f"no literal found for the return address {point:#x} that moved")


def _movable(pair: Pair, ins: Instruction) -> bool:
    try:
        return pair.isa.retarget(ins.word, ins.pc, ins.pc, None) == ins.word
    except XtraceError:
        return False


def _field(pair: Pair, old: Instruction, new: Instruction) -> None:
    if old.target is None:  # register jump: keep next pc + immediate constant
        if new.word != pair.isa.retarget(old.word, old.pc, new.pc, None):
            pair.fail(Promise.TARGETS, f"anchor of a register jump was not kept (original pc {old.pc:#x})", new)
        return
    if not 0 <= old.target <= len(pair.original.code) * pair.word_bytes or old.target % pair.word_bytes:
        pair.fail(Promise.TARGETS, f"original target {old.target:#x} is outside the kernel", old, side="original")
        return
    wanted = pair.target_off(old.target)
    if new.target != wanted:
        found = "nowhere" if new.target is None else f"{new.target:#x}"
        pair.fail(Promise.TARGETS, f"goes to {found}, the image of {old.target:#x} is {wanted:#x}", new)
        return
    if new.word != pair.isa.retarget(old.word, old.pc, new.pc, wanted):
        pair.fail(Promise.TARGETS, f"encodes its target {wanted:#x} in an unexpected way", new)
    printed = _PRINTED.search(new.text)
    if printed and int(printed[1], 16) != wanted:
        pair.fail(Promise.TARGETS, f"disassembler prints target {printed[1]}, expected {wanted:x}", new)
