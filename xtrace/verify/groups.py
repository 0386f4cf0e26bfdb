"""Lane groups half of promise ``hazards``: where a second group may run, every island is complete in itself.

Probes keep their state in uniform registers, which all lanes of a warp share. Between two islands another lane group
may have passed islands of its own. So at such a place an island may start from nothing but state that every island
leaves consistent (counters that it moves, numbers that never change), and it must be done when it ends: no value for
later, and no store under way from an address that the next group moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xtrace.isa.model import Instruction
from xtrace.verify import prologue
from xtrace.verify.accesses import read_registers
from xtrace.verify.certificate import Promise
from xtrace.verify.lanes import parted
from xtrace.verify.liveness import live_before
from xtrace.verify.pair import Pair
from xtrace.verify.pending import cleared_by
from xtrace.verify.program import backward_may

__all__ = ["check"]

_HAZARDS = Promise.HAZARDS


@dataclass(frozen=True, slots=True)
class _Registers:
    moved: int  # written by an island other than the prologue
    counters: int  # of these, uniform ones that no island writes before it has read them
    waiting: list[int]  # behind each traced instruction: what a probe may still read
    live: list[int]  # the kernel's own, before each original instruction
    recorded: Mapping[int, int]  # the kernel's own that a traced instruction reads to record them


def check(pair: Pair, filler: Mapping[int, int]) -> None:
    """Check every island; ``filler`` is what probe stores read without a use for it."""
    islands = pair.align.islands()
    busy = {i for i, island in islands if any(_acts(pair.output.code[j]) for j in island)}
    apart = parted(pair.original, busy)
    places = [(i, island) for i, island in islands if i in busy and apart[i]]
    if not places:
        return
    registers = _registers(pair, filler)
    slot = (pair.claim or {}).get("slot") or {}
    for i, island in places:
        _island(pair, i, island, registers, filler)
        cursor = pair.isa.layout["UR"].mask & registers.moved  # headers stand at an address that nothing moves
        stores = [j for j in island if pair.output.code[j].base == "STG" and pair.output.code[j].reads & cursor]
        if stores and slot and slot.get("stride") == slot.get("ring") and "stripe" not in slot:
            why = "several lane groups may store here, but the slot has no room behind its ring"
            pair.fail(_HAZARDS, why, pair.output.code[stores[0]])


def _acts(ins: Instruction) -> bool:
    return not ins.never and bool(ins.writes or "memory" in ins.tags)


def _registers(pair: Pair, filler: Mapping[int, int]) -> _Registers:
    layout, code, recorded = pair.isa.layout, pair.output.code, read_registers(pair)
    moved = overwritten = 0
    beginning = prologue.parts(pair)
    for i, island in pair.align.islands():
        known = 0
        for j in () if i in beginning else island:
            known |= code[j].reads
            moved |= code[j].writes
            overwritten |= code[j].writes & ~known
            known |= code[j].writes
    keep, gen = [], []
    for j, ins in enumerate(code):
        keep.append(~ins.kills)
        gen.append(ins.reads & ~filler.get(j, 0) & ~recorded.get(j, 0) if pair.output.probe[j] else 0)
    waiting = backward_may(pair.output, keep, gen)
    return _Registers(moved, moved & layout["UR"].mask & ~overwritten, waiting, live_before(pair.original), recorded)


def _island(pair: Pair, i: int, island: range, registers: _Registers, filler: Mapping[int, int]) -> None:
    layout, code = pair.isa.layout, pair.output.code
    own = layout["R"].mask | layout["P"].mask | layout["UR"].mask | layout["UP"].mask
    stable = ~registers.moved | registers.counters | registers.live[i]
    written = under_way = 0
    for j in island:
        ins = code[j]
        under_way &= ~cleared_by(ins)
        early = ins.reads & own & ~written & ~filler.get(j, 0)
        old = early & ~stable & ~registers.recorded.get(j, 0)
        if ins.base == "STG" and (address := ins.reads & layout["UR"].mask & registers.moved):
            old |= early & address
            claims = {k for k in (ins.control.read_sb, ins.control.write_sb) if k is not None}
            under_way |= sum(1 << k for k in claims) or -1
        if old:
            names = ", ".join(layout.names(old)[:4])
            pair.fail(_HAZARDS, f"uses {names} of an earlier island where another lane group may have passed one", ins)
        written |= ins.writes
    last = code[island[-1]]
    if under_way:
        pair.fail(_HAZARDS, "store is not waited for before another lane group may move its address", last)
    if hit := written & own & registers.waiting[island[-1]] & ~registers.counters & registers.moved:
        names = ", ".join(layout.names(hit)[:4])
        pair.fail(_HAZARDS, f"leaves {names} to a later island where another lane group may pass one before", last)
