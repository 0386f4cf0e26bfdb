"""Probe code for sm_90: packet islands as scheduled words. Prologue and exits have modules of their own.

The code is written as straight-line :class:`Op` lists; :mod:`.schedule` turns them into words with stall
counts and scoreboard waits that satisfy every dependence inside the probe code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from . import encode as e
from .encode import Op, SpecialRegister
from .schedule import Island, Scheduler, schedule

__all__ = [
    "Address",
    "Carry",
    "Cursor",
    "SlotLayout",
    "Step",
    "Store",
    "Transfer",
    "UniformState",
    "packet",
    "wait_island",
]


@dataclass(frozen=True, slots=True)
class UniformState:
    """Uniform registers that carry a warp's trace state through the whole kernel (no instruction of it names them)."""

    address: int  # even; pair: where the current packet goes
    offset: int  # bytes emitted so far; its low bits are the place in the ring
    header: int  # even; pair: the header's address
    timer: int  # low half of the global timer at entry
    clock: int  # low half of the SM clock at entry
    smid: int  # SM number in the low eight bits, events emitted so far above it
    base: int | None = None  # even; pair, with stripes: the address of the warp's first packet
    descriptor: int | None = None  # even; pair: how L2 treats headers; None: like everything else

    @property
    def bits(self) -> int:
        pairs = (self.address, self.header, self.base, self.descriptor)
        bits = sum(e.ur(pair, 2) for pair in pairs if pair is not None)
        for n in (self.offset, self.timer, self.clock, self.smid):
            bits |= e.ur(n)
        return bits

    COUNT = 8


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """Where packets stand. With stripes, those of all warps interleave: first the first ones, then the second ones."""

    stride: int  # bytes between slots, a power of two; with stripes, of a slot
    ring: int  # bytes of packets, a power of two
    stripe: int | None = None  # bytes of every packet, a power of two; None: each warp's packets stand together


HEADER_BYTES = 32
SMID_BITS = 8


class Store(NamedTuple):
    """One store of a packet's words."""

    data: int  # first data register
    offset: int  # bytes behind the packet's start
    words: int  # 1, 2 or 4
    fill: int | None = None  # value that is moved into the data register first (one register, stored twice)


class Cursor(NamedTuple):
    """How far a packet, or an optional event of it, moves what the warp has emitted."""

    size: int  # bytes; 0: none
    events: int


class Carry(Enum):
    """Ways of a clock between general registers (R) and uniform ones (UR)."""

    PARK = "R to UR"
    FETCH = "UR to R"
    COPY = "R to R"
    JOIN = "low halves of two R"
    JOIN_PARKED = "low halves of two UR"


class Transfer(NamedTuple):
    """One instruction that carries clocks on."""

    carry: Carry
    target: int
    source: int
    above: int | None = None  # register whose low half becomes the high one
    settle: bool = False  # the kernel's next instruction overwrites a source, perhaps before this has read it

    @property
    def general(self) -> tuple[int, ...]:
        """General registers that it writes."""
        return () if self.carry in (Carry.PARK, Carry.JOIN_PARKED) else (self.target,)

    @property
    def sources(self) -> tuple[int, ...]:
        """General registers that it reads."""
        if self.carry in (Carry.FETCH, Carry.JOIN_PARKED):
            return ()
        return (self.source,) if self.above is None else (self.source, self.above)


class Address(NamedTuple):
    """How an address of 64 bits goes into a register pair. The high half is 0 in a lane that makes no access."""

    register: int  # even; low half
    base: int | None  # even register of a pair, or with ``uniform`` a register of 32 bits that is added to it
    uniform: int | None  # even uniform register of a pair
    conditions: tuple[tuple[int, bool], ...]  # (predicate, negated): all must hold
    after: int  # cycles behind the start of the island until all these have arrived
    wait: int  # scoreboards that the kernel's instruction behind the island waits for too
    settle: bool  # that instruction overwrites one of these registers, perhaps before a move at its side has read it
    words: tuple[int, int | None] | None = None  # instead of all these: any two registers, or one


@dataclass(frozen=True, slots=True)
class Step:
    """What one island of a packet does; every part is optional.

    Order in the island: the clock first, then what takes longest until a store can use it.
    """

    capture: int | None = None  # register that takes the clock
    address: Address | None = None
    elect: int | None = None  # predicate that is true in one lane from here on
    cursor: Cursor | None = None
    uniform_moves: tuple[tuple[int, int], ...] = ()  # (uniform register, value)
    moves: tuple[tuple[int, int], ...] = ()  # (register, value)
    transfers: tuple[Transfer, ...] = ()
    stores: tuple[Store, ...] = ()
    predicate: int | None = None  # of the storing lane; None: every active lane stores the same bytes
    scoreboard: int | None = None  # claimed by the stores
    wait_first: int = 0  # scoreboards of earlier probe stores to wait for
    wait_last: bool = False  # wait for our own stores before the kernel goes on
    shared_waits: tuple[tuple[int, int], ...] = ()  # (scoreboard of the kernel, registers to write behind its wait)


def wait_island(scoreboards: int) -> Island:
    """One instruction that waits for earlier probe stores."""
    return schedule([e.nop().waiting(scoreboards)])


def packet(state: UniformState, slot: SlotLayout, steps: Sequence[Step], gaps: Sequence[int]) -> list[Island]:
    """Islands of one packet, in the order of execution; ``gaps[k]`` cycles pass at least from island ``k`` to the next.

    A value that is captured in one island may be stored in a later one, when it has long arrived.
    """
    scheduler = Scheduler()
    islands = []
    for k, step in enumerate(steps):
        islands.append(scheduler.island(_step_ops(state, slot, step)))
        if k < len(gaps):
            scheduler.gap(gaps[k])
    return islands


def _step_ops(state: UniformState, slot: SlotLayout, step: Step) -> list[Op]:
    ops: list[Op] = []
    if step.capture is not None:
        ops.append(e.cs2r32(step.capture, SpecialRegister.CLOCK_LO))
    if step.address is not None and not step.address.after:
        ops += _address_ops(step.address)
    if step.elect is not None:
        ops.append(e.elect(step.elect))
    if step.cursor is not None:
        if step.cursor.size:
            ops += _address_of_packet(state, slot)
            ops.append(e.uiadd_imm(state.offset, state.offset, step.cursor.size))
        if step.cursor.events:
            ops.append(e.uiadd_imm(state.smid, state.smid, step.cursor.events << SMID_BITS))
    if step.address is not None and step.address.after:  # what else there is to do fills the time
        ops += _address_ops(step.address)
    ops += [e.umov_imm(register, value) for register, value in step.uniform_moves]
    ops += [e.mov_imm(register, value) for register, value in step.moves]
    ops += [_transfer(transfer) for transfer in step.transfers]
    for s in step.stores:
        if s.fill is not None:
            ops.append(e.mov_imm(s.data, s.fill))
        op = e.store(state.address, s.offset, s.data, s.words, step.scoreboard)
        ops.append(op if step.predicate is None else op.guarded(step.predicate))
    if step.wait_last and step.scoreboard is not None:
        ops.append(e.nop().waiting(1 << step.scoreboard))
    ops[0] = ops[0].waiting(step.wait_first)
    for scoreboard, registers in step.shared_waits:
        k = next((k for k, op in enumerate(ops) if op.writes & registers or op.read_sb == scoreboard), None)
        if k is not None:
            ops[k] = ops[k].waiting(1 << scoreboard)
    return ops


def _transfer(t: Transfer) -> Op:
    match t.carry:
        case Carry.PARK:
            return e.r2ur(t.target, t.source)
        case Carry.FETCH:
            return e.mov_uniform(t.target, t.source)
        case Carry.COPY:
            return replace(e.mov(t.target, t.source), settle=t.settle)
    assert t.above is not None
    if t.carry is Carry.JOIN_PARKED:
        return e.upermute(t.target, t.source, e.LOW_HALVES, t.above)
    return replace(e.permute(t.target, t.source, e.LOW_HALVES, t.above), settle=t.settle)


def _address_of_packet(state: UniformState, slot: SlotLayout) -> list[Op]:
    if slot.stripe is None or state.base is None:
        # Slots are aligned to the ring, so the high bits of any address in it are the slot's own.
        return [e.uselect_bits(state.address, state.offset, slot.ring - 1, state.address)]
    # Each packet of the ring is a whole stripe of all slots further on: its place in the ring times their number.
    return [
        e.uand_imm(state.address, state.offset, slot.ring - 1),
        e.uimad_wide_imm(state.address, state.address, 0, state.base, "stripe_slots"),
    ]


def _address_ops(address: Address) -> list[Op]:
    low = address.register
    rest: list[int] = []
    if address.words is not None:
        first, second = address.words
        if first % 2 == 0 and second == first + 1:
            ops = [e.mov_pair(low, first)]
        else:
            ops = [e.mov(low, first), *([] if second is None else [e.mov(low + 1, second)])]
    elif address.uniform is not None:
        ops = [e.mov_uniform(low, address.uniform), e.mov_uniform(low + 1, address.uniform + 1)]
        ops += [] if address.base is None else [e.add_to_pair(low, address.base)]
        rest = [low + 1] * len(address.conditions)
    else:
        assert address.base is not None
        ops = [e.mov(low, address.base)] if address.conditions else [e.mov_pair(low, address.base)]
        rest = [address.base + 1, *([low + 1] * len(address.conditions))][: len(address.conditions)]
    for source, (predicate, negated) in zip(rest, address.conditions, strict=True):
        ops.append(e.select_or_zero(low + 1, source, predicate, negated=negated))
    ops[0] = replace(ops[0], wait=address.wait, after=address.after)
    return [replace(op, settle=True) for op in ops] if address.settle else ops
