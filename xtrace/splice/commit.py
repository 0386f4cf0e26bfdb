"""When and how captured records go to memory.

Where registers allow, a record is stored in the island of the next record of its group, or in one of its own a few
instructions on, when the clock value has long arrived. The wait for a store is left to the next islands wherever
nothing can notice.
"""

from __future__ import annotations

from typing import NamedTuple

from xtrace.analysis import KernelAnalysis
from xtrace.isa.nvidia.emit import Store
from xtrace.probe import Site

from .deferral import next_islands, wait_place
from .groups import groups, prepared, share_elected_lane, untouched
from .model import KernelPlan, PlacedSite
from .resources import FreeFinder

__all__ = ["commit_records"]

_COMMIT_AFTER = 8  # cycles from the capture of a clock to its store
_COMMIT_WITHIN = 64
_WORTH_A_WAIT = 8  # cycles that a wait must be put off to be worth an instruction of its own
_CANDIDATES = 12  # register pairs tried per scoreboard: bounds the time per site


def commit_records(plan: KernelPlan, free: FreeFinder) -> None:
    """Fill in group positions, lanes, stores, scoreboards and waits of every placed record and exit."""
    a = plan.analysis
    by_index = {p.site.index: p for p in plan.placed if p.site.kind != "entry"}
    plan.sequences = [prepared(a, group, free, by_index) for group in groups(plan)]
    exits = {p.site.index for p in plan.placed if p.site.kind == "exit"}
    anchors = {sequence[0].site.index for sequence in plan.sequences} | exits
    islands = {p.site.index for sequence in plan.sequences for p in sequence} | exits
    committer = _Committer(a, free, islands, frozenset(anchors))
    # Inner loops choose first: a register pair that is one site's alone keeps its site id for the whole kernel.
    for sequence in sorted(plan.sequences, key=lambda s: -_depth(a, s)):
        share_elected_lane(a, sequence, free)
        committer.group(sequence)
    for p in plan.placed:
        if p.site.kind == "exit" and p.wait_last:
            committer.exit(p)
    by_index |= {p.site.index: p for sequence in plan.sequences for p in sequence if p.site.index}
    for index, mask in committer.waits.items():
        if index in by_index:
            by_index[index].wait_first = mask
        else:
            plan.waits[index] = mask
    _preset_ids(plan)


def _depth(a: KernelAnalysis, group: list[PlacedSite]) -> int:
    loop = a.loop_of(group[0].site.index)
    return 0 if loop is None else loop.depth


def _preset_ids(plan: KernelPlan) -> None:
    """Move ``MOV id`` out of loops, into the prologue, where nothing else ever writes the register.

    Not where warp roles trade registers: those of a role do not exist yet in the prologue.
    """
    a = plan.analysis
    if a.moves_registers:
        return
    users: dict[int, int] = {}
    for p in plan.placed:
        ends = p.site.kind == "exit" and not a.instructions[p.site.index].guard
        if p.site.kind != "entry" and not ends:
            for register in p.general:
                users[register] = users.get(register, 0) + 1
    for p in plan.records:
        named = a.named >> (p.data + 1) & 1
        if not p.split and not named and users[p.data + 1] == 1 and _depth(a, [p]) > 0:
            p.preset = True


class _UnderWay(NamedTuple):
    island: int  # where the store issues
    registers: int
    scoreboard: int
    targets: frozenset[int]  # islands that wait for it


class _Committer:
    """Chooses data registers, scoreboards and waits, group by group.

    ``anchors`` are the islands that wait for every store that may still be under way when control reaches them: the
    first of each group, because it moves the address that stores read, and the exits. Other islands wait only
    where a store's registers are needed again or its wait cannot be deferred up to the next anchors.
    """

    def __init__(self, a: KernelAnalysis, free: FreeFinder, islands: set[int], anchors: frozenset[int]) -> None:
        self._a = a
        self._free = free
        self._islands = islands
        self._anchors = anchors
        self._under_way: list[_UnderWay] = []  # stores of this group not waited for yet
        self._taken = 0  # never-named registers that a site in a loop uses
        self.waits: dict[int, int] = dict.fromkeys(islands, 0)

    def group(self, group: list[PlacedSite]) -> None:
        self._under_way = []
        for n, p in enumerate(list(group)):
            if p.site.kind == "prepare":
                continue
            later = group[n + 1] if n + 1 < len(group) else None
            # What this island waits for anyway is no longer under way behind it.
            self._under_way = [x for x in self._under_way if not self._waited_for(x, p.site.index)]
            whole = p.site.index == 0 or self._a.divergent[p.site.index]  # done within its island: see groups()
            commit = self._commit_site(p) if later is None and not p.split and not whole else None
            if commit is not None and self._late(p, commit):
                group.append(commit)
                self._islands.add(commit.site.index)
                continue
            if later is None or p.split or not self._late(p, later):
                self._here(p)

    def _commit_site(self, p: PlacedSite) -> PlacedSite | None:
        """A place later in the block where the record can be stored without waiting for its clock value."""
        a, cycles = self._a, 0
        guard = 0 if p.predicate is None else a.isa.layout["P"].bit(p.predicate)
        for i in range(p.site.index, a.cfg.blocks[a.cfg.block_of[p.site.index]].last):
            ins = a.instructions[i]
            if (ins.reads | ins.writes) & guard or "converge" in ins.tags or ins.opaque or i + 1 in self._islands:
                return None
            cycles += max(ins.control.stall, 1)
            if cycles >= _COMMIT_WITHIN:
                return None
            if cycles >= _COMMIT_AFTER:
                site = Site(i + 1, p.site.phase, "commit")
                return PlacedSite(
                    site, None, predicate=p.predicate, elect=False, group_size=None, scoreboard=None, wait_last=False
                )
        return None

    def _waited_for(self, store: _UnderWay, index: int) -> bool:
        """Whether control that comes from the store's island has passed a wait for it before or at ``index``."""
        block = self._a.cfg.block_of
        return any(store.island < t <= index and block[t] == block[index] for t in store.targets)

    def exit(self, p: PlacedSite) -> None:
        """A guarded exit: its stores may be left to later islands too."""
        mask = 0
        for first, width in [(q, 4) for q in p.quads] or [(p.data, 2)]:
            mask |= ((1 << width) - 1) << first
        if len(p.quads) == 2 and p.scoreboard is not None:
            targets = next_islands(self._a, p.site.index, p.scoreboard, mask, self._anchors)
            if targets is not None:
                p.wait_last = False
                self._start(p.site.index, mask, p.scoreboard, targets)

    def _stored_here(self, p: PlacedSite) -> int:
        bits = 0
        for s in p.stores:
            bits |= (1 if s.split else 3) << s.data
        return bits

    def _late(self, p: PlacedSite, later: PlacedSite) -> bool:
        """Store the record in the island ``later`` (the next record's or its own commit), its wait deferred."""
        at = later.site.index
        for scoreboard in self._free.at(at).scoreboards:
            if self._deferred(at, scoreboard, 0) is None:
                continue
            for data in self._registers(p, 2):
                mask = 3 << data
                if not untouched(self._a, p, later, mask) or not self._room_beside(later, mask):
                    continue
                targets = self._deferred(at, scoreboard, mask)
                if targets is not None:
                    self._claim(p, mask)
                    p.data = data
                    p.scoreboard, p.wait_last = p.scoreboard if p.stores else None, False
                    later.stores.append(_store(p))
                    later.scoreboard = scoreboard
                    self._start(at, mask, scoreboard, targets)
                    return True
        return False

    def _room_beside(self, later: PlacedSite, mask: int) -> bool:
        """Whether ``later`` can capture its own clock while these registers wait to be stored in its island."""
        if later.site.kind == "commit":
            return True
        width = 1 if later.split else 2
        return any(not ((1 << width) - 1) << d & mask for d in self._free.at(later.site.index).groups(width))

    def _here(self, p: PlacedSite) -> None:
        """Store the record in its own island; defer the wait if possible, else wait at the island's end."""
        here, at = self._free.at(p.site.index), p.site.index
        width = 1 if p.split else 2
        scoreboards = [p.scoreboard] if p.stores and p.scoreboard is not None else here.scoreboards
        for scoreboard in scoreboards:
            if self._deferred(at, scoreboard, 0) is None:
                continue
            for data in self._registers(p, width):
                mask = ((1 << width) - 1) << data
                targets = self._deferred(at, scoreboard, mask)
                if targets is not None:
                    self._store_here(p, data, mask, scoreboard)
                    self._start(at, mask, scoreboard, targets)
                    return
        if self._wait_later(p, scoreboards, width):
            return
        data = next(iter(self._registers(p, width)), p.data)
        self._store_here(p, data, ((1 << width) - 1) << data, scoreboards[0])
        p.wait_last = True

    def _store_here(self, p: PlacedSite, data: int, mask: int, scoreboard: int) -> None:
        self._claim(p, mask)
        p.data, p.scoreboard, p.wait_last = data, scoreboard, False
        p.stores.append(_store(p))

    def _registers(self, p: PlacedSite, width: int) -> list[int]:
        """Candidates for a record's data, those that no store under way still reads first."""
        avoid = self._stored_here(p)
        unit = (1 << width) - 1
        busy = 0
        for store in self._under_way:
            busy |= store.registers
        usable = [d for d in self._free.at(p.site.index).groups(width) if not unit << d & avoid]
        # Stable sort: never-named registers stay in front among equals.
        usable.sort(key=lambda d: (bool(unit << d & busy), bool(unit << d & self._taken)))
        return usable[:_CANDIDATES]

    def _claim(self, p: PlacedSite, mask: int) -> None:
        """``p`` writes these registers: it waits for the stores of its group that may still read them."""
        for store in list(self._under_way):
            if store.registers & mask:
                self.waits[p.site.index] |= 1 << store.scoreboard
                self._under_way = [x for x in self._under_way if x.scoreboard != store.scoreboard]

    def _deferred(self, at: int, scoreboard: int, mask: int) -> frozenset[int] | None:
        """Islands that must wait for a store issued in the island at ``at``: far ones if possible, else the next."""
        far = next_islands(self._a, at, scoreboard, mask, self._anchors)
        return far if far is not None else next_islands(self._a, at, scoreboard, mask, self._islands)

    def _wait_later(self, p: PlacedSite, scoreboards: list[int], width: int) -> bool:
        """Store here and wait in an island of its own, as far on as possible."""
        at = p.site.index
        stored = self._stored_here(p)
        best: tuple[int, int, int, int] | None = None
        for scoreboard in scoreboards:
            for data in self._registers(p, width):
                mask = ((1 << width) - 1) << data
                place = wait_place(self._a, at, scoreboard, mask | stored, self._islands)
                if place is not None and (best is None or place[1] > best[0]):
                    best = (place[1], place[0], scoreboard, data)
        if best is None or best[0] < _WORTH_A_WAIT:
            return False
        _, place_at, scoreboard, data = best
        mask = ((1 << width) - 1) << data
        self._store_here(p, data, mask, scoreboard)
        self._start(at, mask | stored, scoreboard, frozenset({place_at}))
        return True

    def _start(self, island: int, mask: int, scoreboard: int, targets: frozenset[int]) -> None:
        self._taken |= mask & ~self._a.named
        self._under_way.append(_UnderWay(island, mask, scoreboard, targets))
        for t in targets:
            self.waits[t] = self.waits.get(t, 0) | 1 << scoreboard


def _store(p: PlacedSite) -> Store:
    return Store(p.data, p.slot_in_group, p.id or 0, p.split)
