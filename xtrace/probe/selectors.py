"""Selectors: how a user names sites.

A specification is a comma-separated list of::

    entry            when each warp starts             (recorded in the warp's header)
    exit             when each warp ends               (recorded in the warp's header)
    op:GLOB          before each instruction whose opcode with modifiers matches, e.g. op:HGMMA*
    after:op:GLOB    behind each such instruction
    pc:0x1230        before the instruction at this byte offset
    block            at the head of every basic block
    loop             at the head of every loop
    sche             trace set: entry and exit
    pp               trace set: pipeline phases (waits, barriers, matrix groups, copies)
    mem              trace set: the address of each access to global memory

Entry and exit are always recorded, because they anchor each warp's clock to global time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase

from xtrace.analysis import KernelAnalysis
from xtrace.errors import BadInput
from xtrace.isa.model import Flow

from .accesses import access_sites
from .pipeline import COMPUTE, pipeline_sites
from .site import Site

__all__ = ["SELECTORS", "select", "validate"]

SELECTORS = ("entry", "exit", "op:GLOB", "after:op:GLOB", "pc:0xNNN", "block", "loop", "sche", "pp", "mem")
_MAX_ITEMS = 256


def _op(a: KernelAnalysis, glob: str, after: int) -> list[Site]:
    sites = []
    for ins in a.instructions:
        if fnmatchcase(ins.opcode, glob) and not ins.never and a.reachable(ins.index):
            index = ins.index + after
            if index < len(a.instructions) and a.reachable(index):
                sites.append(Site(index, f"after {ins.opcode}" if after else ins.opcode))
    return sites


def _pc(a: KernelAnalysis, text: str) -> list[Site]:
    pc = int(text, 16)
    size = a.instructions[0].size if a.instructions else 1
    if pc % size or pc // size >= len(a.instructions):
        last = a.instructions[-1].pc if a.instructions else 0
        raise BadInput(
            "XT3010",
            f"no instruction at pc 0x{pc:x}",
            where=a.where,
            hint=f"instructions stand at multiples of {size} from 0x0 to 0x{last:x}",
        )
    return [Site(pc // size, f"pc 0x{pc:x}")]


def _block(a: KernelAnalysis, _: str) -> list[Site]:
    return [Site(b.first, f"block {b.number}") for b in a.cfg.blocks if b.number in a.cfg.reachable]


def _loop(a: KernelAnalysis, _: str) -> list[Site]:
    return [Site(a.cfg.blocks[x.head].first, f"loop {x.id}") for x in a.loops]


def _exits(a: KernelAnalysis) -> list[Site]:
    return [
        Site(ins.index, "exit", "exit")
        for ins in a.instructions
        if ins.flow is Flow.EXIT and not ins.never and a.reachable(ins.index)
    ]


_PATTERNS: tuple[tuple[re.Pattern[str], Callable[[KernelAnalysis, str], list[Site]]], ...] = (
    (re.compile(r"(?:entry|exit|sche)()$"), lambda a, _: []),
    (re.compile(r"pp()$"), lambda a, _: pipeline_sites(a)),
    (re.compile(r"mem()$"), lambda a, _: access_sites(a)),
    (re.compile(r"block()$"), _block),
    (re.compile(r"loop()$"), _loop),
    (re.compile(r"op:(\S+)$"), lambda a, glob: _op(a, glob, 0)),
    (re.compile(r"after:op:(\S+)$"), lambda a, glob: _op(a, glob, 1)),
    (re.compile(r"pc:(0[xX][0-9a-fA-F]{1,8})$"), _pc),
)


def _parse(spec: str) -> list[tuple[Callable[[KernelAnalysis, str], list[Site]], str]]:
    items = [x.strip() for x in spec.split(",") if x.strip()]
    if not items or len(items) > _MAX_ITEMS:
        raise BadInput("XT3011", f"empty or oversized probe selection {spec[:80]!r}", hint=_allowed())
    parsed = []
    for item in items:
        for pattern, action in _PATTERNS:
            if m := pattern.match(item):
                parsed.append((action, m[1]))
                break
        else:
            raise BadInput("XT3012", f"unknown selector {item[:80]!r}", where=f"--probes {spec[:80]}", hint=_allowed())
    return parsed


def _allowed() -> str:
    return "selectors: " + ", ".join(SELECTORS)


def validate(spec: str) -> None:
    """Check a specification without a kernel.

    Raises
    ------
    BadInput
        XT3011/XT3012 with the list of selectors.
    """
    _parse(spec)


def select(a: KernelAnalysis, spec: str) -> list[Site]:
    """All sites of a specification, in address order: the entry, one per chosen instruction, and every exit.

    An access whose address is recorded is a site of its own, whatever other sites stand there.
    """
    found: dict[int, Site] = {}
    accesses: dict[int, Site] = {}
    for action, argument in _parse(spec):
        for site in action(a, argument):
            if site.access is not None or site.refusal:
                accesses[site.index] = site
                continue
            old = found.get(site.index)
            if old is None or old.phase == COMPUTE or old.phase.startswith(("block ", "loop ", "pc ")):
                found[site.index] = site
    exits = _exits(a)
    for site in exits:  # the exit itself is recorded in the header
        found.pop(site.index, None)
    records = sorted([*found.values(), *accesses.values()], key=lambda site: site.index)
    return [Site(0, "entry", "entry"), *records, *exits]
