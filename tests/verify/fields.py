"""Fields of instruction words: first bit and width."""

from __future__ import annotations

__all__ = ["Field", "get", "put"]

Field = tuple[int, int]


def get(word: int, field: Field) -> int:
    return word >> field[0] & ((1 << field[1]) - 1)


def put(word: int, field: Field, value: int) -> int:
    mask = (1 << field[1]) - 1
    return word & ~(mask << field[0]) | (value & mask) << field[0]
