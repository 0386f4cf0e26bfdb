"""Which statements of a kernel are sites of a group of matched marks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from baselines.ptx_probe.module import Entry, Statement
from baselines.sites import Mark

__all__ = ["EXITS", "PtxSite", "exit_sites", "mark_sites"]

EXITS = ("ret", "exit")
_JUMPS = ("bra", "brx", "call", *EXITS)


@dataclass(frozen=True, slots=True)
class PtxSite:
    """A probe at ``place`` of statement number ``statement``."""

    statement: int
    place: Literal["before", "after", "exit"]
    phase: str
    exact: bool = True


def exit_sites(entry: Entry) -> list[PtxSite]:
    """One site before every return of the kernel."""
    return [
        PtxSite(i, "exit", "kernel")
        for i, s in enumerate(entry.statements)
        if any(s.matches(pattern) for pattern in EXITS)
    ]


def _targets(entry: Entry) -> set[int]:
    """Statement numbers of labels that some jump names. Labels for debug information are not among them."""
    jumped: set[str] = set()
    for s in entry.statements:
        if s.kind == "directive" or any(s.matches(j) for j in _JUMPS):
            jumped.update(entry.source[s.start : s.end].rstrip(";").replace(",", " ").split())
    return {
        i
        for i, s in enumerate(entry.statements)
        if s.kind == "label" and entry.source[s.start : s.end].rstrip(":").strip() in jumped
    }


def mark_sites(entry: Entry, marks: Sequence[Mark]) -> list[PtxSite]:
    """Sites of ``marks`` in text order.

    "After a" and "before b" are one site when nothing stands between them: it is kept as "before b", the phase that
    begins there, as in Xtrace's own plan.
    """
    targets = _targets(entry)
    found: list[PtxSite] = []
    last_of: dict[str, int] = {}  # phase -> instruction number of its latest instruction in this block
    pending: PtxSite | None = None  # an "after" site that the next instruction may absorb
    number = 0
    for i, statement in enumerate(entry.statements):
        if i in targets:
            last_of.clear()
            if pending is not None:
                found.append(pending)
                pending = None
        if statement.kind != "instruction":
            continue
        number += 1
        mark = _mark_of(statement, marks)
        before = mark is not None and "before" in mark.at and not _in_run(mark, last_of, number)
        if pending is not None and not before:
            found.append(pending)
        pending = None
        if mark is not None:
            name, exact = mark.phase.name, mark.phase.ptx.exact
            last_of[name] = number
            if before:
                found.append(PtxSite(i, "before", name, exact))
            if "after" in mark.at:
                pending = PtxSite(i, "after", "compute", exact)
        if any(statement.matches(j) for j in _JUMPS):
            last_of.clear()
    if pending is not None:
        found.append(pending)
    return found


def _in_run(mark: Mark, last_of: dict[str, int], number: int) -> bool:
    gap = mark.phase.run_gap
    return gap is not None and mark.phase.name in last_of and number - last_of[mark.phase.name] <= gap


def _mark_of(statement: Statement, marks: Sequence[Mark]) -> Mark | None:
    for mark in marks:
        if any(statement.matches(op) for op in mark.phase.ptx.ops):
            return mark
    return None
