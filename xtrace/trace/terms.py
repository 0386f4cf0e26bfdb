"""What the address of a derived access is made of, as a trace map says it."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Derived", "Term"]


class Term(NamedTuple):
    """``times`` a recorded value: its 64 bits ("pair"), or the low or high word, signed or not."""

    site: int
    part: str
    signed: bool
    times: int


class Derived(NamedTuple):
    """A derived access, and what its address is."""

    site: int
    leader: int
    offset: int
    terms: tuple[Term, ...]
