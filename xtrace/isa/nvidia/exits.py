"""Exit islands: the warp's header, written whole."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from . import encode as e
from .emit import UniformState
from .encode import Op, SpecialRegister
from .schedule import Island, schedule

__all__ = ["ExitRegisters", "Guard", "exit_island"]


class Guard(NamedTuple):
    """What an exit depends on."""

    predicate: int
    negated: bool
    after: int  # cycles behind the start of the island until it has arrived


@dataclass(frozen=True, slots=True)
class ExitRegisters:
    quads: tuple[int, ...]  # two or one, 4-aligned; none: the pair is used for every store, one after the other
    pair: int | None
    predicate: int | None  # None: every active lane stores the same bytes
    scoreboard: int
    address: int | None = None  # even; pair for the header's address, where a descriptor goes with it
    guard: Guard | None = None  # of an exit that lanes may pass


def exit_island(
    state: UniformState, regs: ExitRegisters, exit_pc: int, *, wait_first: int, wait_last: bool, emits: bool = True
) -> Island:
    """Exit island: the warp's header, 32 bytes written at once.

    ``wait_last`` where some lanes go on: of them none writes the header, and if all do nobody does. ``emits``: whether
    the kernel has packets, and so an offset.
    """
    sr, sb, guard = SpecialRegister, regs.scoreboard, regs.guard or Guard(e.PT, False, 0)
    described = None if state.descriptor is None or regs.address is None else (regs.address, state.descriptor)

    def store(at: int, data: int, words: int) -> Op:
        if described is None:
            op = e.store(state.header, at, data, words, sb)
        else:
            op = e.store_described(*described, at, data, words, sb)
        if regs.predicate is not None:
            return op.guarded(regs.predicate)
        if regs.guard is not None:
            return replace(op.guarded(guard.predicate, negated=guard.negated), after=guard.after)
        return op

    def fill(d: int, at: int) -> list[Op]:
        """Eight bytes of the header into a register pair."""
        match at:
            case 0:
                return [e.mov_uniform(d, state.timer), e.mov_uniform(d + 1, state.clock)]
            case 8:
                return [e.mov_uniform(d, state.smid), e.mov_imm(d + 1, exit_pc)]
            case 16:
                return [e.cs2r64(d, sr.GLOBALTIMER_LO)]
        emitted = e.mov_uniform(d + 1, state.offset) if emits else e.mov_imm(d + 1, 0)
        return [e.cs2r32(d, sr.CLOCK_LO), emitted]

    rest = list(regs.quads)
    where = [] if described is None else [e.mov_uniform(described[0] + k, state.header + k) for k in range(2)]
    ops: list[Op] = []
    if regs.predicate is not None:
        elected = e.elect(regs.predicate, guard.predicate, negated=guard.negated)
        ops.append(replace(elected, after=guard.after))
    if rest:
        quads = [rest[-1], rest[0]]  # the exit times first
        for quad, at in zip(quads, (16, 0), strict=True):
            ops += [*fill(quad, at), *fill(quad + 2, at + 8), *(where if at == 16 else [])]
            if len(rest) == 1:
                ops.append(store(at, quad, 4))
        if len(rest) == 2:
            ops += [store(at, quad, 4) for quad, at in zip(quads, (16, 0), strict=True)]
    elif regs.pair is not None:
        for at in (16, 24, 0, 8):
            ops += [*fill(regs.pair, at), *(where if at == 16 else []), store(at, regs.pair, 2)]
    if wait_last:
        ops.append(e.nop().waiting(1 << sb))
    ops[0] = ops[0].waiting(wait_first)
    return schedule(ops)
