"""What a plan says: options, placed and refused sites, packets, per kernel."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NamedTuple

from xtrace.analysis import KernelAnalysis
from xtrace.analysis.values import Written
from xtrace.image import Image
from xtrace.isa.nvidia.emit import Address, Cursor, SlotLayout, Store, Transfer, UniformState
from xtrace.isa.nvidia.exits import Guard
from xtrace.isa.nvidia.prologue import PrologueRegisters
from xtrace.probe import Site
from xtrace.sampling import Sampling

__all__ = [
    "Clocks",
    "Derived",
    "Form",
    "Holder",
    "KernelPlan",
    "Options",
    "Packet",
    "Part",
    "PlacedSite",
    "Plan",
    "RefusedSite",
    "SlotLayout",
    "Stripes",
    "UniformState",
]

EVENT_BYTES = 4  # a clock
QUAD_BYTES = 16  # four words: the unit of a packet
MAX_EVENTS = 15  # of a packet
MAX_WORDS = 31  # of a packet, its tag left out; only addresses need more than MAX_EVENTS
RING_SLACK = 512  # bytes behind the ring: room for the last packet of a lap
SMALLEST_RING = 32
FILLINGS = 4


class Placement(IntEnum):
    """How places of stores are chosen."""

    BY_COST = 0  # where they are expected to cost the kernel least
    NEAR = 1  # soon behind the clocks, and where one election serves all
    LATE = 2  # the same, but further behind the last event where no one election serves all


LAYOUTS = len(Placement) * FILLINGS


class Clocks(Enum):
    """How packets hold the clocks between their first and their last."""

    AUTO = "auto"  # short where that saves a kernel bound by memory a sector
    FULL = "full"  # 32 bits
    SHORT = "short"  # the low 16 bits wherever that makes a packet smaller


class Stripes(Enum):
    """Whether the slots of all warps interleave packet by packet."""

    AUTO = "auto"  # for kernels bound by memory whose packets of clocks have about one size
    ON = "on"  # wherever packets can have one size
    OFF = "off"


class Form(IntEnum):
    """How far probes are optimised: each form adds one step to the one before. All but the last are for experiments.

    Every form traces the same events, and its image is proved like any other. Only ``SCHEDULED`` uses islands that hold
    no event (but for waits), parks clocks in uniform registers and moves tags out of loops.
    """

    NAIVE = 0  # each event in a packet, stored by all lanes and waited for in its island; registers shared by all
    SEPARATE = 1  # registers of its own for each event, as far as they last; waits are left to later islands
    LANE = 2  # one elected lane stores
    PACKED = 3  # chains of events in one packet; each four words stored at the first event where they are complete
    SCHEDULED = 4  # stores, elections and moves of the cursor where they are expected to cost the kernel least


def quads(words: int) -> int:
    """Quads of a packet: so many words and one that names it."""
    return words // 4 + 1


def lead(words: int) -> int:
    """Words of a packet in front of the first that means something."""
    return 4 * quads(words) - 1 - words


@dataclass(frozen=True, slots=True)
class Options:
    """Choices of the user.

    ``records`` is how many of a warp's newest events its ring keeps at least: it is rounded up to a power of two, and
    packed events take less room. ``layout`` chooses among equivalent images, of which only a measurement can tell the
    fastest: 4 * placement + filling. Placement of stores: 0 by estimated cost, 1 near, 2 late. Filling of loops with
    NOPs: 0 none, 1 every island to an even number of words, 2 and 3 a few here and there. ``form`` leaves out
    optimisations, to measure what each of them is worth. ``sample`` says which warps are traced; None: all. ``clocks``
    and ``stripes`` are about the bytes that packets take and where they stand; only scheduled probes have either.
    """

    records: int = 2048
    layout: int = 0
    form: Form = Form.SCHEDULED
    sample: Sampling | None = None
    clocks: Clocks = Clocks.AUTO
    stripes: Stripes = Stripes.AUTO

    def slot(self, once: int) -> SlotLayout:
        """Rings hold at least ``once`` bytes: what all packets of the kernel take if each is emitted once."""
        ring = 1 << (max(QUAD_BYTES * self.records, once) - 1).bit_length()
        return SlotLayout(stride=1 << (ring + RING_SLACK - 1).bit_length(), ring=ring)


@dataclass(slots=True)
class PlacedSite:
    """An island and everything that it needs. Filled in by the planner's passes."""

    site: Site
    id: int | None = None  # of a record; None for entry, exit and helper islands
    capture: int | None = None  # register that takes the clock of a record; None: it has that of a later one
    address: Address | None = None  # of an access: how its address is read
    witness: PlacedSite | None = None  # a record whose access is made by the same lanes, and which tells by which
    after: int = 0  # of an access: cycles until its registers have arrived
    wait_access: int = 0  # of an access: scoreboards to wait for together with the instruction behind the island
    elect: int | None = None  # predicate elected here
    cursor: Cursor | None = None
    uniform_moves: list[tuple[int, int]] = field(default_factory=list)  # (uniform register, value)
    moves: list[tuple[int, int]] = field(default_factory=list)  # (register, value)
    transfers: list[Transfer] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    predicate: int | None = None  # guards the stores; None: every active lane stores
    scoreboard: int | None = None  # None: nothing is stored in this island
    wait_first: int = 0
    wait_last: bool = False
    shared_waits: tuple[tuple[int, int], ...] = ()  # (scoreboard, registers) for which the kernel waits here anyway
    quads: tuple[int, ...] = ()  # exit only: up to two runs of four registers
    pair: int | None = None  # exit only: a pair where there is no run of four
    header: int | None = None  # exit only: a pair for the header's address
    guard: Guard | None = None  # exit only: what it depends on
    scratch: tuple[int, ...] = ()  # entry only
    moved: int = 0  # instructions away from where the selector put it

    @property
    def general(self) -> list[int]:
        """General registers that this island writes."""
        out = [*self.scratch, *(n for quad in self.quads for n in range(quad, quad + 4))]
        out += [n for pair in (self.pair, self.header) if pair is not None for n in (pair, pair + 1)]
        out += [] if self.capture is None else [self.capture]
        out += [] if self.address is None else [self.address.register, self.address.register + 1]
        return out + [r for r, _ in self.moves] + [r for t in self.transfers for r in t.general]

    @property
    def writes(self) -> int:
        """These as a bit set."""
        return sum(1 << n for n in set(self.general))

    @property
    def registers(self) -> list[str]:
        """Names of the registers that the island uses, the storing lane's predicate included."""
        named = {f"P{n}" for n in (self.predicate, self.elect) if n is not None}
        return [*(f"R{n}" for n in dict.fromkeys(self.general)), *sorted(named)]


@dataclass(frozen=True, slots=True)
class RefusedSite:
    site: Site
    reason: str


Holder = tuple[Written, Written | None]  # general registers, as somewhere written: low word, high word


class Part(NamedTuple):
    """``times`` a recorded value: all 64 bits ("pair"), or its low or high word, signed or not."""

    times: int
    value: Holder
    part: str  # "pair", "low" or "high"
    signed: bool


@dataclass(slots=True)
class Derived:
    """An access that is not recorded."""

    site: Site
    leader: int  # access
    offset: int  # that is added to the leader's address, the instruction's own immediate included
    parts: tuple[Part, ...]
    at: int = 0  # instruction before which its registers, and the leader's record, are all there
    id: int | None = None


@dataclass
class Packet:
    """Events that are emitted together, and the islands that make them, in the order of execution."""

    tag: int
    records: list[PlacedSite]
    islands: list[PlacedSite]  # the records' own and helpers, but for those of optional events
    optional: list[PlacedSite]  # records that may be skipped
    gaps: list[int]  # least cycles between the islands
    registers: int = 0  # all general data registers (bit set)
    uncleared: list[PlacedSite] = field(default_factory=list)  # optional; cleared in front of the loop alone
    tag_register: int | None = None  # holds the tag when it is stored; None: one register, stored twice
    tag_island: PlacedSite | None = None  # where the tag may be moved there; None: ahead of the loop
    preset: bool = False  # the prologue moves it there
    parked: tuple[int, ...] = ()  # uniform registers that hold clocks until they are stored
    words: int = 0  # its tag left out
    short: bool = False  # clocks between the first and the last have 16 bits
    pad: int = 0  # bytes in front that make it as large as all others
    wrap: int = 0  # rotated: number of the first island of the loop, those before it belong to the iteration before
    carried: tuple[int, ...] = ()  # rotated: registers of those before it; the prologue clears them
    flush: PlacedSite | None = None  # rotated: stores behind the loop what came after the loop's last store
    ahead: PlacedSite | None = None  # in front of its loop: does what this and other packets of it need only once

    @property
    def size(self) -> int:
        return QUAD_BYTES * quads(self.words) + self.pad

    @property
    def helpers(self) -> list[PlacedSite]:
        """Islands that hold no event."""
        return [p for p in (*self.storing, self.ahead) if p is not None and p.id is None]

    @property
    def everywhere(self) -> list[PlacedSite]:
        """All islands."""
        return [*self.islands, *self.apart]

    @property
    def storing(self) -> list[PlacedSite]:
        """Islands that may store, in the order of execution."""
        return self.islands if self.flush is None else [*self.islands, self.flush]

    @property
    def apart(self) -> list[PlacedSite]:
        """Islands that are scheduled by themselves: optional events, the flush, and the one in front of the loop."""
        return [*self.optional, *(p for p in (self.flush, self.ahead) if p is not None)]

    @property
    def anchors(self) -> list[PlacedSite]:
        """Islands before which every earlier store must have read its registers: here registers or address change."""
        first = self.islands[0]
        return [p for p in (self.ahead, *self.opening, first, self.islands[self.wrap], self.flush) if p]

    @property
    def opening(self) -> list[PlacedSite]:
        """Optional events that come before all islands."""
        first = self.islands[0]
        return [] if first.id is None else list(itertools.takewhile(lambda p: p is not first, self.records))

    def drop_empty(self) -> None:
        """Take out helpers that do nothing."""
        for k in range(len(self.islands) - 1, -1, -1):
            p = self.islands[k]
            if p.site.kind == "record" or p.elect is not None or p.cursor or p.stores:
                continue
            if p.moves or p.uniform_moves or p.transfers:
                continue
            if p is self.tag_island and not self.preset:
                continue  # the tag will be moved here
            del self.islands[k]
            if 0 < k < len(self.gaps):
                self.gaps[k - 1 : k + 1] = [self.gaps[k - 1] + self.gaps[k]]
            elif self.gaps:
                del self.gaps[min(k, len(self.gaps) - 1)]


@dataclass(frozen=True, slots=True)
class SunkPrologue:
    """The prologue but for its reads of the entry times, and where it stands."""

    index: int
    registers: PrologueRegisters
    carried: bool  # the entry times stay in their general registers up to here
    settled: int  # cycles from here to the next island, at least


@dataclass
class KernelPlan:
    """The plan of one kernel; ``state`` is None when the kernel as a whole is refused."""

    analysis: KernelAnalysis
    slot: SlotLayout | None = None
    state: UniformState | None = None
    placed: list[PlacedSite] = field(default_factory=list)
    refused: list[RefusedSite] = field(default_factory=list)
    waits: dict[int, int] = field(default_factory=dict)  # islands that only wait: instruction -> scoreboards
    packets: list[Packet] = field(default_factory=list)
    derived: list[Derived] = field(default_factory=list)
    registers: int = 0
    layout: int = 0
    form: Form = Form.SCHEDULED
    sample: Sampling | None = None
    emits: bool = True  # whether there are packets, and so a ring and a cursor
    sunk: SunkPrologue | None = None  # None: the prologue is whole, at the entry

    @property
    def islands(self) -> list[PlacedSite]:
        """All but those that only wait."""
        return [*self.placed, *(p for packet in self.packets for p in packet.helpers)]

    @property
    def records(self) -> list[PlacedSite]:
        return [x for x in self.placed if x.site.kind == "record"]

    @property
    def shown(self) -> int:
        """Sites that a trace shows, recorded or derived."""
        return sum(p.site.value is None for p in self.placed) + len(self.derived)


@dataclass
class Plan:
    """Plans of all selected kernels of an image."""

    image: Image
    probes: str
    options: Options
    kernels: list[KernelPlan]

    @property
    def placed(self) -> int:
        return sum(k.shown for k in self.kernels)

    @property
    def refused(self) -> int:
        return sum(len(k.refused) for k in self.kernels)
