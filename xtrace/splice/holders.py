"""Where registers hold what an address is made of, on every way to where the address is recorded."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from xtrace.analysis import KernelAnalysis
from xtrace.analysis.affine import Atom
from xtrace.analysis.values import Written
from xtrace.analysis.words import Word
from xtrace.isa.model import Flow
from xtrace.probe import Site
from xtrace.probe.accesses import overwrites

from .chains import reached
from .model import Holder

__all__ = ["Range", "held"]


@dataclass(frozen=True, slots=True)
class Range:
    """Instructions, of one block, before which some registers hold an atom."""

    holder: Holder
    first: int
    last: int

    @property
    def words(self) -> int:
        return 1 if self.holder[1] is None else 2


def held(a: KernelAnalysis, atom: Atom, leader: Site, banned: Set[object]) -> Range | None:
    """Where, on every way to the leader, registers hold an atom."""
    assert leader.access is not None
    lows = _holders(a, atom.low)
    highs: Iterable[Written | None] = [None] if atom.high is None else _holders(a, atom.high)
    for high in highs:
        for low in lows:
            if banned & {low, high}:
                continue
            found = _range(a, (low, high), leader.access)
            if found is not None:
                return found
    return None


def _holders(a: KernelAnalysis, word: Word) -> list[Written]:
    """General registers that are known to hold a word, as soon as they are written."""
    general = a.isa.layout["R"].mask
    found = [w for w in a.affine.holders.get(word, ()) if w.kind == "def" and w.bit & general]
    return sorted(found)


def _range(a: KernelAnalysis, holder: Holder, leader: int) -> Range | None:
    written = [w for w in holder if w is not None]
    last = max(written, key=lambda w: w.at)
    block = a.cfg.blocks[a.cfg.block_of[last.at]]
    if block.number == a.cfg.block_of[leader] and last.at >= leader:
        return None
    first = last.at + 1
    end = min(block.last, leader) if block.number == a.cfg.block_of[leader] else block.last
    if first > end or any(a.affine.values.before(first, w.bit) != w for w in written):
        return None
    for i in range(first, end):  # the place behind instruction i
        if any(overwrites(a, a.instructions[i]) & w.bit for w in written):
            end = i
            break
    if not all(a.lanes.whole[i] for i in (first, end)) or not a.lanes.whole[leader]:
        return None
    if not all(_passes(a, w, block.number, first, leader) for w in written) or _ends_between(a, first, leader):
        return None
    return Range(holder, first, end)


def _passes(a: KernelAnalysis, written: Written, block: int, place: int, leader: int) -> bool:
    """Whether every way from where a register is written to the leader goes through the place."""
    home, goal = a.cfg.block_of[written.at], a.cfg.block_of[leader]
    if home == block:
        return True
    seen: set[int] = set()
    stack = list(a.cfg.blocks[home].successors)
    while stack:
        n = stack.pop()
        if n == block or n in seen:
            continue
        if n == goal:
            return False
        seen.add(n)
        stack += a.cfg.blocks[n].successors
    return True


def _ends_between(a: KernelAnalysis, place: int, leader: int) -> bool:
    """Whether some lanes may end behind the place, and others come to the leader."""
    home, goal = a.cfg.block_of[place], a.cfg.block_of[leader]
    behind = reached(a, home) | {home}
    for ins in a.instructions:
        if ins.flow is not Flow.EXIT or not ins.guard:
            continue
        n = a.cfg.block_of[ins.index]
        if n == home == goal and not place <= ins.index <= leader and goal not in reached(a, goal):
            continue
        if n in behind and goal in reached(a, n) | {n}:
            return True
    return False
