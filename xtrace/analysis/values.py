"""Which definition a register holds: reaching definitions with one name per value.

A value is named by the instruction that wrote it, by the block at whose head several definitions meet, or as what the
kernel was started with. Equal names mean: the same 32 bits, as long as the definition is not run again in between.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from typing import NamedTuple

from .cfg import ControlFlow

__all__ = ["Values", "Written"]


class Written(NamedTuple):
    """A register's value: written by instruction ``at``, or where definitions meet at the head of block ``at``."""

    kind: str  # "def", "meet" or "start"
    at: int
    bit: int  # of the register


class Values:
    """Answers for one kernel, found when asked. ``ignored``: register bits that instructions only seem to write."""

    def __init__(self, cfg: ControlFlow, ignored: dict[int, int] | None = None) -> None:
        self._cfg, self._ignored = cfg, ignored or {}
        self._entry: dict[int, list[Written | None]] = {}
        self._defs: dict[int, dict[int, list[int]]] = {}

    def _writers(self, bit: int) -> dict[int, list[int]]:
        """Instructions that write a register, by block, in order."""
        if bit not in self._defs:
            found: dict[int, list[int]] = defaultdict(list)
            for ins in self._cfg.instructions:
                if not ins.never and (ins.opaque or ins.writes & ~self._ignored.get(ins.index, 0) & bit):
                    found[self._cfg.block_of[ins.index]].append(ins.index)
            self._defs[bit] = found
        return self._defs[bit]

    def before(self, index: int, bit: int) -> Written:
        """The value of a register when control stands before an instruction."""
        block = self._cfg.block_of[index]
        inside = self._writers(bit).get(block, [])
        k = bisect.bisect_left(inside, index)
        return Written("def", inside[k - 1], bit) if k else self.entering(block, bit)

    def leaving(self, block: int, bit: int) -> Written:
        """Its value behind the last instruction of a block."""
        inside = self._writers(bit).get(block)
        return Written("def", inside[-1], bit) if inside else self.entering(block, bit)

    def entering(self, block: int, bit: int) -> Written:
        """Its value at a block's head."""
        if bit not in self._entry:
            self._entry[bit] = self._solve(bit)
        return self._entry[bit][block] or Written("start", 0, bit)

    def _solve(self, bit: int) -> list[Written | None]:
        """None: not known yet. What has met somewhere stays so; everything else follows from the predecessors."""
        blocks, writers = self._cfg.blocks, self._writers(bit)
        entry: list[Written | None] = [None] * len(blocks)
        entry[0] = Written("start", 0, bit) if not blocks[0].predecessors else Written("meet", 0, bit)
        changed = True
        while changed:
            changed = False
            for block in blocks:
                if block.number == 0 or (old := entry[block.number]) == (meet := Written("meet", block.number, bit)):
                    continue
                out = {Written("def", writers[p][-1], bit) if p in writers else entry[p] for p in block.predecessors}
                known = {value for value in out if value is not None}
                new = None if not known else meet if len(known) > 1 else next(iter(known))
                if new != old:
                    entry[block.number], changed = new, True
        return entry
