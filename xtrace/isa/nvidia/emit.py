"""Probe code for sm_90: prologue, record and exit islands as scheduled words.

The code is written as straight-line :class:`Op` lists; :func:`schedule` turns them into words
with stall counts and scoreboard waits that satisfy every dependence inside the island. Cycle
counts are the public table values (facts/sass.md 7.1), never the smaller measured ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from . import encode as e
from .encode import Op, SpecialRegister, Unit

__all__ = ["ExitRegisters", "Patch", "PrologueRegisters", "Record", "UniformState", "exit_island", "prologue", "record"]

_NO_SB = 7
_R_MASK = (1 << 255) - 1


class Patch(NamedTuple):
    """A u32 immediate (word bits 32-63) that is filled in at load time."""

    word_index: int
    value: str


@dataclass(frozen=True, slots=True)
class Island:
    words: tuple[int, ...]
    patches: tuple[Patch, ...] = ()


@dataclass(frozen=True, slots=True)
class UniformState:
    """Uniform registers that carry the per-warp trace cursor through the whole kernel."""

    address: int  # even; pair: where the current group's records go
    base: int  # low half of the slot's address
    offset: int  # bytes emitted so far, never wraps the ring by itself

    @property
    def bits(self) -> int:
        return e.ur(self.address, 2) | e.ur(self.base) | e.ur(self.offset)


@dataclass(frozen=True, slots=True)
class SlotLayout:
    stride: int  # bytes between slots, a power of two
    ring: int  # bytes of records, a power of two
    header: int  # byte offset of the header in the slot


@dataclass(frozen=True, slots=True)
class PrologueRegisters:
    """Registers that are dead at the kernel's entry."""

    quad: int  # 4-aligned: global timer and clock
    pair: int  # even: SM id and virtual id
    scratch: tuple[int, int, int]
    uniform: tuple[int, ...]  # eight scratch uniform registers
    predicate: int
    uniform_predicate: int
    scoreboard: int


@dataclass(frozen=True, slots=True)
class ExitRegisters:
    quad: int | None  # 4-aligned; None: use the pair for every store, one after the other
    pair: int
    predicate: int
    scoreboard: int


@dataclass(frozen=True, slots=True)
class Record:
    """One time record: what differs between record islands."""

    site: int
    data: int  # even register: clock, then site id; any register when split
    predicate: int | None  # None: every active lane stores the same eight bytes
    scoreboard: int
    slot_in_group: int = 0
    group_size: int | None = 1  # set on the first record of a group: moves the cursor by that many records
    elect: bool = True  # False: the predicate still holds the lane elected by an earlier record of the group
    wait_first: int = 0  # scoreboards of earlier probe stores to wait for
    wait_last: bool = True  # wait for our own store before the kernel goes on
    split: bool = False  # one data register only: two 4-byte stores, one after the other


def _distance(producer: Op, consumer: Op) -> int:
    """Cycles from issue of ``producer`` to issue of ``consumer`` that reads its result (sm_90 table values)."""
    to_memory = consumer.unit in (Unit.MEMORY,)
    uniform = consumer.unit in (Unit.UNIFORM, Unit.UNIFORM_PREDICATE)
    match producer.unit:
        case Unit.ALU:
            return 8 if to_memory else 6
        case Unit.UNIFORM:
            return 4 if uniform else 7 if consumer.unit is Unit.UNIFORM_MOVE else 12
        case Unit.UNIFORM_MOVE:
            return 2 if uniform or consumer.unit is Unit.UNIFORM_MOVE else 5
        case Unit.TO_UNIFORM:
            return 13 if uniform else 15
        case Unit.ELECT:
            return 13
        case Unit.UNIFORM_PREDICATE:
            return 6
    return 2


def _control(stall: int, op: Op) -> int:
    code = stall + 16 if stall <= 11 else stall  # keep issuing from this warp where the encoding allows it
    write_sb = _NO_SB if op.write_sb is None else op.write_sb
    read_sb = _NO_SB if op.read_sb is None else op.read_sb
    return code | write_sb << 5 | read_sb << 8 | op.wait << 11


def schedule(ops: list[Op]) -> Island:
    """In-order schedule: the fewest stall cycles that satisfy every dependence inside the island."""
    issue: list[int] = []
    pending_write: dict[int, tuple[int, int]] = {}  # scoreboard -> (registers, issue time of the last claim)
    pending_read: dict[int, tuple[int, int]] = {}
    done: list[Op] = []
    for op in ops:
        time = issue[-1] + done[-1].min_stall if done else 0
        for j in range(len(done) - 1, -1, -1):
            earlier = done[j]
            if earlier.write_sb is None and earlier.writes & op.reads:
                time = max(time, issue[j] + _distance(earlier, op))
            if earlier.writes & op.writes:
                time = max(time, issue[j] + 2)
        for pending, conflicts in ((pending_write, op.reads | op.writes), (pending_read, op.writes)):
            for sb, (bits, _) in list(pending.items()):
                if bits & conflicts:
                    op = op.waiting(1 << sb)
        for pending in (pending_write, pending_read):
            for sb in [k for k in pending if op.wait >> k & 1]:
                time = max(time, pending.pop(sb)[1] + 2)
        issue.append(time)
        done.append(op)
        if op.write_sb is not None:
            bits, _ = pending_write.get(op.write_sb, (0, 0))
            pending_write[op.write_sb] = (bits | op.writes, time)
        if op.read_sb is not None:
            bits, _ = pending_read.get(op.read_sb, (0, 0))
            pending_read[op.read_sb] = (bits | op.reads, time)
    words: list[int] = []
    patches: list[Patch] = []
    for k, op in enumerate(done):
        gap = issue[k + 1] - issue[k] if k + 1 < len(done) else op.min_stall
        stall = min(gap, 15)
        if op.patch:
            patches.append(Patch(len(words), op.patch))
        words.append(op.word | _control(stall, op) << 105)
        for rest in range(gap - stall, 0, -15):
            words.append(e.nop().word | _control(min(rest, 15), e.nop()) << 105)
    return Island(tuple(words), tuple(patches))


_CONST_NTID = (0x0, 0x4, 0x8)  # c[0] offsets of blockDim, family sm_90
_CONST_NCTAID = (0xC, 0x10)


def prologue(state: UniformState, slot: SlotLayout, regs: PrologueRegisters) -> Island:
    """Entry island: compute the warp's slot, set up the cursor, write the entry half of the header."""
    q, (a, b, c) = regs.quad, regs.scratch
    sb, pred, upred = regs.scoreboard, regs.predicate, regs.uniform_predicate
    cx, cy, cz, nx, ny, nz, gx, gy = regs.uniform
    sr = SpecialRegister
    ops = [
        e.cs2r64(q, sr.GLOBALTIMER_LO),
        e.cs2r64(q + 2, sr.CLOCK_LO),
        e.s2r(a, sr.TID_X, sb),
        e.s2r(b, sr.TID_Y, sb),
        e.s2r(c, sr.TID_Z, sb),
        e.s2ur(cx, sr.CTAID_X, sb),
        e.s2ur(cy, sr.CTAID_Y, sb),
        e.s2ur(cz, sr.CTAID_Z, sb),
        e.s2r(regs.pair, sr.SMID, sb),
        e.s2r(regs.pair + 1, sr.VIRTID, sb),
        e.elect(pred),
        e.uldc(nx, _CONST_NTID[0]),
        e.uldc(ny, _CONST_NTID[1]),
        e.uldc(nz, _CONST_NTID[2]),
        e.uldc(gx, _CONST_NCTAID[0]),
        e.uldc(gy, _CONST_NCTAID[1]),
        e.umov_imm(state.address, 0, "buffer_lo"),
        e.umov_imm(state.address + 1, 0, "buffer_hi"),
        e.umov_imm(state.offset, 0),
        e.uimad(nz, nz, ny, e.URZ),
        e.uimad(nz, nz, nx, e.URZ),  # threads per CTA
        e.uiadd_imm(nz, nz, 31),
        e.ushift_right(nz, nz, 5),  # warps per CTA
        e.imad_uniform(c, c, ny, b),
        e.imad_uniform(c, c, nx, a),
        e.shift_right(c, c, 5),
        e.r2ur(ny, c),  # warp in CTA
        e.uimad(cz, cz, gy, cy),
        e.uimad(cz, cz, gx, cx),  # CTA number in the grid
        e.uimad(cz, cz, nz, ny),  # slot
        e.usetp_less_imm(upred, cz, 0, "slot_count"),
        e.usel_imm(cz, cz, 0, upred, "slot_count"),
        e.uimad_wide_imm(state.address, cz, slot.stride, state.address),
        e.umov(state.base, state.address),
        e.store(state.address, slot.header, q, 4, sb).guarded(pred),
        e.store(state.address, slot.header + 16, regs.pair, 2, sb).guarded(pred),
        e.nop().waiting(1 << sb),
    ]
    return schedule(ops)


def record(state: UniformState, slot: SlotLayout, rec: Record) -> Island:
    """Record island: ``{clock, site}`` goes to the warp's ring."""
    at, sb = 8 * rec.slot_in_group, rec.scoreboard

    def store(offset: int, words: int) -> Op:
        op = e.store(state.address, offset, rec.data, words, sb)
        return op if rec.predicate is None else op.guarded(rec.predicate)

    ops: list[Op] = []
    if rec.elect and rec.predicate is not None:
        ops.append(e.elect(rec.predicate))
    ops.append(e.cs2r32(rec.data, SpecialRegister.CLOCK_LO))
    if rec.group_size is not None:
        ops.append(e.uand_or(state.address, state.offset, slot.ring - 1, state.base))
        ops.append(e.uiadd_imm(state.offset, state.offset, 8 * rec.group_size))
    if rec.split:
        ops += [store(at, 1), e.mov_imm(rec.data, rec.site), store(at + 4, 1)]
    else:
        ops += [e.mov_imm(rec.data + 1, rec.site), store(at, 2)]
    if rec.wait_last:
        ops.append(e.nop().waiting(1 << sb))
    ops[0] = ops[0].waiting(rec.wait_first)
    return schedule(ops)


def exit_island(
    state: UniformState, slot: SlotLayout, regs: ExitRegisters, exit_pc: int, *, wait_first: int, wait_last: bool
) -> Island:
    """Exit island: the exit half of the header. ``wait_last`` where some lanes go on."""
    sb, pred, pair, head = regs.scoreboard, regs.predicate, regs.pair, slot.header
    timer, clock = SpecialRegister.GLOBALTIMER_LO, SpecialRegister.CLOCK_LO
    ops = [e.elect(pred).waiting(wait_first), e.umov(state.address, state.base)]
    if regs.quad is not None:
        q = regs.quad
        ops[:0] = [e.cs2r64(q, timer).waiting(wait_first), e.cs2r64(q + 2, clock)]
        ops += [
            e.mov_uniform(pair, state.offset),
            e.mov_imm(pair + 1, exit_pc),
            e.store(state.address, head + 32, q, 4, sb).guarded(pred),
            e.store(state.address, head + 48, pair, 2, sb).guarded(pred),
        ]
    else:
        for source, at in ((timer, 32), (clock, 40)):
            ops += [e.cs2r64(pair, source), e.store(state.address, head + at, pair, 2, sb).guarded(pred)]
        ops += [
            e.mov_uniform(pair, state.offset),
            e.mov_imm(pair + 1, exit_pc),
            e.store(state.address, head + 48, pair, 2, sb).guarded(pred),
        ]
    if wait_last:
        ops.append(e.nop().waiting(1 << sb))
    return schedule(ops)
