"""A site: one place in a kernel where a probe goes."""

from __future__ import annotations

from dataclasses import dataclass

from xtrace.analysis.values import Written

__all__ = ["Site"]


@dataclass(frozen=True, slots=True)
class Site:
    """The probe stands directly before instruction ``index``; its record begins ``phase``.

    ``alternatives`` are other instructions of the same block, nearest first, that would mark the same
    boundary but for a few cycles: only plain arithmetic stands between. Of a site of an access: where its address can
    still be read.
    """

    index: int
    phase: str
    kind: str = "record"  # "entry", "record" or "exit"
    alternatives: tuple[int, ...] = ()
    access: int | None = None  # the instruction whose address is recorded
    refusal: str = ""  # why the selector itself has no probe for it
    value: tuple[Written, Written | None] | None = None  # general registers that are recorded: low word, high word

    @property
    def wide(self) -> bool:
        """Whether two words are recorded: an address, or registers that addresses are made of."""
        return self.access is not None or self.value is not None

    @property
    def anchor(self) -> int:
        """The instruction that the site is about: the access, wherever its address is read, else ``index``."""
        return self.index if self.access is None else self.access
