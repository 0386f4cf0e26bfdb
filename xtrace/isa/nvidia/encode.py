"""Encodings of the few instructions that probes are made of (sm_90; facts checked with nvdisasm).

Each encoder returns an :class:`Op`: the word without its control field, plus what the
scheduler has to know. Register sets use the NVIDIA layout of :mod:`xtrace.isa`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

__all__ = ["PT", "RZ", "URZ", "Op", "SpecialRegister", "Unit"]

RZ = 255
URZ = 63
PT = 7

_P_BIT, _UR_BIT, _UP_BIT = 256, 272, 360


class Unit(Enum):
    """Pipe class of a probe instruction: decides its result latency."""

    ALU = "alu"
    UNIFORM = "uniform datapath"
    UNIFORM_MOVE = "uniform move"  # UMOV, ULDC: shorter latency than the datapath
    TO_UNIFORM = "register to uniform"
    ELECT = "elect"
    UNIFORM_PREDICATE = "uniform predicate"
    PREDICATE = "comparison"
    BRANCH = "branch"
    MEMORY = "memory"
    SPECIAL = "special register"  # variable latency: needs a write scoreboard
    NOP = "nop"


class SpecialRegister:
    """S2R/CS2R/S2UR register numbers (identical from sm_75 to sm_121)."""

    VIRTID = 0x03
    TID_X, TID_Y, TID_Z = 0x21, 0x22, 0x23
    CTAID_X, CTAID_Y, CTAID_Z = 0x25, 0x26, 0x27
    SMID = 0x43
    CLOCK_LO = 0x50
    GLOBALTIMER_LO = 0x52


@dataclass(frozen=True, slots=True)
class Op:
    """One probe instruction before scheduling."""

    word: int
    unit: Unit
    reads: int = 0
    writes: int = 0
    guard: int = 0  # predicate bit that guards it (also in ``reads``)
    write_sb: int | None = None
    read_sb: int | None = None
    wait: int = 0
    after: int = 0  # cycles behind the start of its island before which it must not issue
    settle: bool = False  # reads what the kernel's next instruction may overwrite within two cycles
    patch: str | None = None  # name of the u32 immediate (bits 32-63) that the runtime fills in

    def waiting(self, mask: int) -> Op:
        return replace(self, wait=self.wait | mask)

    def guarded(self, predicate: int, *, negated: bool = False) -> Op:
        bit = 1 << (_P_BIT + predicate)
        word = (self.word & ~(0xF << 12)) | (predicate | negated << 3) << 12
        return replace(self, word=word, reads=self.reads | bit, guard=bit)


def r(number: int, width: int = 1) -> int:
    return 0 if number == RZ else ((1 << width) - 1) << number


def ur(number: int, width: int = 1) -> int:
    return 0 if number == URZ else ((1 << width) - 1) << (_UR_BIT + number)


def p(number: int) -> int:
    return 0 if number == PT else 1 << (_P_BIT + number)


def up(number: int) -> int:
    return 0 if number == PT else 1 << (_UP_BIT + number)


def _word(lo: int, hi: int) -> int:
    return lo | hi << 64


def nop() -> Op:
    return Op(_word(0x7918, 0), Unit.NOP)


def mov_imm(d: int, imm: int) -> Op:
    return Op(_word(0x7802 | d << 16 | (imm & 0xFFFFFFFF) << 32, 0xF00), Unit.ALU, 0, r(d))


def mov_uniform(d: int, u: int) -> Op:
    return Op(_word(0x7C02 | d << 16 | u << 32, 0x08000F00), Unit.ALU, ur(u), r(d))


def mov(d: int, a: int) -> Op:
    return Op(_word(0x7202 | d << 16 | a << 32, 0xF00), Unit.ALU, r(a), r(d))


def select_or_zero(d: int, a: int, predicate: int, *, negated: bool) -> Op:
    """d = P ? a : 0."""
    word = _word(0x7207 | d << 16 | a << 24 | RZ << 32, predicate << 23 | negated << 26)
    return Op(word, Unit.ALU, r(a) | p(predicate), r(d))


def mov_pair(d: int, a: int) -> Op:
    """64-bit pair d = pair a: an addition to zero, because there is no wider move."""
    return Op(_word(0x7225 | d << 16 | RZ << 24 | RZ << 32, 0x078E0000 | a), Unit.ALU, r(a, 2), r(d, 2))


def add_to_pair(d: int, a: int) -> Op:
    """64-bit pair d = d + a, where a has 32 bits and no sign."""
    return Op(_word(0x7825 | d << 16 | a << 24 | 1 << 32, 0x078E0000 | d), Unit.ALU, r(a) | r(d, 2), r(d, 2))


def umov_imm(d: int, imm: int, patch: str | None = None) -> Op:
    return Op(_word(0x7882 | d << 16 | (imm & 0xFFFFFFFF) << 32, 0), Unit.UNIFORM_MOVE, 0, ur(d), patch=patch)


def umov(d: int, a: int) -> Op:
    return Op(_word(0x7C82 | d << 16 | a << 32, 0x08000000), Unit.UNIFORM_MOVE, ur(a), ur(d))


def cs2r32(d: int, sr: int) -> Op:
    return Op(_word(0x7805 | d << 16, sr << 8), Unit.ALU, 0, r(d))


def cs2r64(d: int, sr: int) -> Op:
    return Op(_word(0x7805 | d << 16, sr << 8 | 0x10000), Unit.ALU, 0, r(d, 2))


def s2r(d: int, sr: int, sb: int) -> Op:
    return Op(_word(0x7919 | d << 16, sr << 8), Unit.SPECIAL, 0, r(d), write_sb=sb)


def s2ur(d: int, sr: int, sb: int) -> Op:
    return Op(_word(0x79C3 | d << 16, sr << 8), Unit.SPECIAL, 0, ur(d), write_sb=sb)


def uldc(d: int, offset: int) -> Op:
    return Op(_word(0x7AB9 | d << 16 | offset << 38, 0x800), Unit.UNIFORM_MOVE, 0, ur(d))


def r2ur(d: int, a: int) -> Op:
    return Op(_word(0x72CA | d << 16 | a << 24, 0xE0000), Unit.TO_UNIFORM, r(a), ur(d))


def shift_right(d: int, a: int, bits: int) -> Op:
    return Op(_word(0x7819 | d << 16 | RZ << 24 | bits << 32, 0x11600 | a), Unit.ALU, r(a), r(d))


def imad_uniform(d: int, a: int, u: int, c: int) -> Op:
    """d = a * UR + c, 32 bit."""
    return Op(_word(0x7C24 | d << 16 | a << 24 | u << 32, 0x0F8E0200 | c), Unit.ALU, r(a) | ur(u) | r(c), r(d))


def uimad(d: int, a: int, b: int, c: int) -> Op:
    return Op(_word(0x72A4 | d << 16 | a << 24 | b << 32, 0x0F8E0200 | c), Unit.UNIFORM, ur(a) | ur(b) | ur(c), ur(d))


def uimad_wide_imm(d: int, a: int, imm: int, c: int, patch: str | None = None) -> Op:
    """64-bit pair d = a * imm + pair c, unsigned."""
    word = _word(0x78A5 | d << 16 | a << 24 | imm << 32, 0x0F8E0000 | c)
    return Op(word, Unit.UNIFORM, ur(a) | ur(c, 2), ur(d, 2), patch=patch)


LOW_HALVES = 0x5410  # selector: the low 16 bits of both sources, those of the second above


def permute(d: int, a: int, selector: int, c: int) -> Op:
    """Bytes of d, from the lowest: nibble k of ``selector`` chooses among the bytes of a (0 to 3) and c (4 to 7)."""
    return Op(_word(0x7816 | d << 16 | a << 24 | selector << 32, c), Unit.ALU, r(a) | r(c), r(d))


def upermute(d: int, a: int, selector: int, c: int) -> Op:
    """The same in uniform registers."""
    word = _word(0x7896 | d << 16 | a << 24 | selector << 32, 0x08000000 | c)
    return Op(word, Unit.UNIFORM, ur(a) | ur(c), ur(d))


def uiadd_imm(d: int, a: int, imm: int) -> Op:
    return Op(_word(0x7890 | d << 16 | a << 24 | (imm & 0xFFFFFFFF) << 32, 0x0FFFE03F), Unit.UNIFORM, ur(a), ur(d))


def ushift_right(d: int, a: int, bits: int) -> Op:
    return Op(_word(0x7899 | d << 16 | URZ << 24 | bits << 32, 0x08011600 | a), Unit.UNIFORM, ur(a), ur(d))


def uimad_imm(d: int, a: int, imm: int, c: int) -> Op:
    """d = a * imm + c, 32 bit."""
    return Op(_word(0x78A4 | d << 16 | a << 24 | imm << 32, 0x0F8E0200 | c), Unit.UNIFORM, ur(a) | ur(c), ur(d))


def uand_imm(d: int, a: int, mask: int) -> Op:
    return Op(_word(0x7892 | d << 16 | a << 24 | mask << 32, 0x0F8EC000 | URZ), Unit.UNIFORM, ur(a), ur(d))


def ushift_right_by(d: int, a: int, b: int) -> Op:
    """d = a >> b; ``b`` names a register."""
    return Op(_word(0x7299 | d << 16 | URZ << 24 | b << 32, 0x08011600 | a), Unit.UNIFORM, ur(a) | ur(b), ur(d))


_COMPARISONS = {"EQ": 0x2070, "NE": 0x5070, "GE": 0x6070}


def compare(pd: int, test: str, a: int, u: int, also: int = PT) -> Op:
    """P = (R a <test> UR u) and P also, unsigned."""
    word = _word(0x7C0C | a << 24 | u << 32, 0x08700000 | _COMPARISONS[test] | also << 23 | pd << 17)
    return Op(word, Unit.PREDICATE, r(a) | ur(u) | p(also), p(pd))


def branch(where: str) -> Op:
    """To a place that is filled in when all code has its address; ``where`` names it."""
    return Op(_word(0x7947, 0x03800000), Unit.BRANCH, patch=where)


def uselect_bits(d: int, a: int, mask: int, c: int) -> Op:
    """d = (a & mask) | (c & ~mask)."""
    return Op(_word(0x7892 | d << 16 | a << 24 | mask << 32, 0x0F8EE200 | c), Unit.UNIFORM, ur(a) | ur(c), ur(d))


def usetp_less_imm(pd: int, a: int, imm: int, patch: str | None = None) -> Op:
    """UP = a < imm, unsigned."""
    word = _word(0x788C | a << 24 | imm << 32, 0x0BF01070 | pd << 17)
    return Op(word, Unit.UNIFORM_PREDICATE, ur(a), up(pd), patch=patch)


def usel_imm(d: int, a: int, imm: int, pu: int, patch: str | None = None) -> Op:
    """d = UP ? a : imm."""
    word = _word(0x7887 | d << 16 | a << 24 | imm << 32, 0x08000000 | pu << 23)
    return Op(word, Unit.UNIFORM, ur(a) | up(pu), ur(d), patch=patch)


def elect(pd: int, among: int = PT, *, negated: bool = False) -> Op:
    """P is true in one active lane, the lowest of those in which ``among`` is true (or false), if there are such."""
    return Op(_word(0x003F782F, among << 23 | negated << 26 | pd << 17), Unit.ELECT, p(among), p(pd))


_STORE_SIZE = {1: 0x900, 2: 0xB00, 4: 0xD00}


def store(address: int, offset: int, data: int, words: int, sb: int | None) -> Op:
    """STG.E of 1, 2 or 4 registers to the 64-bit uniform address pair plus a signed 24-bit offset."""
    word = _word(0x7986 | RZ << 24 | data << 32 | (offset & 0xFFFFFF) << 40, 0x08100000 | _STORE_SIZE[words] | address)
    return Op(word, Unit.MEMORY, r(data, words) | ur(address, 2), 0, read_sb=sb)


def store_described(address: int, descriptor: int, offset: int, data: int, words: int, sb: int | None) -> Op:
    """The same to the 64-bit address in a general register pair, with a descriptor (uniform pair) that says how L2
    treats the line.
    """
    lo = 0x7986 | address << 24 | data << 32 | (offset & 0xFFFFFF) << 40
    word = _word(lo, 0x0C101000 | _STORE_SIZE[words] | descriptor)
    return Op(word, Unit.MEMORY, r(data, words) | r(address, 2) | ur(descriptor, 2), 0, read_sb=sb)
