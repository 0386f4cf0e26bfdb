"""Fields of instruction words: first bit and width."""

from __future__ import annotations

Field = tuple[int, int]

# Operands and control of sm_90 words, as far as several kinds of faults are planted in them.
DESTINATION: Field = (16, 8)
A: Field = (24, 8)
IMMEDIATE: Field = (32, 32)
OFFSET: Field = (40, 24)
C: Field = (64, 8)
ELECTED: Field = (81, 3)
STALL: Field = (105, 5)
WAIT: Field = (116, 6)


def get(word: int, field: Field) -> int:
    return word >> field[0] & ((1 << field[1]) - 1)


def put(word: int, field: Field, value: int) -> int:
    mask = (1 << field[1]) - 1
    return word & ~(mask << field[0]) | (value & mask) << field[0]
