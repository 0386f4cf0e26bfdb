"""Packets of a loop that go over its back edge.

In a loop that waits for the tensor cores in one place only, that is where stores cost nothing, but most events of an
iteration come behind it. A *rotated* packet begins behind that wait and ends at the one of the next iteration, where
all of it is stored. Its registers are the probe's alone: the prologue clears them, so that the first packet, which
begins with the loop and not behind a wait, shows the events before as not happened; behind the loop an island stores
what came after the last wait, with the other clocks cleared (the *flush*).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from xtrace.analysis import KernelAnalysis
from xtrace.analysis.loops import Loop
from xtrace.isa.nvidia.emit import Cursor, Store
from xtrace.probe import Site

from .accesses import address, same_condition
from .chains import Chain, Event, between, cycles_of, disturbs, reached
from .deferral import leaves_work
from .line import PREPARATION, predicate_bit
from .model import MAX_WORDS, QUAD_BYTES, Packet, PlacedSite, quads
from .resources import FreeFinder
from .words import Words

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
    if any(e.optional or e.record.site.value is not None for e in chain.events):
        return None
    waits = [k for k, e in enumerate(chain.events) if e.record.site.phase == "matrix wait"]
    found = _at_wait(a, chain, loop, islands) if not waits else (chain, waits[0]) if len(waits) == 1 else None
    if found is None or found[1] == len(found[0].places) - 1:
        return None
    chain, wait = found
    if leaves_work(a.instructions[chain.places[wait]].tags):
        return None  # stores read late: the GEMM's addresses cost 4.2 % on an H200 so, 1.9 to 3.6 amid its copies
    turn = _turn(a, chain, loop, wait, islands)
    flush = _flush_place(a, loop, islands)
    if turn is None or flush is None:
        return None
    held = _words(chain, turn)
    if held.count > MAX_WORDS or quads(held.count) > len(chain.events):
        return None
    needed = quads(held.count)
    own = free.at(turn.places[0]).unnamed & ((1 << max(free.limit(0), 0)) - 1) & ~reserved
    runs = [d for d in range(0, own.bit_length(), 4) if own >> d & _ALL == _ALL][:needed]
    behind, election = free.at(flush), _election(a, free, chain, wait)
    if not free.at(turn.places[-1]).scoreboards or not behind.scoreboards or not behind.predicates:
        return None
    if len(runs) < needed or election is None:
        return None
    islands |= {flush, *chain.places}
    lane = behind.predicates[0]
    last = PlacedSite(Site(flush, "matrix wait", "commit"), elect=lane, predicate=lane)
    return _build(a, chain, turn, runs, election, last)


def _at_wait(a: KernelAnalysis, chain: Chain, loop: Loop, islands: set[int]) -> tuple[Chain, int] | None:
    """A chain without a wait for the tensor cores of its own, with a place at the loop's, and the number of that."""
    if not any(e.record.site.wide for e in chain.events):
        return None  # nothing to be gained: its stores do not stand amid copies
    inside = (i for n in loop.blocks for i in a.cfg.blocks[n].indices)
    waits = [i for i in inside if "matrix_wait" in a.instructions[i].tags]
    if len(waits) != 1 or waits[0] in islands:
        return None
    number = sum(place < waits[0] for place in chain.places)
    places = [*chain.places[:number], waits[0], *chain.places[number:]]
    gaps = [between(a, p, q, islands) for p, q in pairwise(places)]
    events = [Event(e.record, e.place + (e.place >= number)) for e in chain.events]
    known = [gap for gap in gaps if gap is not None]
    return (Chain(places, known, events), number) if len(known) == len(gaps) else None


def _records(chain: Chain, turn: _Turn) -> list[PlacedSite]:
    """Records in the order in which a rotated packet has them."""
    by_index = {e.record.site.index: e.record for e in chain.events}
    return [by_index[i] for i in turn.places if i in by_index]


def _words(chain: Chain, turn: _Turn) -> Words:
    """Every event has a clock of its own."""
    records = _records(chain, turn)
    return Words(tuple(k for k, p in enumerate(records) if p.site.wide), tuple(range(len(records))))


def _turn(a: KernelAnalysis, chain: Chain, loop: Loop, wait: int, islands: set[int]) -> _Turn | None:
    blocks, block_of = a.cfg.blocks, a.cfg.block_of
    head = blocks[loop.head]
    inside = [i for n in loop.blocks for i in blocks[n].indices]
    latches = [n for n in head.predecessors if n in loop.blocks]
    if any(i in islands and i not in chain.places for i in inside) or latches != [block_of[chain.places[-1]]]:
        return None
    if block_of[chain.places[0]] != loop.head or any(disturbs(a, i) for i in inside):
        return None
    last, first = chain.places[-1], chain.places[0]
    cycles = [gap.cycles for gap in chain.gaps]
    over = cycles_of(a, range(last, blocks[latches[0]].last + 1)) + cycles_of(a, range(head.first, first))
    places = chain.places[wait + 1 :] + chain.places[: wait + 1]
    return _Turn(places, [*cycles[wait + 1 :], over, *cycles[:wait]], len(chain.places) - wait - 1)


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


def _build(
    a: KernelAnalysis,
    chain: Chain,
    turn: _Turn,
    runs: list[int],
    election: tuple[int, int],
    flush: PlacedSite,
) -> Packet:
    records, words = _records(chain, turn), _words(chain, turn)
    register = [d + k for d in runs for k in range(4)]
    by_index = {p.site.index: p for p in records}
    islands = [by_index.get(i) or PlacedSite(Site(i, "matrix wait", "prepare")) for i in turn.places]
    before = [p for p in records if p in islands[: turn.wrap]]  # of the iteration before
    clocks, addresses = [], []
    for k, record in enumerate(records):
        clock, low = words.clock(k), words.address(k)
        assert clock is not None
        record.capture = register[clock]
        clocks.append(register[clock])
        if low is not None:
            same_side = before if record in before else records[len(before) :]
            _read(a, record, register[low], same_side[: same_side.index(record)])
            addresses += [register[low], register[low] + 1]
    stores = [Store(d, QUAD_BYTES * n, 4) for n, d in enumerate(runs)]
    at, predicate = election
    packet = Packet(0, records, islands, [], list(turn.gaps), words=words.count)
    packet.registers = sum(_ALL << d for d in runs)
    packet.tag_register = register[words.tag]
    packet.tag_island = islands[-1]
    packet.wrap = turn.wrap
    packet.carried = (*clocks[: len(before)], *addresses)
    prepares = islands[turn.wrap + at]
    prepares.elect, prepares.cursor = predicate, Cursor(packet.size, len(records))
    islands[-1].stores, islands[-1].predicate = list(stores), predicate
    # The header has counted these events with the packets of the loop, the first of which had fewer.
    flush.cursor = Cursor(packet.size, 0)
    flush.moves = [(n, 0) for n in clocks[len(before) :]]
    flush.stores = list(stores)
    packet.flush = flush
    return packet


def _read(a: KernelAnalysis, p: PlacedSite, register: int, earlier: list[PlacedSite]) -> None:
    """Read an address; an access of the same iteration before may tell whether it is made."""
    telling = (w for w in earlier if w.address and w.address.conditions and same_condition(a, w.site, p.site))
    p.witness = next(telling, None)
    p.address = address(a, p, register, certain=p.witness is not None)
