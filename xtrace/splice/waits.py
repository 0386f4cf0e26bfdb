"""Scoreboards of the stores, and where they are waited for.

A store reads its registers some time after it issues. Whoever overwrites them, or moves the address, must have
waited; the wait is left to islands far behind wherever nothing on the way could notice.
"""

from __future__ import annotations

from typing import NamedTuple

from xtrace.analysis import KernelAnalysis

from .chains import cycles_of
from .deferral import drains, next_islands, wait_place
from .model import Form, KernelPlan, PlacedSite
from .resources import FreeFinder

__all__ = ["place_waits"]

_WORTH_A_WAIT = 8  # cycles that a wait must be put off to be worth an instruction of its own
_EXPOSED = 16  # cycles behind a store within which a wait for it stalls
_LONG = frozenset({"barrier", "copy_wait", "mbarrier_wait"})


class _Choice(NamedTuple):
    scoreboard: int
    targets: frozenset[int]


def place_waits(plan: KernelPlan, free: FreeFinder) -> None:
    """Fill in scoreboards and waits of every island that stores, and ``plan.waits``.

    Every store is waited for at the latest in the first island of the next packet or at the next exit (the anchors):
    data registers are written, and the address is moved, only behind one.
    """
    islands = {p.site.index: p for packet in plan.packets for p in packet.everywhere}
    exits = {p.site.index: p for p in plan.placed if p.site.kind == "exit"}
    anchors = frozenset(p.site.index for packet in plan.packets for p in packet.anchors) | frozenset(exits)
    everywhere = frozenset(islands) | frozenset(exits)
    waits: dict[int, int] = {}
    for packet in plan.packets:
        for p in packet.storing:
            if p.stores and plan.form is Form.NAIVE:
                p.scoreboard, p.wait_last = free.at(p.site.index).scoreboards[0], True
            elif p.stores:
                # The many stores of addresses are worth a wait behind the loop, so that none is needed inside.
                outside = (
                    _behind_loop(plan.analysis, p.site.index) if packet.words > len(packet.records) else frozenset()
                )
                mask = _mask(p)
                stops = anchors | {i for i, other in islands.items() if mask & other.writes}
                _place(plan.analysis, p, mask, free, (anchors, anchors | outside), everywhere, stops, waits)
    for p in exits.values():
        if p.wait_last:
            _guarded_exit(plan.analysis, p, anchors, waits)
    for index, mask in waits.items():
        island = islands.get(index) or exits.get(index)
        if island is not None:
            island.wait_first |= mask
        else:
            plan.waits[index] = plan.waits.get(index, 0) | mask


def _behind_loop(a: KernelAnalysis, index: int) -> frozenset[int]:
    """First instructions of the blocks that the innermost loop around ``index`` is left for."""
    loop = a.loop_of(index)
    inside = frozenset() if loop is None else loop.blocks
    left = {s for n in inside for s in a.cfg.blocks[n].successors} - inside
    return frozenset(a.cfg.blocks[n].first for n in left)


def _mask(p: PlacedSite) -> int:
    mask = 0
    for store in p.stores:
        mask |= ((1 << store.words) - 1) << store.data
    return mask


def _place(
    a: KernelAnalysis,
    p: PlacedSite,
    mask: int,
    free: FreeFinder,
    preferred: tuple[frozenset[int], ...],
    everywhere: frozenset[int],
    stops: frozenset[int],
    waits: dict[int, int],
) -> None:
    """Wait in islands that are preferred if possible, else in the next ones, else in an island for the purpose.

    ``mask`` are the registers that the store reads. ``stops`` are islands at which it must have read them; an island
    for the purpose may stand behind other ones, and takes the place of a next island that is so near that the warp
    would stall there.
    """
    at = p.site.index
    scoreboards = free.at(at).scoreboards
    choice: _Choice | None = None
    if not a.divergent[at]:  # else another lane group may come and move the address at once
        for places in dict.fromkeys(preferred):
            choice = choice or _deferred(a, at, mask, scoreboards, places)
        if choice is None:
            choice = _deferred(a, at, mask, scoreboards, everywhere)
            if choice is None or any(_exposed(a, at, target) for target in choice.targets):
                choice = _own_wait(a, at, mask, scoreboards, stops, choice is not None) or choice
    if choice is None:
        p.scoreboard, p.wait_last = scoreboards[0], True
        return
    p.scoreboard = choice.scoreboard
    for target in choice.targets:
        waits[target] = waits.get(target, 0) | 1 << choice.scoreboard


def _deferred(a: KernelAnalysis, at: int, mask: int, scoreboards: list[int], islands: frozenset[int]) -> _Choice | None:
    for scoreboard in scoreboards:
        targets = next_islands(a, at, scoreboard, mask, islands)
        if targets is not None:
            return _Choice(scoreboard, targets)
    return None


def _exposed(a: KernelAnalysis, start: int, end: int) -> bool:
    """Whether the warp would stall at ``end`` for a store at ``start``.

    Not if the kernel itself stands at a wait in between. One for the tensor cores that leaves some of their work under
    way is none: the store reads late as long as they read registers (FlashAttention-3 on an H200: 0.6 % for waiting
    right behind such a wait, nothing for waiting 10 cycles later).
    """
    if start >= end or a.cfg.block_of[start] != a.cfg.block_of[end] or cycles_of(a, range(start, end)) >= _EXPOSED:
        return False
    tags = [a.instructions[i].tags for i in range(start, end)]
    return not any(t & _LONG or drains(t) for t in tags)


def _own_wait(
    a: KernelAnalysis, at: int, mask: int, scoreboards: list[int], islands: frozenset[int], instead: bool
) -> _Choice | None:
    """An island with nothing but the wait, as far on as possible; ``instead`` of a nearer one."""
    best: tuple[int, int, int] | None = None
    for scoreboard in scoreboards:
        place = wait_place(a, at, scoreboard, mask, islands)
        if place is not None and (best is None or place[1] > best[0]):
            best = (place[1], place[0], scoreboard)
    if best is None or best[0] < (2 * _EXPOSED if instead else _WORTH_A_WAIT):
        return None
    return _Choice(best[2], frozenset({best[1]}))


def _guarded_exit(a: KernelAnalysis, p: PlacedSite, anchors: frozenset[int], waits: dict[int, int]) -> None:
    """An exit that lanes may pass: its stores may be left to later islands too."""
    if len(p.quads) != 2 or p.scoreboard is None:
        return
    targets = next_islands(a, p.site.index, p.scoreboard, p.writes, anchors)
    if targets is not None:
        p.wait_last = False
        for target in targets:
            waits[target] = waits.get(target, 0) | 1 << p.scoreboard
