"""Trace set ``pp``: the boundaries of a kernel's pipeline phases.

A phase begins where a warp starts to wait (barrier, matrix group, copy, mbarrier), where it
starts to issue a matrix group or a run of asynchronous copies, and where it goes on after a wait.
A copy wait includes the barrier right behind it; an issue includes the few instructions that prepare it.
"""

from __future__ import annotations

from dataclasses import replace

from xtrace.analysis import KernelAnalysis
from xtrace.isa.model import Flow, Instruction

from .site import Site

__all__ = ["COMPUTE", "pipeline_sites"]

COMPUTE = "compute"
_LOADS = frozenset({"memory", "global_load", "shared_load", "local_load", "mbarrier_arrive"})
_MAX_MOVE = 12  # instructions that a boundary may be moved when registers are short
_MIN_COMPUTE = 4  # instructions
_SAME_WAIT = 6  # instructions from a copy wait to the barrier that completes it
_SET_UP = 32  # instructions that prepare an issue
_COPY_RUN = 24  # instructions between two copies that still count as one run
_WAITS = {"matrix_wait": "matrix wait", "copy_wait": "copy wait", "barrier": "barrier wait"}


def _retry_blocks(a: KernelAnalysis) -> set[int]:
    """Blocks that are entered only because an earlier try of an mbarrier wait failed."""
    retry: set[int] = set()
    for block in a.cfg.blocks:
        last = a.instructions[block.last]
        tried = 0
        for i in block.indices:
            if "mbarrier_wait" in a.instructions[i].tags:
                tried = a.instructions[i].writes
            elif a.instructions[i].writes & tried and i != block.last:
                tried = 0
        if last.flow is Flow.BRANCH and last.guard and last.reads & tried:
            retry.add(_failure_successor(a, block.last))
    return retry


def _success_index(a: KernelAnalysis, branch: int) -> int:
    """Where control goes when the wait before ``branch`` has succeeded."""
    ins = a.instructions[branch]
    taken_on_failure = ins.guard.startswith("@!")
    if taken_on_failure:
        return branch + 1
    return a.cfg.successors[branch][-1]


def _failure_successor(a: KernelAnalysis, branch: int) -> int:
    ins = a.instructions[branch]
    index = a.cfg.successors[branch][-1] if ins.guard.startswith("@!") else branch + 1
    return a.cfg.block_of[index]


def _mbarrier_sites(a: KernelAnalysis, i: int, retry: set[int]) -> list[Site]:
    block = a.cfg.blocks[a.cfg.block_of[i]]
    if block.number in retry:
        return []
    sites = [Site(i, "mbarrier wait")]
    last = a.instructions[block.last]
    decides = last.flow is Flow.BRANCH and bool(last.guard) and bool(last.reads & a.instructions[i].writes)
    if decides and a.cfg.block_of[_success_index(a, block.last)] != block.number:
        sites.append(Site(_success_index(a, block.last), COMPUTE))
    return sites


def pipeline_sites(a: KernelAnalysis) -> list[Site]:
    """Phase boundaries in address order, at most one site per instruction."""
    retry = _retry_blocks(a)
    found: dict[int, Site] = {}

    def add(site: Site) -> None:
        if site.index >= len(a.instructions) or not a.reachable(site.index):
            return
        if site.phase != COMPUTE or site.index not in found:
            found[site.index] = site

    last_copy: tuple[int, int] | None = None
    last_mma: int | None = None
    for ins in a.instructions:
        i, block = ins.index, a.cfg.block_of[ins.index]
        if ins.never:
            continue
        for tag, phase in _WAITS.items():
            if tag in ins.tags:
                add(Site(i, phase))
                add(Site(i + 1, COMPUTE))
        if "matrix_fence" in ins.tags:
            add(Site(i, "matrix issue"))
        if "matrix" in ins.tags and "matrix_async" not in ins.tags:
            if last_mma != block:
                add(Site(i, "matrix issue"))
            last_mma = block
        if "copy_async" in ins.tags:
            if last_copy is None or last_copy[0] != block or i - last_copy[1] > _COPY_RUN:
                add(Site(i, "copy issue"))
            last_copy = (block, i)
        if "mbarrier_wait" in ins.tags:
            for site in _mbarrier_sites(a, i, retry):
                add(site)
    return _tidy(a, found)


def _tidy(a: KernelAnalysis, found: dict[int, Site]) -> list[Site]:
    """Leave out boundaries that cost a record and say nothing.

    * A barrier a few instructions behind a copy wait belongs to it: wait for the own copies, then for everybody's.
    * The few instructions between the end of a wait and the issue of a matrix group or copy prepare that issue.
    * A ``compute`` phase that ends within a few instructions is none.
    """
    for i in sorted(found):
        site = found.get(i)
        if site is None:
            continue
        if site.phase == "copy wait" and (k := _next(a, found, i, _SAME_WAIT)) is not None:
            after = _next(a, found, k, _SAME_WAIT) if found[k].phase == COMPUTE else None
            if after is not None and found[after].phase == "barrier wait":
                del found[k], found[after]
            elif found[k].phase == "barrier wait":
                del found[k]
        if site.phase == COMPUTE and (k := _next(a, found, i, _SET_UP)) is not None:
            if found[k].phase.endswith(" issue"):
                found[i] = replace(site, phase=found.pop(k).phase)
            elif k - i <= _MIN_COMPUTE:
                del found[i]
    return [replace(found[i], alternatives=_alternatives(a, found[i], found)) for i in sorted(found)]


def _next(a: KernelAnalysis, found: dict[int, Site], i: int, reach: int) -> int | None:
    """The next site of the same block, at most ``reach`` instructions on."""
    last = a.cfg.blocks[a.cfg.block_of[i]].last
    return next((k for k in range(i + 1, min(i + reach, last) + 1) if k in found), None)


def _alternatives(a: KernelAnalysis, site: Site, found: dict[int, Site]) -> tuple[int, ...]:
    """Later places for the end of a wait, earlier ones for the start of something, in the same block."""
    block = a.cfg.blocks[a.cfg.block_of[site.index]]
    places: list[int] = []
    if site.index and _ends_wait(a, site.index):
        for k in range(site.index + 1, min(block.last, site.index + _MAX_MOVE) + 1):
            if k in found or not _is_plain(a.instructions[k - 1]):
                break
            places.append(k)
    else:
        for k in range(site.index - 1, max(block.first, site.index - _MAX_MOVE) - 1, -1):
            if k in found or not _is_plain(a.instructions[k]):
                break
            places.append(k)
    return tuple(places)


def _ends_wait(a: KernelAnalysis, index: int) -> bool:
    """Whether the site marks that a wait is over: then it may move later, but not earlier."""
    before = a.instructions[index - 1]
    return bool(before.tags & {*_WAITS, "mbarrier_wait"}) or before.flow is Flow.BRANCH


def _is_plain(ins: Instruction) -> bool:
    """Whether nothing is waited for, and no phase begins."""
    return ins.tags <= _LOADS and ins.flow is Flow.FALL and not ins.opaque
