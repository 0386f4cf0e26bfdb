"""Emit the islands of a plan, move the code apart, and write image and trace map."""

from __future__ import annotations

import bisect
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from xtrace.analysis import KernelAnalysis
from xtrace.errors import Refused
from xtrace.image import CodeEdit, parse, rewrite
from xtrace.isa.nvidia import encode
from xtrace.isa.nvidia.decide import COPY, TRACED, way_over
from xtrace.isa.nvidia.emit import (
    SlotLayout,
    Step,
    packet,
    wait_island,
)
from xtrace.isa.nvidia.exits import ExitRegisters, exit_island
from xtrace.isa.nvidia.prologue import PrologueRegisters, head, prologue, rest
from xtrace.isa.nvidia.schedule import Island

from .mapfile import kernel_map, trace_map
from .model import FILLINGS, KernelPlan, PlacedSite, Plan, SunkPrologue
from .sample import decision_of
from .sink import uniform_scratch

__all__ = ["SpliceResult", "apply"]

_TEXT_ALIGNMENT = 128
_LINE = 8  # words of an instruction cache line
_MOST_FILLED = 3  # fillings from 2 on put fewer NOPs than this into an island
_NOP = wait_island(0).words[0]


@dataclass(frozen=True)
class SpliceResult:
    """The traced image and its trace map (schema ``xtrace/map/2`` to ``/6``)."""

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
    copy: int | None  # text offset, behind the entry's island, of the untouched copy for warps that are not sampled


def _presets(plan: KernelPlan) -> list[tuple[int, int]]:
    presets = [(k.tag_register, k.tag) for k in plan.packets if k.preset and k.tag_register is not None]
    return presets + [(register, 0) for k in plan.packets for register in k.carried]


def _prologue(plan: KernelPlan, site: PlacedSite) -> Island:
    """The part of the prologue at the entry: all of it, unless most of it is sunk."""
    a, state = plan.analysis, plan.state
    assert state is not None
    if plan.sunk is not None:
        return head(state, plan.sunk.registers.times, carried=plan.sunk.carried)
    assert site.scoreboard is not None
    uniform = uniform_scratch(a, 0, state)
    if uniform is None:
        raise Refused("XT3030", "no free uniform registers at the kernel's entry", where=a.where)
    block = a.kernel.required_threads
    timer, clock, *general = site.scratch
    regs = PrologueRegisters((timer, clock), tuple(general), *uniform, site.scoreboard, block)
    return prologue(state, _ring(plan), regs, _presets(plan), decision_of(plan.sample, site.predicate))


def _rest(plan: KernelPlan, sunk: SunkPrologue) -> Island:
    assert plan.state is not None
    return rest(plan.state, _ring(plan), sunk.registers, _presets(plan), carried=sunk.carried, settled=sunk.settled)


def _ring(plan: KernelPlan) -> SlotLayout | None:
    return plan.slot if plan.emits else None


def _island(plan: KernelPlan, p: PlacedSite) -> Island:
    state = plan.state
    assert state is not None
    if p.site.kind == "entry":
        return _prologue(plan, p)
    assert p.scoreboard is not None
    regs = ExitRegisters(p.quads, p.pair, p.predicate, p.scoreboard, p.header, p.guard)
    pc = plan.analysis.instructions[p.site.index].pc
    return exit_island(state, regs, pc, wait_first=p.wait_first, wait_last=p.wait_last, emits=plan.emits)


def _packet_islands(plan: KernelPlan) -> dict[int, Island]:
    state = plan.state
    assert state is not None
    assert plan.slot is not None
    islands: dict[int, Island] = {}
    for k in plan.packets:
        steps = [_step(p) for p in k.islands]
        for p, island in zip(k.islands, packet(state, plan.slot, steps, k.gaps), strict=True):
            islands[p.site.index] = island
        for p in k.apart:
            islands[p.site.index] = packet(state, plan.slot, [_step(p)], [])[0]
    return islands


def _step(p: PlacedSite) -> Step:
    return Step(
        capture=p.capture,
        address=p.address,
        elect=p.elect,
        cursor=p.cursor,
        uniform_moves=tuple(p.uniform_moves),
        moves=tuple(p.moves),
        transfers=tuple(p.transfers),
        stores=tuple(p.stores),
        predicate=p.predicate,
        scoreboard=p.scoreboard,
        wait_first=p.wait_first,
        wait_last=p.wait_last,
        shared_waits=p.shared_waits,
    )


def _merge(first: Island | None, second: Island) -> Island:
    if first is None:
        return second
    # A cycle more until the second uses the address that the prologue has computed.
    return _joined(Island((*first.words, _NOP), first.patches), second)


def _joined(first: Island, second: Island) -> Island:
    moved = tuple(p._replace(word_index=p.word_index + len(first.words)) for p in second.patches)
    return Island(first.words + second.words, first.patches + moved)


def _before_copy(entry: Island) -> Island:
    """The entry's island of a sampled kernel: with the way over the copy, and up to a whole line of the cache."""
    out = _joined(entry, way_over())
    return Island((*out.words, *(_NOP,) * (-len(out.words) % _LINE)), out.patches)


def _aligned(a: KernelAnalysis, islands: dict[int, Island], filling: int, sunk: int | None) -> dict[int, Island]:
    """Fill islands up with NOPs so that the kernel's loops begin where they began, relative to the lines of the
    instruction cache; measured (decision 0002), a loop that is shifted by part of a line costs up to half a percent.

    Inside loops what is best depends on how the warps of a CTA fall into step, which no static rule was found for:
    ``filling`` chooses among equivalent ones, to be compared by measurement. ``sunk`` is where most of the prologue is.
    """
    out: dict[int, Island] = {}
    heads = sorted(a.cfg.blocks[loop.head].first for loop in a.loops if loop.depth == 1)
    places = sorted(islands)
    total = 0
    for n, i in enumerate(places):
        words = len(islands[i].words)
        if i == sunk and heads:  # where the kernel waits, NOPs are free
            words += -sum(len(islands[k].words) for k in places if k < heads[0]) % _LINE
        if a.loop_of(i) is None:
            head = next((h for h in heads if h >= i), None)
            if head is not None and (n + 1 == len(places) or places[n + 1] >= head):
                words += -(total + words) % _LINE
        elif filling == 1:
            words += words % 2
        elif filling:
            words += random.Random(f"{filling}/{n}").randrange(_MOST_FILLED)
        out[i] = Island(islands[i].words + (_NOP,) * (words - len(islands[i].words)), islands[i].patches)
        total += words
    return out


def splice_kernel(plan: KernelPlan) -> SplicedKernel:
    """New text of one kernel, and the two address maps (facts/sass.md 4.3)."""
    a = plan.analysis
    size = a.isa.word_bytes
    islands: dict[int, Island] = {}
    kinds: dict[int, str] = {}
    records = _packet_islands(plan)
    for p in (p for k in plan.packets for p in k.helpers):
        islands[p.site.index] = records[p.site.index]
        kinds[p.site.index] = p.site.kind
    for p in plan.placed:
        i = p.site.index
        islands[i] = _merge(islands.get(i), records[i] if p.site.kind == "record" else _island(plan, p))
        kinds.setdefault(i, "prologue" if p.site.kind == "entry" else p.site.kind)
    if plan.sunk is not None:
        islands[plan.sunk.index] = _rest(plan, plan.sunk)
        kinds[plan.sunk.index] = "prologue rest"
    for i, mask in plan.waits.items():
        islands[i] = wait_island(mask)
        kinds[i] = "wait"
    if plan.sample is not None:
        islands[0] = _before_copy(islands[0])
    islands = _aligned(a, islands, plan.layout % FILLINGS, plan.sunk.index if plan.sunk else None)
    copy = None if plan.sample is None else len(islands[0].words) * size
    starts = [i * size for i in sorted(islands)]
    sums = [0]
    for i in sorted(islands):
        more = len(a.instructions) if i == 0 and copy is not None else 0
        sums.append(sums[-1] + (len(islands[i].words) + more) * size)

    def target_off(old: int) -> int:
        return old + sums[bisect.bisect_left(starts, old)]

    def instr_off(old: int) -> int:
        return old + sums[bisect.bisect_right(starts, old)]

    goals = {} if copy is None else {COPY: copy, TRACED: instr_off(0)}
    words: list[int] = []
    patches: list[tuple[int, str]] = []
    for ins in a.instructions:
        if (island := islands.get(ins.index)) is not None:
            at = {len(words) + p.word_index: p.value for p in island.patches}
            patches += [(j * size + 4, value) for j, value in at.items() if value not in goals]
            words += island.words
            for j, value in at.items():
                if (goal := goals.get(value)) is not None:
                    words[j] = a.isa.retarget(words[j], j * size, j * size, goal)
        if ins.index == 0 and copy is not None:
            words += [each.word for each in a.instructions]
        word = ins.word
        if a.isa.code_field_mask(word):
            target = None if ins.target is None else target_off(ins.target)
            word = a.isa.retarget(word, ins.pc, instr_off(ins.pc), target)
        words.append(word)
    while len(words) * size % _TEXT_ALIGNMENT:
        words.append(encode.nop().word)
    text = b"".join(w.to_bytes(size, "little") for w in words)
    return SplicedKernel(plan, islands, kinds, text, instr_off, target_off, tuple(patches), copy)


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
        CodeEdit(s.plan.analysis.kernel.name, s.text, s.plan.registers, s.instr_off, s.target_off, s.copy)
        for s in spliced
    ]
    data = rewrite(plan.image, edits)
    out = parse(data, plan.image.name)
    by_kernel = {s.plan.analysis.kernel.name: s for s in spliced}
    entries = []
    for k in plan.kernels:
        name = k.analysis.kernel.name
        entries.append(kernel_map(k, by_kernel.get(name), out.kernel(name).offset))
    return SpliceResult(data, trace_map(plan, data, entries))
