"""What a plan says: options, placed and refused sites, per kernel."""

from __future__ import annotations

from dataclasses import dataclass, field

from xtrace.analysis import KernelAnalysis
from xtrace.image import Image
from xtrace.isa.nvidia.emit import SlotLayout, Store, UniformState
from xtrace.probe import Site

__all__ = ["KernelPlan", "Options", "PlacedSite", "Plan", "RefusedSite", "SlotLayout", "UniformState"]

RECORD_BYTES = 8  # clock, site id
RING_SLACK = 512  # bytes behind the ring: room for the last group of a lap


@dataclass(frozen=True, slots=True)
class Options:
    """Choices of the user.

    ``records`` is the number of 8-byte records that the ring of each warp holds, a power of two.
    """

    records: int = 4096

    @property
    def slot(self) -> SlotLayout:
        ring = RECORD_BYTES * self.records
        return SlotLayout(stride=1 << (ring + RING_SLACK - 1).bit_length(), ring=ring)


@dataclass(slots=True)
class PlacedSite:
    """A site with everything its island needs. Filled in by the planner's passes."""

    site: Site
    id: int | None  # record id; None for entry and exit
    data: int = 0  # first data register
    quads: tuple[int, ...] = ()  # exit only: up to two runs of four registers
    predicate: int | None = 0  # None: every active lane stores
    scoreboard: int | None = 0  # None: nothing is stored in this island
    stores: list[Store] = field(default_factory=list)  # records that go to memory in this island
    slot_in_group: int = 0
    group_size: int | None = 1
    elect: bool = True
    wait_first: int = 0
    wait_last: bool = True
    split: bool = False  # a single data register
    preset: bool = False  # the id register is this site's alone: it is filled in the prologue
    scratch: tuple[int, ...] = ()  # entry only
    moved: int = 0  # instructions away from where the selector put it

    @property
    def general(self) -> list[int]:
        """General registers that this site's own island writes."""
        if self.site.kind == "entry":
            return list(self.scratch)
        if self.quads:
            return [n for quad in self.quads for n in range(quad, quad + 4)]
        return [self.data] if self.split else [self.data, self.data + 1]

    @property
    def registers(self) -> list[str]:
        """Names of the registers the island writes, general ones and the elected lane's predicate."""
        return [*(f"R{n}" for n in self.general), *([] if self.predicate is None else [f"P{self.predicate}"])]


@dataclass(frozen=True, slots=True)
class RefusedSite:
    site: Site
    reason: str


@dataclass
class KernelPlan:
    """The plan of one kernel; ``state`` is None when the kernel as a whole is refused."""

    analysis: KernelAnalysis
    slot: SlotLayout
    state: UniformState | None = None
    placed: list[PlacedSite] = field(default_factory=list)
    refused: list[RefusedSite] = field(default_factory=list)
    waits: dict[int, int] = field(default_factory=dict)  # islands that only wait: instruction -> scoreboards
    sequences: list[list[PlacedSite]] = field(default_factory=list)  # islands of each record group, helpers included
    registers: int = 0

    @property
    def records(self) -> list[PlacedSite]:
        return [x for x in self.placed if x.site.kind == "record"]


@dataclass
class Plan:
    """Plans of all selected kernels of an image."""

    image: Image
    probes: str
    options: Options
    kernels: list[KernelPlan]

    @property
    def placed(self) -> int:
        return sum(len(k.placed) for k in self.kernels)

    @property
    def refused(self) -> int:
        return sum(len(k.refused) for k in self.kernels)
