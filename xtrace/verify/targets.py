"""Promise ``targets``: all that names a code address names the image of what it named before."""

from __future__ import annotations

from collections.abc import Mapping

from xtrace.errors import XtraceError
from xtrace.isa.model import Flow, Instruction
from xtrace.verify.certificate import Promise
from xtrace.verify.pair import Pair

__all__ = ["check"]


def check(pair: Pair, printed: Mapping[int, int] | None) -> None:
    """Branches, calls, convergence targets, register-jump anchors and return-address literals of one kernel.

    ``printed`` holds the second opinion of :func:`xtrace.verify.second.printed_distances`.
    """
    if printed is None:
        pair.skip(Promise.TARGETS, "the disassembler gave no second opinion on code addresses")
    for old, j in zip(pair.original.code, pair.align.position, strict=True):
        new = pair.output.code[j]
        if pair.isa.code_field_mask(old.word):
            _field(pair, old, new, printed)
        elif old.index in pair.literals:
            wanted, now = pair.target_off(pair.literals[old.index]), new.word >> 32 & 0xFFFFFFFF
            if now != wanted:
                pair.fail(Promise.TARGETS, f"return address {now:#x}, expected {wanted:#x}", new)
        elif old.pc != new.pc and not _movable(pair, old):
            pair.fail(Promise.TARGETS, "holds an absolute code address; it cannot be moved", new)
    known = set(pair.literals.values())
    for call in pair.original.code:
        point = call.pc + call.size
        if call.flow is Flow.CALL and point not in known and pair.target_off(point) != point:
            pair.fail(Promise.TARGETS, f"return address {point:#x} moved, but where it is loaded was not found", call)


def _movable(pair: Pair, ins: Instruction) -> bool:
    try:
        return pair.isa.retarget(ins.word, ins.pc, ins.pc, None) == ins.word
    except XtraceError:
        return False


def _field(pair: Pair, old: Instruction, new: Instruction, printed: Mapping[int, int] | None) -> None:
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
    if printed is not None and new.word in printed and (shown := new.pc + new.size + printed[new.word]) != wanted:
        pair.fail(Promise.TARGETS, f"the disassembler reads target {shown:#x}, expected {wanted:#x}", new)
    elif printed is not None and new.word not in printed:
        pair.fail(Promise.TARGETS, "the disassembler sees no code address here", new)
