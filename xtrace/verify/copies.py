"""The second copy of a sampled kernel: the original again, bit for bit, between the entry's island and the traced code.

Warps that are not sampled run it. Part of the promises ``instructions`` (it is the original) and ``targets`` (all that
leads anywhere in it stays in it, and one branch, at the entry, leads into it; another one leads over it).
"""

from __future__ import annotations

from typing import Any

from xtrace.errors import XtraceError
from xtrace.isa.model import Flow, Instruction
from xtrace.verify.certificate import Findings, Promise
from xtrace.verify.pair import Pair, code_words

__all__ = ["check", "find", "is_decision", "is_way"]

_INSTRUCTIONS, _TARGETS = Promise.INSTRUCTIONS, Promise.TARGETS
_LINE = 128
_ABOUT_ADDRESSES = (Flow.INDIRECT, Flow.CALL, Flow.RETURN)
_PREDICATES = frozenset(f"P{k}" for k in range(7))
_TOGETHER = ("matrix_async", "matrix_commit", "matrix_fence", "matrix_wait", "setmaxreg")


def find(
    original: bytes, traced: bytes, claim: dict[str, Any] | None, word_bytes: int, name: str, findings: Findings
) -> range:
    """Indices of the copy's words; empty if there is none.

    Without a map it is found by its words: all of the original, with room for all of the traced code behind it.
    """
    before, after = (code_words(text, word_bytes) for text in (original, traced))
    count, step = len(before), _LINE // word_bytes
    last = len(after) - 2 * count if count else 0  # where it can begin at most
    if claim is None:
        first = next((j for j in range(step, last + 1, step) if after[j : j + count] == before), None)
        return range(0) if first is None else range(first, first + count)
    if (said := claim.get("copy")) is None:
        return range(0)
    first, beyond = divmod(said["pc"], word_bytes)
    if said["words"] == count and not beyond and 0 < first <= last:
        return range(first, first + count)
    why = f"the map's copy of the code is not {count} words in front of the traced ones (older versions: splice again)"
    findings.fail(_INSTRUCTIONS, name, why)
    return range(0)


def is_way(pair: Pair, j: int) -> bool:
    """Whether traced word ``j`` is one of the two branches at the entry: into the copy, or over it."""
    return is_decision(pair, j) or _leads_over(pair, j)


def _leads_over(pair: Pair, j: int) -> bool:
    ins = pair.output.code[j]
    return _at_entry(pair, j) and not ins.guard and ins.target == pair.align.copy.stop * pair.word_bytes


def _at_entry(pair: Pair, j: int) -> bool:
    """Whether it is a branch in the island in front of the copy."""
    ins = pair.output.code[j]
    return bool(pair.align.copy) and j in pair.align.island(0) and ins.flow is Flow.BRANCH and ins.opcode == "BRA"


def is_decision(pair: Pair, j: int) -> bool:
    """Whether traced word ``j`` is the probes' branch into the copy: conditional, at the entry, to its first word."""
    ins, start = pair.output.code[j], pair.align.copy.start
    return _at_entry(pair, j) and ins.guard.lstrip("@!") in _PREDICATES and ins.target == start * pair.word_bytes


def check(pair: Pair) -> None:
    """Words of the copy, their targets, and the ways between the copies."""
    copy, code = pair.align.copy, pair.output.code
    if not copy:
        if (pair.claim or {}).get("sample") is not None:
            pair.fail(_INSTRUCTIONS, "the map has a sampling rule, but there is no second copy of the code")
        return
    start = copy.start * pair.word_bytes
    if start % _LINE:
        pair.fail(_INSTRUCTIONS, f"the copy of the code begins at {start:#x}, which is no multiple of {_LINE}")
    if pair.align.position[0] != copy.stop:
        pair.fail(_INSTRUCTIONS, "words stand between the copy of the code and the first instruction", code[copy.stop])
    for old, j in zip(pair.original.code, copy, strict=True):
        new = code[j]
        if new.word != old.word:
            pair.fail(_INSTRUCTIONS, f"copy differs from original pc {old.pc:#x} `{old.text}`", new)
        if why := _misled(pair, old, new, start):
            pair.fail(_TARGETS, why, new)
    if pair.literals:
        pair.fail(_TARGETS, "return addresses of the copy lead into the traced code")
    _ways(pair)


def _misled(pair: Pair, old: Instruction, new: Instruction, start: int) -> str:
    """Why what this word of the copy names is not what it named in the original."""
    if old.flow in _ABOUT_ADDRESSES:
        return "goes through a register or table, which names addresses of one copy only"
    if old.target is not None:
        inside = 0 <= old.target <= len(pair.before.text)
        if not inside or new.target != old.target + start:
            found = "nowhere" if new.target is None else f"to {new.target:#x}"
            return f"of the copy goes {found}, expected {old.target + start:#x}"
        return ""
    if pair.isa.code_field_mask(old.word):
        return "holds a code address that is added to a register, which names one copy only"
    try:
        kept = pair.isa.retarget(old.word, old.pc, new.pc, None) == old.word
    except XtraceError:
        kept = False
    return "" if kept else "holds an absolute code address"


def _ways(pair: Pair) -> None:
    """One branch leads into the copy, nothing leads out of it."""
    copy, output = pair.align.copy, pair.output
    reachable = output.reachable()
    entered = 0
    for j, targets in enumerate(output.succ):
        if j not in copy and reachable[j] and any(k in copy for k in targets):
            entered += 1
            if not is_decision(pair, j):
                pair.fail(_TARGETS, "leads into the copy, and is not the branch at the kernel's entry", output.code[j])
    for j in copy:
        if reachable[j] and any(k not in copy for k in output.succ[j]):
            pair.fail(_TARGETS, "leads out of the copy into the traced code", output.code[j])
    sampled = (pair.claim or {}).get("sample") is not None
    if entered > 1 or (sampled and not entered):
        pair.fail(_TARGETS, f"{entered} branches lead into the copy instead of one")
    if entered and pair.claim is not None and not sampled:
        pair.fail(_TARGETS, "a branch leads into the copy, but the map has no sampling rule")
    if any(j in copy for j in output.entries):
        pair.fail(_TARGETS, "the kernel is entered in the copy")


def needs_whole_warpgroups(pair: Pair) -> bool:
    """Whether four warps must execute some instruction together: the same one, not its like in another copy."""
    return any(not ins.tags.isdisjoint(_TOGETHER) for ins in pair.original.code)
