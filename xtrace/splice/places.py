"""Where the quads of a packet can be stored, and which of those places is expected to cost the kernel least."""

from __future__ import annotations

import itertools

from .chains import Event
from .line import COMMIT_AFTER, End, Line
from .model import Form, Placement, quads

__all__ = ["ends", "parts", "store_places"]

_MOST_ENDS = 8  # places behind a chain that are compared
_NOWHERE = 1 << 20  # cost of a quad that cannot be stored


def parts(line: Line) -> list[list[Event]]:
    """Events by quad."""
    events, words = line.chain.events, line.words
    return [[events[k] for k in words.events(quad)] for quad in range(quads(words.count))]


def store_places(line: Line, part: list[Event], placement: Placement) -> list[int]:
    """Places of the line that may store a quad of these events, best first."""
    ready, captured = _ready(part)
    every = list(range(ready, len(line.places)))
    if line.form is not Form.SCHEDULED:
        return every
    if placement is Placement.BY_COST:
        return sorted(every, key=lambda k: line.store_cost(k, ready if captured else None))
    if captured:  # a store at once has to wait for the clock, which does not matter where the kernel is about to wait
        every = [k for k in every if k != ready] + [k for k in every if k == ready]
        if ready in line.waits:
            every.insert(0, ready)
    served = [k for k in every if line.served_from is not None and k >= line.served_from]
    waits = [k for k in every if k in line.waits]
    return list(dict.fromkeys([*(k for k in served if k in line.waits), *served, *waits, *every]))


def ends(line: Line, placement: Placement) -> list[End]:
    """Places behind the chain to try, best first; the near one is always among them."""
    near = line.end
    if not line.helpers:
        return [near]
    served = any(line.lasting(k, k) for k in range(len(line.places)))
    if (served if placement is Placement.NEAR else line.served_from is not None) and placement is not Placement.BY_COST:
        return [near]
    late = list(itertools.islice(line.late_ends(), _MOST_ENDS * (4 if line.words.addresses else 1)))
    if placement is not Placement.BY_COST:
        return [*late, near]
    costs = []
    for end in (near, *late):
        line.end_at(end)
        costs.append(sum(_least_cost(line, part) for part in parts(line)))
    return [end for _, end in sorted(zip(costs, (near, *late), strict=True), key=lambda pair: pair[0])]


def _least_cost(line: Line, part: list[Event]) -> int:
    ready, captured = _ready(part)
    places = range(ready, len(line.places))
    return min((line.store_cost(k, ready if captured else None) for k in places), default=_NOWHERE)


def _ready(part: list[Event]) -> tuple[int, bool]:
    """The first place that may store these events, and whether the last one is captured there."""
    after = part[-1].after
    if after is None:
        return part[-1].place, True
    return part[-1].place + (1 if after >= COMMIT_AFTER else 2), False
