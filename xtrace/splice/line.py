"""The places of one chain, and places in front of and behind it that the kernel leaves free.

Everything that packets are planned with: what is touched between two places, how long it takes, which predicates last.
"""

from __future__ import annotations

from collections.abc import Iterator

from xtrace.analysis import KernelAnalysis

from .accesses import source_bits
from .chains import Between, Chain, alone, interferes
from .deferral import leaves_work, wait_place
from .model import Form
from .resources import FreeFinder

__all__ = ["COMMIT_AFTER", "PREPARATION", "End", "Line", "predicate_bit"]

COMMIT_AFTER = 8  # cycles from the capture of a clock, or a move, to its store
PREPARATION = 13  # cycles from electing a lane or moving the cursor to a store
_COMMIT_WITHIN = 64
_WORTH_PREPARING = 4
_COMMIT = 8  # cycles that a store waits for a clock captured just before
_ALL_LANES = 64  # cycles that 16-byte stores of all lanes cost (MoE kernel on an H200), also where the kernel waits
_BEHIND_ACCESS = 3  # cycles that a store may wait for each access of the kernel just before
_PIPE = 16  # instructions
_PUT_OFF = 32  # cycles
_AT_ONCE = 16  # cycles that a store of addresses, amid copies, may cost if it must be waited for at once
_ACCESSES = frozenset({"copy_async", "global_load", "shared_load", "shared_store", "memory"})

End = list[tuple[int, Between]]  # places behind a chain, each with what stands between it and the one before


class Line:
    """The places of a chain, and perhaps some behind them where the last record can be stored."""

    def __init__(
        self,
        a: KernelAnalysis,
        chain: Chain,
        free: FreeFinder,
        islands: set[int],
        claimed: int,
        form: Form = Form.SCHEDULED,
    ) -> None:
        self.a, self.free, self.chain, self.taken, self.claimed, self.form = a, free, chain, islands, claimed, form
        self.count = len(chain.places)
        self.named = -1 if a.moves_registers else a.named
        self.places = list(chain.places)
        self.gaps = list(chain.gaps)
        self.helpers = form is Form.SCHEDULED and not alone(a, chain.events[0].record)
        # One lane is alone on the whole line: nothing to elect. An address needs an election, as a proof of its lane.
        self.sole = a.sole[chain.places[0]] and not any(p.site.wide for p in chain.sites)
        self.parked: tuple[int, ...] = ()  # uniform registers of the events, if their clocks are parked
        self.near = self.end = self._commit_place() if self.helpers else []
        self.waits = {e.place for e in chain.events if not e.optional and e.record.site.phase.endswith(" wait")}
        self.idle = {
            e.place
            for e in chain.events
            if not e.optional
            and e.record.site.phase == "matrix wait"
            and not leaves_work(a.instructions[chain.places[e.place]].tags)
        }
        self.served_from: int | None = None
        self._late: dict[int, bool] = {}
        self.words = chain.words
        self.sources = 0  # registers that islands read addresses from
        for record in chain.sites:
            self.sources |= source_bits(a, record.site)
        self.end_at(self.end)

    def end_at(self, end: End) -> None:
        """Choose the places behind the last one of the chain."""
        del self.places[self.count :], self.gaps[self.count - 1 :]
        self.end = end
        self.places += [index for index, _ in end]
        self.gaps += [gap for _, gap in end]
        self.served_from = self._served_from()

    def touched(self, first: int, last: int) -> int:
        """Registers that kernel instructions touch from place ``first`` to place ``last``."""
        bits = 0
        for gap in self.gaps[first:last]:
            bits |= gap.touched
        return bits

    def owned(self, first: int, last: int) -> int:
        """Registers that no event from place ``first`` to place ``last`` may write: a fence in between may have given
        them to a matrix instruction that comes later.
        """
        bits = 0
        for event in self.chain.events:
            if first <= event.place <= last:
                bits |= self.free.busy(event.record.site.index)
        return bits

    def lasts(self, place: int, data: int, unit: int) -> int:
        """Number of the place up to which the kernel leaves registers alone."""
        for k in range(place, len(self.gaps)):
            if self.gaps[k].touched & unit << data:
                return k
        return len(self.gaps)

    def cycles(self, first: int, last: int) -> int:
        return sum(gap.cycles for gap in self.gaps[first:last])

    def lasting(self, first: int, last: int) -> list[int]:
        """Predicates that are free at place ``first`` and that the kernel leaves alone up to place ``last``."""
        touched = self.touched(first, last) | self.sources
        return [p for p in self.free.at(self.places[first]).predicates if not predicate_bit(self.a, p) & touched]

    def stores_at(self, place: int) -> bool:
        """Whether a packet may be stored here: all lanes read the same clock, but each has an address of its own."""
        if not self.free.at(self.places[place]).scoreboards:
            return False
        return not self.words.addresses or bool(self.lasting(place, place))

    def waits_later(self, place: int) -> bool:
        """Whether the wait for a store here can be put off well behind it."""
        index = self.places[place]
        if index not in self._late:
            ways = (wait_place(self.a, index, k, 0, frozenset()) for k in self.free.at(index).scoreboards)
            self._late[index] = any(way is not None and way[1] >= _PUT_OFF for way in ways)
        return self._late[index]

    def _served_from(self) -> int | None:
        """First place from which on one election serves all stores; None where there is none."""
        last = len(self.places) - 1
        if self.sole:
            return 0
        for k in range(last + 1):
            if self.lasting(k, last):
                return next((n for n in range(k, last + 1) if self.cycles(k, n) >= PREPARATION - 1), None)
        return None

    def store_cost(self, place: int, ready: int | None) -> int:
        """Cycles that a store at ``place`` is expected to cost the kernel. ``ready``: where its last clock is captured.

        A warp that is about to wait until the tensor cores are done has the time. Elsewhere a store waits for its
        clock, for the memory pipe behind the kernel's own accesses, and for a lane to be elected.
        """
        if place in self.idle:
            return 0 if self._served(place) or self.lasting(place, place) else _ALL_LANES
        cost = _COMMIT if place == ready else 0
        cost += _AT_ONCE if self.words.addresses and not self.waits_later(place) else 0
        cost += _BEHIND_ACCESS * self.accesses_before(self.places[place])
        if self._served(place):
            return cost + 1
        return cost + (PREPARATION if self.lasting(place, place) else _ALL_LANES)

    def _served(self, place: int) -> bool:
        """Whether a lane can be elected early enough at an island of the chain, or need not be."""
        if self.sole:
            return True
        early = (k for k in range(place) if self.cycles(k, place) >= PREPARATION - 1)
        return any(self.lasting(k, place) for k in early)

    def accesses_before(self, index: int) -> int:
        first = max(self.a.cfg.blocks[self.a.cfg.block_of[index]].first, index - _PIPE)
        return sum(bool(self.a.instructions[i].tags & _ACCESSES) for i in range(first, index))

    def _commit_place(self) -> End:
        """A place behind the last record, in its block, where the clock value has arrived."""
        a, start, touched, cycles = self.a, self.places[-1], 0, 0
        for i in range(start, a.cfg.blocks[a.cfg.block_of[start]].last):
            ins = a.instructions[i]
            if interferes(a, i) or i + 1 in self.taken:
                break
            touched |= ins.reads | ins.writes
            cycles += a.issue_cycles[i]
            if cycles >= _COMMIT_WITHIN:
                break
            if cycles >= COMMIT_AFTER:
                return [(i + 1, Between(touched, cycles))]
        return []

    def late_ends(self) -> Iterator[End]:
        """Two places behind the last record, in its block: where a lane can be elected, and where it can store."""
        a, start, before = self.a, self.chain.places[-1], 0
        since: dict[int, tuple[int, int, int, int]] = {}  # predicate: place, touched up to it, touched and cycles since
        cycles = 0
        for i in range(start, a.cfg.blocks[a.cfg.block_of[start]].last):
            ins = a.instructions[i]
            if interferes(a, i) or i + 1 in self.taken:
                return
            step = a.issue_cycles[i]
            before, cycles = before | ins.reads | ins.writes, cycles + step
            usable = set(self.free.at(i + 1).predicates)
            since = {
                p: (at, low, touched | ins.reads | ins.writes, passed + step)
                for p, (at, low, touched, passed) in since.items()
                if p in usable and not predicate_bit(a, p) & (ins.reads | ins.writes)
            }
            for p, (at, low, touched, passed) in since.items():
                if passed >= PREPARATION and self.free.at(i + 1).scoreboards:
                    yield [(at, Between(low, cycles - passed)), (i + 1, Between(touched, passed))]
                    del since[p]
                    break
            for p in usable - set(since):
                since[p] = i + 1, before, 0, 0

    def late_places(self) -> Iterator[End]:
        """Further places behind the last record, in its block, where a predicate and registers are free."""
        a, start, touched, cycles = self.a, self.chain.places[-1], 0, 0
        for i in range(start, a.cfg.blocks[a.cfg.block_of[start]].last):
            ins = a.instructions[i]
            if interferes(a, i) or i + 1 in self.taken:
                return
            touched |= ins.reads | ins.writes
            cycles += a.issue_cycles[i]
            here = self.free.at(i + 1)
            if cycles >= COMMIT_AFTER and here.predicates and here.scoreboards and any(True for _ in here.groups(2)):
                yield [(i + 1, Between(touched, cycles))]

    def prepare_place(self, until: int) -> tuple[int, Between, int] | None:
        """A place in front of the first one, what stands between, and a predicate that lasts to place ``until``."""
        a, start, touched, cycles = self.a, self.places[0], 0, 0
        best: tuple[int, Between, int] | None = None
        later = self.touched(0, until)
        for i in range(start - 1, a.cfg.blocks[a.cfg.block_of[start]].first - 1, -1):
            if interferes(a, i) or i in self.taken or i == 0 or a.divergent[i]:
                break
            ins = a.instructions[i]
            touched |= ins.reads | ins.writes
            cycles += a.issue_cycles[i]
            usable = [
                p for p in self.free.at(i).predicates if not predicate_bit(a, p) & (touched | later | self.sources)
            ]
            if not usable:
                break
            best = i, Between(touched, cycles), usable[0]
            if cycles >= PREPARATION:
                break
        return best if best is not None and best[1].cycles >= _WORTH_PREPARING else None


def predicate_bit(a: KernelAnalysis, number: int) -> int:
    return a.isa.layout["P"].bit(number)
