"""Emit the islands of a plan, move the code apart, and write image and trace map."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from xtrace.errors import Refused
from xtrace.image import CodeEdit, parse, rewrite
from xtrace.isa.nvidia import encode
from xtrace.isa.nvidia.emit import (
    ExitRegisters,
    PrologueRegisters,
    Record,
    exit_island,
    prologue,
    record_group,
    wait_island,
)
from xtrace.isa.nvidia.schedule import Island

from .groups import group_gaps
from .mapfile import kernel_map, trace_map
from .model import KernelPlan, PlacedSite, Plan

__all__ = ["SpliceResult", "apply"]

_TEXT_ALIGNMENT = 128


@dataclass(frozen=True)
class SpliceResult:
    """The traced image and its trace map (schema ``xtrace/map/1``)."""

    data: bytes
    map: dict[str, Any]


@dataclass(frozen=True)
class SplicedKernel:
    plan: KernelPlan
    islands: dict[int, Island]  # by instruction index
    kinds: dict[int, str]
    text: bytes
    instr_off: Callable[[int], int]
    target_off: Callable[[int], int]
    patches: tuple[tuple[int, str], ...]  # (text offset of the u32, value name)


def _prologue(plan: KernelPlan, site: PlacedSite) -> Island:
    a, state = plan.analysis, plan.state
    assert state is not None
    assert site.scoreboard is not None
    layout = a.isa.layout
    taken = a.liveness.before[0] | state.bits
    uniform = [n for n in range(encode.URZ) if not taken & layout["UR"].bit(n)]
    uniform.sort(key=lambda n: bool(a.named & layout["UR"].bit(n)))  # registers the kernel never names first
    rest = tuple(uniform[:8])
    upred = next((n for n in range(7) if not taken & layout["UP"].bit(n)), None)
    if len(rest) < 8 or upred is None:
        raise Refused("XT3030", "no free uniform registers at the kernel's entry", where=a.where)
    block = a.kernel.required_threads
    regs = PrologueRegisters(site.scratch, rest, upred, site.scoreboard, block)
    presets = [(p.data + 1, p.id) for p in plan.records if p.preset and p.id is not None]
    return prologue(state, plan.slot, regs, presets)


def _island(plan: KernelPlan, p: PlacedSite) -> Island:
    state = plan.state
    assert state is not None
    if p.site.kind == "entry":
        return _prologue(plan, p)
    assert p.scoreboard is not None
    regs = ExitRegisters(p.quads, None if p.quads else p.data, p.predicate, p.scoreboard)
    pc = plan.analysis.instructions[p.site.index].pc
    return exit_island(state, regs, pc, wait_first=p.wait_first, wait_last=p.wait_last)


def _record_islands(plan: KernelPlan) -> dict[int, Island]:
    state = plan.state
    assert state is not None
    islands: dict[int, Island] = {}
    for group in plan.sequences:
        records = [_record(p) for p in group]
        for p, island in zip(group, record_group(state, plan.slot, records, group_gaps(plan, group)), strict=True):
            islands[p.site.index] = island
    return islands


def _record(p: PlacedSite) -> Record:
    return Record(
        site=p.id,
        data=p.data,
        stores=tuple(p.stores),
        predicate=p.predicate,
        scoreboard=p.scoreboard,
        split=p.split,
        preset=p.preset,
        group_size=p.group_size,
        elect=p.elect,
        wait_first=p.wait_first,
        wait_last=p.wait_last,
    )


def _merge(first: Island | None, second: Island) -> Island:
    if first is None:
        return second
    shift = len(first.words)
    moved = tuple(p._replace(word_index=p.word_index + shift) for p in second.patches)
    return Island(first.words + second.words, first.patches + moved)


def splice_kernel(plan: KernelPlan) -> SplicedKernel:
    """New text of one kernel, and the two address maps (facts/sass.md 4.3)."""
    a = plan.analysis
    size = a.isa.word_bytes
    islands: dict[int, Island] = {}
    kinds: dict[int, str] = {}
    records = _record_islands(plan)
    for sequence in plan.sequences:
        for p in sequence:
            if p.site.kind != "record":
                islands[p.site.index] = records[p.site.index]
                kinds[p.site.index] = p.site.kind
    for p in plan.placed:
        i = p.site.index
        islands[i] = _merge(islands.get(i), records[i] if p.site.kind == "record" else _island(plan, p))
        kinds.setdefault(i, "prologue" if p.site.kind == "entry" else p.site.kind)
    for i, mask in plan.waits.items():
        islands[i] = wait_island(mask)
        kinds[i] = "wait"
    starts = [i * size for i in sorted(islands)]
    sums = [0]
    for i in sorted(islands):
        sums.append(sums[-1] + len(islands[i].words) * size)

    def target_off(old: int) -> int:
        return old + sums[bisect.bisect_left(starts, old)]

    def instr_off(old: int) -> int:
        return old + sums[bisect.bisect_right(starts, old)]

    words: list[int] = []
    patches: list[tuple[int, str]] = []
    for ins in a.instructions:
        if (island := islands.get(ins.index)) is not None:
            patches += [((len(words) + p.word_index) * size + 4, p.value) for p in island.patches]
            words += island.words
        word = ins.word
        if a.isa.code_field_mask(word):
            target = None if ins.target is None else target_off(ins.target)
            word = a.isa.retarget(word, ins.pc, instr_off(ins.pc), target)
        words.append(word)
    while len(words) * size % _TEXT_ALIGNMENT:
        words.append(encode.nop().word)
    text = b"".join(w.to_bytes(size, "little") for w in words)
    return SplicedKernel(plan, islands, kinds, text, instr_off, target_off, tuple(patches))


def apply(plan: Plan) -> SpliceResult:
    """Splice every kernel of the plan that has a place for the prologue; the others stay untouched.

    Raises
    ------
    Refused
        XT3031 when no kernel at all can be traced; the first reason is in the message.
    Unsupported
        From :func:`xtrace.image.rewrite`: a table of the image cannot be brought along.
    """
    spliced = [splice_kernel(k) for k in plan.kernels if k.state is not None]
    if not spliced:
        reason = next((r.reason for k in plan.kernels for r in k.refused), "no kernel selected")
        raise Refused("XT3031", f"nothing to trace: {reason}", where=plan.image.name, hint="see `xtrace plan`")
    edits = [
        CodeEdit(s.plan.analysis.kernel.name, s.text, s.plan.registers, s.instr_off, s.target_off) for s in spliced
    ]
    data = rewrite(plan.image, edits)
    out = parse(data, plan.image.name)
    by_kernel = {s.plan.analysis.kernel.name: s for s in spliced}
    entries = []
    for k in plan.kernels:
        name = k.analysis.kernel.name
        entries.append(kernel_map(k, by_kernel.get(name), out.kernel(name).offset))
    return SpliceResult(data, trace_map(plan, data, entries))
