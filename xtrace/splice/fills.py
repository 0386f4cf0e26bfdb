"""Runs of registers for the quads of a packet, and the places that store them."""

from __future__ import annotations

from collections.abc import Iterator

from .build import Fill
from .line import Line
from .model import QUAD_BYTES, Form, Placement
from .places import parts, store_places

__all__ = ["many", "runs"]

_CANDIDATES = 12  # runs of registers tried per quad and place
_MOST_TRIES = 400  # combinations tried per chain: bounds the time per site


def many(line: Line, placement: Placement) -> list[Fill] | None:
    """Registers and store places of all quads: the first combination that fits, preferred ones first."""
    wanted = []
    for part in parts(line):
        places = store_places(line, part, placement)
        wanted.append((part[0].place, [k for k in places if line.stores_at(k)]))
    return _search(line, wanted, [], [_MOST_TRIES])


def _search(line: Line, wanted: list[tuple[int, list[int]]], fills: list[Fill], tries: list[int]) -> list[Fill] | None:
    if len(fills) == len(wanted):
        return fills
    first, places = wanted[len(fills)]
    used = sum(15 << fill.data for fill in fills)
    for at in places:
        for data in runs(line, at if line.parked else first, at, 4, used):
            tries[0] -= 1
            if tries[0] < 0:
                return None
            fill = Fill(data, 4, QUAD_BYTES * len(fills), at if line.parked else first, at)
            found = _search(line, wanted, [*fills, fill], tries)
            if found is not None:
                return found
    return None


def runs(line: Line, first: int, at: int, words: int, used: int) -> Iterator[int]:
    """Runs of registers that are free at place ``first`` and that no kernel instruction touches up to ``at``."""
    taken = line.touched(first, at) | line.owned(first, at) | line.sources | used
    unit = (1 << words) - 1
    usable = [d for d in line.free.at(line.places[first]).groups(words) if not unit << d & taken]
    if line.form < Form.PACKED:  # naive: those of the other packets, else the lowest; then rather no other packet's
        naive = line.form is Form.NAIVE
        yield from sorted(usable, key=lambda d: (bool(unit << d & line.claimed) != naive, d if naive else 0))
        return
    # Those that the kernel needs soonest come first: the others may serve where they must last longer. Never-named
    # registers that no other packet has are better still, because one of them may hold the tag for good.
    usable.sort(key=lambda d: (line.named >> d & unit != 0 or bool(unit << d & line.claimed), line.lasts(at, d, unit)))
    yield from usable[:_CANDIDATES]
