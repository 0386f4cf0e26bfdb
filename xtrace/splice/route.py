"""What clocks may pass on the way from their sites to the registers that are stored, and a way that they take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from xtrace.isa.nvidia.emit import Transfer

__all__ = ["Carried", "Route", "Skipped", "Word"]


class Word(NamedTuple):
    """A word of a packet: one clock, or the low halves of two."""

    target: int  # register that is stored
    at: int  # place of the store
    low: int  # event
    high: int | None = None


class Skipped(NamedTuple):
    """An optional event, whose clock is parked where it happens."""

    event: int
    free: tuple[int, ...]  # registers that may take its clock there
    fetched: int  # time from which on it may be fetched; the islands are scheduled as if it had not happened


@dataclass(frozen=True)
class Route:
    """What there is at the places of a packet, and between each and the next."""

    time: tuple[int, ...]  # least cycles from the first place
    free: tuple[tuple[int, ...], ...]  # general registers that may be written there, preferred ones first
    gone: tuple[int, ...]  # registers (bit set) that do not last to the next place
    captured: Mapping[int, int]  # place: event
    skipped: Mapping[int, Sequence[Skipped]]  # place in front: events
    words: tuple[Word, ...]
    kept: frozenset[int]  # registers for something else
    stored: tuple[frozenset[int], ...]  # registers that stores at earlier places may still read


@dataclass(frozen=True)
class Carried:
    """A way: the register that takes the clock of each event, and what is done with it at which place, in order."""

    cost: int  # instructions, and cycles of stall
    captures: Mapping[int, int]
    transfers: tuple[tuple[int, Transfer], ...]
