"""Packets of a loop that go over its back edge.

In a loop that waits for the tensor cores in one place only, that is where stores cost nothing, but most events of an
iteration come behind it. A *rotated* packet begins behind that wait and ends at the one of the next iteration, where
all of it is stored. Its registers are the probe's alone: the prologue clears them, so that the first packet, which
begins with the loop and not behind a wait, shows the events before as not happened; behind the loop an island stores
what came after the last wait, with the other clocks cleared (the *flush*).
"""

from __future__ import annotations

from dataclasses import dataclass

from xtrace.analysis import KernelAnalysis
from xtrace.analysis.loops import Loop
from xtrace.isa.model import Flow
from xtrace.isa.nvidia.emit import Cursor, Store
from xtrace.probe import Site

from .chains import Chain, cycles_of, interferes, reached
from .line import PREPARATION, predicate_bit
from .model import QUAD_BYTES, Packet, PlacedSite, lead, quads
from .resources import FreeFinder

__all__ = ["rotated_packet"]

_ALL = 15


@dataclass(frozen=True, slots=True)
class _Turn:
    """The order of a rotated chain: ``places`` and least ``gaps`` between them; ``wrap`` is the loop's first."""

    places: list[int]
    gaps: list[int]
    wrap: int


def rotated_packet(
    a: KernelAnalysis, chain: Chain, free: FreeFinder, islands: set[int], reserved: int
) -> Packet | None:
    """The whole chain as a packet that is stored at the loop's wait for the tensor cores; None if that cannot be.

    Parameters
    ----------
    islands
        Instructions at which an island stands; gains the flush.
    reserved
        Registers that other probe code writes.
    """
    loop = a.loop_of(chain.places[0])
    if loop is None or loop.depth != 1 or a.moves_registers or len(chain.places) != len(chain.events):
        return None
    if any(e.optional or e.record.site.access is not None for e in chain.events):
        return None
    waits = [k for k, e in enumerate(chain.events) if e.record.site.phase == "matrix wait"]
    if len(waits) != 1 or waits[0] == len(chain.events) - 1:
        return None
    turn = _turn(a, chain, loop, waits[0], islands)
    flush = _flush_place(a, loop, islands)
    if turn is None or flush is None:
        return None
    needed = quads(len(chain.events))
    own = free.at(turn.places[0]).unnamed & ((1 << max(free.limit(0), 0)) - 1) & ~reserved
    runs = [d for d in range(0, own.bit_length(), 4) if own >> d & _ALL == _ALL][:needed]
    behind, election = free.at(flush), _election(a, free, chain, waits[0])
    if not free.at(turn.places[-1]).scoreboards or not behind.scoreboards or not behind.predicates:
        return None
    if len(runs) < needed or election is None:
        return None
    islands.add(flush)
    lane = behind.predicates[0]
    last = PlacedSite(Site(flush, "matrix wait", "commit"), elect=lane, predicate=lane)
    return _build(chain, turn, runs, election, last)


def _turn(a: KernelAnalysis, chain: Chain, loop: Loop, wait: int, islands: set[int]) -> _Turn | None:
    blocks, block_of = a.cfg.blocks, a.cfg.block_of
    head = blocks[loop.head]
    inside = [i for n in loop.blocks for i in blocks[n].indices]
    latches = [n for n in head.predecessors if n in loop.blocks]
    if any(i in islands and i not in chain.places for i in inside) or latches != [block_of[chain.places[-1]]]:
        return None
    if block_of[chain.places[0]] != loop.head or any(_disturbs(a, i) for i in inside):
        return None
    last, first = chain.places[-1], chain.places[0]
    cycles = [gap.cycles for gap in chain.gaps]
    over = cycles_of(a, range(last, blocks[latches[0]].last + 1)) + cycles_of(a, range(head.first, first))
    places = chain.places[wait + 1 :] + chain.places[: wait + 1]
    return _Turn(places, [*cycles[wait + 1 :], over, *cycles[:wait]], len(chain.places) - wait - 1)


def _disturbs(a: KernelAnalysis, i: int) -> bool:
    return interferes(a, i) or a.instructions[i].flow is Flow.EXIT or a.divergent[i]


def _flush_place(a: KernelAnalysis, loop: Loop, islands: set[int]) -> int | None:
    """Where all ways out of the loop meet first, before any other event; behind it the loop never comes again."""
    out = {s for n in loop.blocks for s in a.cfg.blocks[n].successors if s not in loop.blocks}
    if len(out) != 1:
        return None
    block = a.cfg.blocks[out.pop()]
    if block.first in islands or a.divergent[block.first]:
        return None
    again = reached(a, block.number)  # cycles that are no natural loops included: registers are cleared only once
    return None if block.number in again or loop.head in again else block.first


def _election(a: KernelAnalysis, free: FreeFinder, chain: Chain, wait: int) -> tuple[int, int] | None:
    """Place of the chain and predicate for electing the storing lane: in the same iteration as the store."""
    best: tuple[int, int] | None = None
    touched = cycles = 0
    for k in range(wait, -1, -1):
        usable = [p for p in free.at(chain.places[k]).predicates if not predicate_bit(a, p) & touched]
        if usable:
            best = k, usable[0]
            if cycles >= PREPARATION:
                break
        if k:
            touched, cycles = touched | chain.gaps[k - 1].touched, cycles + chain.gaps[k - 1].cycles
    return best


def _build(chain: Chain, turn: _Turn, runs: list[int], election: tuple[int, int], flush: PlacedSite) -> Packet:
    count = len(chain.events)
    by_index = {e.record.site.index: e.record for e in chain.events}
    records = [by_index[i] for i in turn.places]
    register = [d + k for d in runs for k in range(4)]
    skip = lead(count)
    for k, record in enumerate(records):
        record.capture = register[skip + k]
    stores = [Store(d, QUAD_BYTES * n, 4) for n, d in enumerate(runs)]
    at, predicate = election
    packet = Packet(0, records, list(records), [], list(turn.gaps), words=count)
    packet.registers = sum(_ALL << d for d in runs)
    packet.tag_register = register[skip + count]
    packet.tag_island = records[-1]
    packet.wrap = turn.wrap
    packet.carried = tuple(register[skip : skip + turn.wrap])
    prepares = records[turn.wrap + at]
    prepares.elect, prepares.cursor = predicate, Cursor(packet.size, count)
    records[-1].stores, records[-1].predicate = list(stores), predicate
    # The header has counted these events with the packets of the loop, the first of which had fewer.
    flush.cursor = Cursor(packet.size, 0)
    flush.moves = [(n, 0) for n in register[skip + turn.wrap : skip + count]]
    flush.stores = list(stores)
    packet.flush = flush
    return packet
