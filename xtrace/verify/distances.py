"""Distance half of promise ``hazards``: fixed-latency results, overwrites and late waits, along every path.

No register interlock exists for fixed-latency results: an instruction issued too early silently reads the old value.
From every instruction the next few cycles are walked along all paths, across island borders and branches; only pairs
with at least one probe instruction are judged (the kernel's own distances can only have grown).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xtrace.isa.model import Instruction, Latency
from xtrace.verify.certificate import Promise
from xtrace.verify.ownership import fence_window
from xtrace.verify.pair import Pair

__all__ = ["check"]

_HAZARDS = Promise.HAZARDS
_HORIZON = 28  # cycles; longer than every distance below
_AFTER_CLAIM = 2  # a wait that issues earlier does not see the claim
_FENCE = 8  # general register -> the fence that hands it to the matrix unit
_UNIFORM_PRODUCERS = ("R2UR", "VOTEU", "USETMAXREG")
_CODES = frozenset([*range(1, 16), *range(17, 28)])  # legal stall fields but the drain


def check(pair: Pair, filler: Mapping[int, int]) -> None:
    """Stall fields of probe words, then all distances around them.

    ``filler``: registers that a probe store reads without a use for what they hold.
    """
    output = pair.output
    if not pair.align.islands():
        return
    for i, ins in enumerate(output.code):
        if output.probe[i] and i not in pair.align.padding:
            _fields(pair, ins)
    if output.unknown:
        pair.skip(_HAZARDS, "the kernel jumps through a register; its paths are unknown")
        return
    touched = 0
    for i, ins in enumerate(output.code):
        if output.probe[i]:
            touched |= ins.reads | ins.writes
    window = fence_window(output)
    handed = {
        i: _union(window[j] for j in output.succ[i]) for i, ins in enumerate(output.code) if "matrix_fence" in ins.tags
    }
    near = _near_probes(pair)
    for i, ins in enumerate(output.code):
        relevant = output.probe[i] or (near[i] and ((ins.writes | ins.reads) & touched or _claims(ins)))
        if relevant and not ins.never:
            _walk(pair, i, handed, filler)


def _union(sets: Iterable[int]) -> int:
    bits = 0
    for s in sets:
        bits |= s
    return bits


def _fields(pair: Pair, ins: Instruction) -> None:
    code = ins.word >> 105 & 0x1F
    if code == 0:
        pair.fail(_HAZARDS, "stall field 0 drains the pipeline", ins)
    elif code not in _CODES:
        pair.fail(_HAZARDS, f"stall field {code} is illegal (bit 109 with stall {code & 15})", ins)
    if ins.word >> 122 & 7:
        pair.fail(_HAZARDS, "probe uses reuse or batch flags", ins)


def _claims(ins: Instruction) -> int:
    return sum(1 << sb for sb in {ins.control.write_sb, ins.control.read_sb} if sb is not None)


def _near_probes(pair: Pair) -> list[bool]:
    """Whether a probe can be reached within the horizon, counted in instructions (each takes a cycle or more)."""
    output = pair.output
    near = list(output.probe)
    frontier = [i for i, p in enumerate(near) if p]
    for _ in range(_HORIZON):
        frontier = [p for i in frontier for p in output.pred[i] if not near[p]]
        for i in frontier:
            near[i] = True
    return near


def _walk(pair: Pair, start: int, handed: dict[int, int], filler: Mapping[int, int]) -> None:
    """Visit what follows ``start`` within the horizon, with the fewest cycles and the results not yet overwritten."""
    output = pair.output
    code, probe = output.code, output.probe
    first = code[start]
    claims = _claims(first)
    stack = [(j, max(first.control.stall, 1), first.writes) for j in output.succ[start]]
    seen: dict[int, list[tuple[int, int]]] = {}
    while stack:
        i, cycles, alive = stack.pop()
        if cycles >= _HORIZON or not (alive | first.reads | claims):
            continue
        known = seen.setdefault(i, [])
        if any(c <= cycles and alive & ~bits == 0 for c, bits in known):
            continue
        known.append((cycles, alive))
        ins = code[i]
        if probe[start] or probe[i]:
            used = ins.reads & ~filler.get(i, 0)
            why = _too_close(pair, first, ins, cycles, alive, used, claims if probe[i] else 0, handed.get(i, 0))
            if why:
                pair.fail(_HAZARDS, f"{why} `{first.text}` at {first.pc:#x}", ins)
                continue
        step = max(ins.control.stall, 1)
        left = alive if ins.never else alive & ~ins.kills
        stack.extend((j, cycles + step, left) for j in output.succ[i])


def _too_close(
    pair: Pair, first: Instruction, ins: Instruction, cycles: int, alive: int, used: int, claims: int, handed: int
) -> str:
    """Why ``ins`` may not issue ``cycles`` after ``first``; empty if it may."""
    if claims & ins.control.wait_mask and cycles < _AFTER_CLAIM:
        return f"waits {cycles} cycle after the claim of"
    if ins.never:
        return ""
    isa = pair.isa
    if first.latency is Latency.FIXED:
        if alive & used:
            need = isa.required_distance(first, ins)
            if cycles < need:
                return f"reads after {cycles} of {need} cycles the result of"
        if cycles < _FENCE and alive & handed:  # registers that the fence gives to the matrix unit
            return f"fence comes {cycles} of {_FENCE} cycles after a write of its operand by"
        if alive & ins.writes:
            need = _overwrite_distance(first, ins)
            if cycles < need:
                return f"overwrites after {cycles} of {need} cycles the result of"
    if first.reads & ins.writes:
        need = _reread_distance(first, ins)
        if cycles < need:
            return f"overwrites after {cycles} of {need} cycles a source of"
    return ""


def _overwrite_distance(first: Instruction, second: Instruction) -> int:
    """Output dependence: the later result must also arrive later."""
    if "matrix" in first.tags:
        return 27
    if first.base == "R2UR" and second.base.startswith("U"):
        return 10
    if first.base in _UNIFORM_PRODUCERS and second.base.startswith("U"):
        return 8
    return 2


def _reread_distance(first: Instruction, second: Instruction) -> int:
    """Anti dependence on a source that is fetched at issue or shortly after."""
    if "matrix" in first.tags and "matrix_async" not in first.tags:
        return 7
    if second.base == "ULDC" and first.base.startswith("U"):
        return 3
    if "memory" in second.tags:
        return 2
    return 1
