"""Fewest cycles between a fixed-latency result and its use, as tables.

Hopper (sm_90). Values are those of the public per-architecture latency tables; where pairs measured on an H200 need
less, the table value is kept and the measurement noted. Scoreboarded results have no distance: the wait mask covers
them. Units: SM cycles from issue to issue in the same warp.
"""

from __future__ import annotations

from xtrace.isa.model import Instruction, Latency
from xtrace.isa.nvidia.opcodes import OPCODES, Pipe

__all__ = ["GENERAL", "GUARD", "PREDICATE_OPERAND", "UNIFORM", "UNIFORM_PREDICATE", "required_distance"]

# General registers: producer pipe -> consumer pipe.
# Measured smaller on H200: CS2R to LEA 4, CS2R or LEA to store data 4.
GENERAL: dict[Pipe, dict[Pipe, int]] = {
    Pipe.FXU: {
        Pipe.FXU: 6,
        Pipe.FMA: 6,
        Pipe.MIO_FAST: 6,
        Pipe.MIO_SLOW: 8,
        Pipe.BRANCH: 6,
        Pipe.R2UR: 6,
        Pipe.MMA: 7,
        Pipe.GMMA: 8,
    },
    Pipe.FMA: {
        Pipe.FXU: 5,
        Pipe.FMA: 4,
        Pipe.MIO_FAST: 6,
        Pipe.MIO_SLOW: 8,
        Pipe.BRANCH: 6,
        Pipe.R2UR: 6,
        Pipe.MMA: 7,
        Pipe.GMMA: 8,
    },
    Pipe.FP64: {},  # all 12, see _GENERAL_DEFAULT
    Pipe.MMA: {},
}
_GENERAL_DEFAULT = {Pipe.FXU: 8, Pipe.FMA: 8, Pipe.FP64: 12, Pipe.MMA: 27}

# Uniform registers. Measured smaller on H200: UIMAD.WIDE to store address 8, R2UR to UIMAD.WIDE 8.
_VECTOR = (Pipe.FXU, Pipe.FMA, Pipe.FP64, Pipe.MIO_FAST, Pipe.MIO_SLOW, Pipe.BRANCH, Pipe.MMA, Pipe.GMMA)
UNIFORM: dict[Pipe, dict[Pipe, int]] = {
    Pipe.UDP: {Pipe.UDP: 4, Pipe.UMOV: 7, Pipe.TMA: 9, Pipe.ULOAD: 12, **dict.fromkeys(_VECTOR, 12)},
    Pipe.UMOV: {Pipe.UDP: 2, Pipe.UMOV: 2, Pipe.TMA: 2, **dict.fromkeys(_VECTOR, 5)},
    Pipe.ULOAD: {Pipe.UDP: 2, Pipe.UMOV: 2, Pipe.TMA: 2, **dict.fromkeys(_VECTOR, 5)},
    Pipe.FXU: {Pipe.UDP: 2, Pipe.UMOV: 2, Pipe.TMA: 2, **dict.fromkeys(_VECTOR, 5)},  # ELECT's mask
    Pipe.R2UR: {Pipe.UDP: 13, Pipe.TMA: 13, **dict.fromkeys(_VECTOR, 15)},
}
_UNIFORM_DEFAULT = {Pipe.UDP: 12, Pipe.UMOV: 5, Pipe.ULOAD: 5, Pipe.FXU: 5, Pipe.R2UR: 15}

# Vector predicates: as a data operand of an arithmetic instruction, and everywhere else. ELECT to guard: no slack.
PREDICATE_OPERAND = 5
GUARD = 13
_ARITHMETIC = (Pipe.FXU, Pipe.FMA, Pipe.FP64)

# Uniform predicates, by what reads them.
UNIFORM_PREDICATE = {
    "uniform operand": 4,
    "uniform guard": 11,
    "branch": 9,
    "vector operand": 6,
    "matrix": 11,
    "other": 13,
}

_UNIFORM_PIPES = (Pipe.UDP, Pipe.UMOV, Pipe.ULOAD)


def _pipe(ins: Instruction) -> Pipe | None:
    row = OPCODES.get(ins.base)
    return row.pipe if row else None


def _guard_register(ins: Instruction) -> tuple[str, int] | None:
    name = ins.guard.lstrip("@!")
    file = name.rstrip("0123456T")
    return (file, int(name[len(file) :])) if name and not name.endswith("T") else None


def required_distance(producer: Instruction, consumer: Instruction) -> int:
    """Fewest cycles from issue of ``producer`` to issue of ``consumer`` so that every result is seen (sm_90).

    0 if ``consumer`` reads no result of ``producer``, or if ``producer`` signals through a scoreboard or the matrix
    unit's own wait. Unknown instructions on either side get the largest value of the table that applies.
    """
    shared = producer.writes & consumer.reads
    if not shared or producer.never or consumer.never or producer.latency is not Latency.FIXED:
        return 0
    source, user = _pipe(producer), _pipe(consumer)
    distance = 0
    if shared & _R:
        default = _GENERAL_DEFAULT.get(source, 27) if source else 27
        row = GENERAL.get(source, {}) if source else {}
        distance = max(distance, row.get(user, default) if user else default)
    if shared & _UR:
        default = _UNIFORM_DEFAULT.get(source, 15) if source else 15
        uniform = UNIFORM.get(source, {}) if source else {}
        distance = max(distance, uniform.get(user, default) if user else default)
    guard = _guard_register(consumer)
    if shared & _P:
        guarded = guard is not None and guard[0] == "P" and shared >> (_P_FIRST + guard[1]) & 1
        operand = user in _ARITHMETIC and not guarded and not consumer.opaque and consumer.base != "VOTE"
        distance = max(distance, PREDICATE_OPERAND if operand and source is not Pipe.R2UR else GUARD)
    if shared & _UP:
        distance = max(distance, _uniform_predicate(consumer, user, guard, shared))
    return distance


def _uniform_predicate(consumer: Instruction, user: Pipe | None, guard: tuple[str, int] | None, shared: int) -> int:
    table = UNIFORM_PREDICATE
    if guard is not None and guard[0] == "UP" and shared >> (_UP_FIRST + guard[1]) & 1:
        return table["uniform guard"] if user in _UNIFORM_PIPES else table["other"]
    if user in _UNIFORM_PIPES:
        return table["uniform operand"]
    if user is Pipe.BRANCH:
        return table["branch"]
    if user in (Pipe.GMMA, Pipe.MMA):
        return table["matrix"]
    return table["vector operand"] if user in _ARITHMETIC else table["other"]


# Bit positions of the register files, fixed by docs/decisions/0001.
_P_FIRST, _UP_FIRST = 256, 360
_R = (1 << 255) - 1
_P = 0x7F << _P_FIRST
_UR = ((1 << 80) - 1) << 272
_UP = 0x7F << _UP_FIRST
