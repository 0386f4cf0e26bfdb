"""The vendor-neutral instruction: what the analyses, the splicer and the verifier see.

Register sets are plain integers used as bit sets, so that liveness over thousands of
instructions is a few big-integer operations. Which bit means which register is fixed by
the architecture's :class:`RegisterLayout`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

__all__ = ["Access", "Control", "Flow", "Instruction", "Latency", "RegisterLayout", "RegisterClass"]


@dataclass(frozen=True, slots=True)
class RegisterClass:
    """One register file, e.g. ``R`` (general) or ``UP`` (uniform predicates)."""

    name: str
    first_bit: int
    count: int

    def bit(self, number: int, width: int = 1) -> int:
        """Bit set of ``width`` consecutive registers from ``number``; out-of-range parts are dropped."""
        stop = min(number + width, self.count)
        return ((1 << max(stop - number, 0)) - 1) << (self.first_bit + number)

    @property
    def mask(self) -> int:
        return ((1 << self.count) - 1) << self.first_bit

    def numbers(self, bits: int) -> Iterator[int]:
        """Numbers of the registers of this class in a bit set, ascending."""
        left = (bits & self.mask) >> self.first_bit
        while left:
            lowest = left & -left
            yield lowest.bit_length() - 1
            left ^= lowest


@dataclass(frozen=True)
class RegisterLayout:
    """All register classes of an architecture, by name."""

    classes: dict[str, RegisterClass]

    def __getitem__(self, name: str) -> RegisterClass:
        return self.classes[name]

    @property
    def everything(self) -> int:
        return sum(c.mask for c in self.classes.values())

    def names(self, bits: int) -> list[str]:
        """Readable names of a bit set, e.g. ``["R4", "R5", "P0"]``."""
        return [f"{c.name}{i}" for c in self.classes.values() for i in c.numbers(bits)]

    def numbers(self, name: str, bits: int) -> Iterator[int]:
        return self.classes[name].numbers(bits)


class Flow(Enum):
    """What an instruction does to the program counter."""

    FALL = "fall"  # next instruction only
    BRANCH = "branch"  # to target; also falls through when guarded (see Instruction.falls_through)
    CALL = "call"  # to target, comes back behind the call
    RETURN = "return"
    EXIT = "exit"
    INDIRECT = "indirect"  # jump through a register or table
    PUSH = "push"  # names a code address without going there now (BSSY, WARPSYNC.COLLECTIVE)


class Latency(Enum):
    """How the result's readiness is known."""

    FIXED = "fixed"  # counted in stall cycles
    VARIABLE = "variable"  # signalled through a scoreboard
    ASYNC_MATRIX = "async-matrix"  # owned by the matrix unit until its own wait (WGMMA)


@dataclass(frozen=True, slots=True)
class Control:
    """Scheduling fields of one instruction (NVIDIA: bits 105-127 of the word)."""

    stall: int  # issue distance to the next instruction of the warp, cycles; 0 = drain
    yields: bool  # may switch to another warp
    write_sb: int | None  # scoreboard released when the result is written
    read_sb: int | None  # scoreboard released when the sources have been read
    wait_mask: int  # bit k: wait until scoreboard k is zero before issue
    reuse: int = 0


@dataclass(frozen=True, slots=True)
class Instruction:
    """One decoded machine instruction.

    ``reads``/``writes`` are bit sets over the layout's registers and include the guard
    predicate (in ``reads``). A guarded write does not kill: see :attr:`kills`.
    ``opaque`` means the instruction set model does not know it: it then reads and writes everything.
    """

    index: int
    pc: int  # byte offset in the kernel's text section
    word: int  # the whole encoding, little endian
    size: int  # bytes
    text: str  # disassembly without the trailing ';'
    opcode: str  # with modifiers, e.g. "HGMMA.64x128x16.F32.BF16"
    guard: str  # "" when unconditional, e.g. "@!P0"
    reads: int
    writes: int
    control: Control
    flow: Flow = Flow.FALL
    target: int | None = None  # byte offset in the text section
    falls_through: bool = True
    latency: Latency = Latency.FIXED
    opaque: bool = False
    tags: frozenset[str] = field(default_factory=frozenset)  # see docs/decisions/0001

    @property
    def base(self) -> str:
        """Mnemonic without modifiers."""
        return self.opcode.split(".", 1)[0]

    @property
    def conditional(self) -> bool:
        return bool(self.guard)

    @property
    def never(self) -> bool:
        """Guarded by a constant false predicate: has no effect at all."""
        return self.guard in ("@!PT", "@!UPT")

    @property
    def kills(self) -> int:
        """Registers certainly overwritten."""
        return 0 if self.guard or self.opaque else self.writes


@dataclass(frozen=True, slots=True)
class Access:
    """A memory access of single lanes: its address is ``R[base] or UR[uniform] pair + offset``.

    With both registers ``base`` is 32 bits wide, unsigned, and is added to the 64-bit uniform pair.
    """

    kind: str  # e.g. "global load", "async copy"
    size: int  # bytes per lane
    base: int | None  # general register: low half of a pair, or with ``uniform`` a 32-bit offset
    uniform: int | None  # low half of a uniform pair
    offset: int  # signed immediate
    conditions: tuple[tuple[int, bool], ...]  # (predicate, negated): a lane makes the access where all hold
