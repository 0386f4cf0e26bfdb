"""A site: one place in a kernel where a probe goes."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Site"]


@dataclass(frozen=True, slots=True)
class Site:
    """The probe stands directly before instruction ``index``; its record begins ``phase``.

    ``alternatives`` are other instructions of the same block, nearest first, that would mark the same
    boundary but for a few cycles: only plain arithmetic stands between.
    """

    index: int
    phase: str
    kind: str = "record"  # "entry", "record" or "exit"
    alternatives: tuple[int, ...] = ()
