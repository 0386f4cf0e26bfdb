"""What the packets of a loop need only once, in an island in front of it: their tags, the lane that stores them, and
zeros in the registers of optional events.

Inside the loop the kernel and all other probes must leave the tag's register and the lane's predicate alone, and the
same lanes must run all of it. Each word that leaves the main loop of FlashAttention-3 is worth 0.1 % of its time.

The register of an optional event that is cleared here alone, and written by nothing but its own capture, keeps the
clock of an earlier iteration where the event does not happen. Readers tell such a clock by its age (see
:mod:`xtrace.trace.stale`); the map says for which events.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from xtrace.analysis import KernelAnalysis
from xtrace.analysis.loops import Loop
from xtrace.probe import Site

from .chains import disturbs, touched
from .line import predicate_bit
from .model import KernelPlan, Packet, PlacedSite
from .resources import FreeFinder

__all__ = ["place_ahead"]


@dataclass(frozen=True, slots=True)
class _Entrance:
    """The instruction in front of a loop before which an island may stand, and what the kernel touches behind it, up to
    the end of the loop."""

    index: int
    touched: int


def place_ahead(result: KernelPlan, free: FreeFinder) -> None:
    """Give loops an island in front of them, and take out of their packets what it does for them. Inner loops first."""
    a = result.analysis
    for loop in sorted(a.loops, key=lambda loop: -loop.depth):
        own = [k for k in result.packets if a.loop_of(k.records[0].site.index) == loop]
        if not own or (entrance := _entrance(result, loop)) is None:
            continue
        near = [k for k in result.packets if _works_in(a, k, loop.blocks) or _holds(a, k, entrance.index)]
        island = PlacedSite(Site(entrance.index, own[0].records[0].site.phase, "prepare"))
        here = free.at(entrance.index)
        _tags(island, set(here.groups(1)), entrance.touched, own, near)
        _clears(island, set(here.groups(1)), entrance.touched, own, near)
        _lane(a, island, here.predicates, entrance.touched, own, near)
        if island.moves or island.elect is not None:
            own[0].ahead = island
            for packet in own:
                packet.drop_empty()


def _entrance(result: KernelPlan, loop: Loop) -> _Entrance | None:
    """None if the warp's lanes may part in the loop, or come to it in several ways."""
    a, blocks = result.analysis, result.analysis.cfg.blocks
    entering = [n for n in blocks[loop.head].predecessors if n not in loop.blocks]
    inside = [i for n in loop.blocks for i in blocks[n].indices]
    if len(entering) != 1 or any(disturbs(a, i) for i in inside):
        return None
    index = blocks[entering[0]].last
    if disturbs(a, index) or not index or any(p.site.index == index for p in result.islands):
        return None
    return _Entrance(index, touched(a, (index, *inside)))


def _works_in(a: KernelAnalysis, packet: Packet, blocks: Set[int]) -> bool:
    return any(a.cfg.block_of[p.site.index] in blocks for p in packet.everywhere)


def _holds(a: KernelAnalysis, packet: Packet, index: int) -> bool:
    """Whether a packet may need registers or a lane both before and behind an instruction where it has no island."""
    loop = a.loop_of(packet.records[0].site.index)
    if (packet.ahead or packet.flush) and loop and a.cfg.block_of[index] in loop.blocks:
        return True
    seen, stack, last = set(), [packet.islands[0].site.index], packet.islands[-1].site.index
    while stack:
        i = stack.pop()
        if i == index:
            return True
        if i != last and i not in seen:
            seen.add(i)
            stack += a.cfg.successors[i]
    return False


def _tags(island: PlacedSite, dead: Set[int], busy: int, own: Sequence[Packet], near: Sequence[Packet]) -> None:
    for packet in own:
        r = packet.tag_register
        if r is None or r not in dead or busy >> r & 1 or packet.preset or packet.tag_island is None:
            continue
        shared = any(k.registers >> r & 1 for k in near if k is not packet)
        if not shared and not any(r in p.general for p in packet.everywhere):
            island.moves.append((r, packet.tag))
            packet.tag_island = None


def _clears(island: PlacedSite, dead: Set[int], busy: int, own: Sequence[Packet], near: Sequence[Packet]) -> None:
    for packet in own:
        for event in packet.optional:
            r = event.capture
            if r is None or event.transfers or r not in dead or busy >> r & 1:
                continue
            if any(k.registers >> r & 1 for k in near if k is not packet):
                continue
            clearing = [p for p in packet.islands if (r, 0) in p.moves]
            if [p for p in packet.everywhere if _writes(p, r)] != [*clearing, event] or len(clearing) != 1:
                continue
            clearing[0].moves.remove((r, 0))
            island.moves.append((r, 0))
            packet.uncleared.append(event)


def _writes(p: PlacedSite, register: int) -> bool:
    filled = (s for s in p.stores if s.fill is not None)
    return register in p.general or any(s.data <= register < s.data + s.words for s in filled)


def _lane(
    a: KernelAnalysis,
    island: PlacedSite,
    dead: Sequence[int],
    busy: int,
    own: Sequence[Packet],
    near: Sequence[Packet],
) -> None:
    """One election for all packets of the loop that need one; those of other loops have their own."""
    used = {n for k in near if k not in own for p in k.everywhere for n in (p.elect, p.predicate)}
    lane = next((n for n in dead if not predicate_bit(a, n) & busy and n not in used), None)
    electing = [k for k in own if any(p.elect is not None for p in k.islands)]
    if lane is None or not electing:
        return
    island.elect = lane
    for packet in electing:
        for p in packet.islands:
            p.elect = None
            if p.stores:
                p.predicate = lane
