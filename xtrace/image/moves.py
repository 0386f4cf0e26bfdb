"""Where code went: the two maps of an edited kernel, with their bounds checked on every use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xtrace.errors import Unsupported

__all__ = ["Move"]

WORD_BYTES = 16


@dataclass(frozen=True, slots=True)
class Move:
    """Old text offset -> new text offset of one edited text section.

    ``instr`` is where an instruction itself stands now, ``target`` where something that goes to it arrives: the first
    word put in front of it. Both raise ``Unsupported`` XT1105 when a table names an offset that is not an instruction.
    """

    where: str  # file and kernel, for messages
    old_size: int
    new_size: int
    instr_off: Callable[[int], int]
    target_off: Callable[[int], int]
    copy: int | None = None  # where a second, untouched copy of the old code begins

    def instr(self, old: int, what: str) -> int:
        self._check(old, self.old_size - WORD_BYTES, what)
        return self._sane(self.instr_off(old), old, what)

    def target(self, old: int, what: str) -> int:
        """Also takes the end of the text, which maps to the new end, padding included."""
        self._check(old, self.old_size, what)
        return self.new_size if old == self.old_size else self._sane(self.target_off(old), old, what)

    def row(self, old: int, what: str) -> int:
        """The same for a row of a debug table: the first one begins with the first instruction where there is a copy.

        No table says anything about the copy in front of it.
        """
        return self.instr(old, what) if self.copy is not None and old == 0 else self.target(old, what)

    def copied(self, old: int, what: str) -> int:
        """Where the instruction stands in the copy."""
        assert self.copy is not None
        self._check(old, self.old_size - WORD_BYTES, what)
        return self._sane(self.copy + old, old, what)

    def _check(self, old: int, limit: int, what: str) -> None:
        if old % WORD_BYTES or not 0 <= old <= limit:
            raise Unsupported(
                "XT1105",
                f"{what} names offset {old:#x}, which is no instruction of the kernel",
                where=self.where,
                hint="the image is damaged or newer than this version of Xtrace",
            )

    def _sane(self, new: int, old: int, what: str) -> int:
        if new % WORD_BYTES or not old <= new < self.new_size:
            raise Unsupported("XT1105", f"{what} would move from {old:#x} to {new:#x}", where=self.where)
        return new
