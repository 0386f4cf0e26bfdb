"""The dry run of promise ``effects``: probe code on made-up launches, along ways through the traced kernel.

Kernel instructions are passed without effect, but what they write is lost to the probes. Checked are the address of
every store and, at every end of a warp, that header and packets say what was captured on the way.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from xtrace.isa.model import Flow
from xtrace.verify import copies, stale
from xtrace.verify.accesses import Access, accesses_of, register_bits
from xtrace.verify.accesses import written as changed
from xtrace.verify.certificate import Promise
from xtrace.verify.derived import Elections
from xtrace.verify.emulate import Action, NotUnderstood, Store, compile_word
from xtrace.verify.exits import condition
from xtrace.verify.forms import stored
from xtrace.verify.launches import Launch, Layout
from xtrace.verify.packets import Packet, packets_of
from xtrace.verify.pair import Pair
from xtrace.verify.ring import Ring, Word, fillers
from xtrace.verify.walks import BlockGraph, Walk

__all__ = ["check"]

_EFFECTS = Promise.EFFECTS
_MOST_ROUNDS = 1 << 14  # rings of more packets than this are not run until they wrap
_FEW = 3  # times around a loop where wrapping is no question; checks of one guarded exit in a walk


def check(pair: Pair, patches: dict[int, str], elections: Elections) -> dict[int, int]:
    """Run the probes; registers of each store that only fill the room in front of a packet's clocks."""
    layout = Layout.of((pair.claim or {}).get("slot") or {})
    packets = packets_of(pair.claim or {}, pair.word_bytes)
    problem = next((x for x in (layout, packets) if isinstance(x, str)), None)
    if problem is None and pair.align.islands()[0][0] != 0:
        problem = "no prologue at the kernel's entry"
    if problem is not None or isinstance(layout, str) or isinstance(packets, str):
        pair.fail(_EFFECTS, problem or "")
        return {}
    accesses = accesses_of(pair)
    course = None if accesses is None else _Course.of(pair, patches, accesses)
    if course is None:
        return {}
    tally = _Tally()
    # The first launch takes all ways, far enough for the ring to wrap; the others vary the grid and the buffer.
    for number in range(5):
        launch = Launch(random.Random(number), layout, pair.before.required_threads, empty=number == 4)
        actions = dict(course.plain)
        for j, value in patches.items():
            action = _compile(pair, j, launch.patched[value])  # the same code with the values that loading fills in
            if action is None:
                return {}
            actions[j] = action
        for walk in course.walks if number == 0 else course.walks[:1] + course.walks[number::4]:
            # Where addresses are recorded, every way once with all accesses made, once with none.
            wishes = (True, False) if accesses and number == 0 else (None,)
            for wish in wishes:
                run = _Run(pair, course, launch, actions, packets, tally, wish, elections)
                if not run.take(walk, wrap=number == 0 and wish is not False):
                    return _registers(pair, tally)
    if packets and not tally.checked:
        pair.fail(_EFFECTS, "no exit of the kernel writes the header")
    if not pair.output.unknown:
        stale.check(pair, packets, tally.rings)
    if not layout.wraps:
        _fits(pair, course, layout, packets, tally)
    return _registers(pair, tally)


def _compile(pair: Pair, j: int, patch: int | None = None) -> Action | None:
    ins = pair.output.code[j]
    try:
        return compile_word(ins, patch)
    except NotUnderstood as error:
        pair.fail(_EFFECTS, f"effect is not understood: {error}", ins)
        return None


def _fits(pair: Pair, course: _Course, layout: Layout, packets: dict[int, Packet], tally: _Tally) -> None:
    """A slot without room behind its ring: no store may be repeated, and the ring must hold all of any way."""
    graph, block_of = course.graph, pair.output.block_of
    weight = [0] * len(graph.blocks)
    for j in course.plain:
        ins = pair.output.code[j]
        if ins.base != "STG" or (j in tally.header and j not in tally.ring):
            continue
        if graph.cyclic(graph.component_of[block_of[j]]):
            pair.fail(_EFFECTS, "store in a loop, but the slot has no room behind its ring for one that wraps", ins)
    for packet in packets.values():
        weight[block_of[pair.align.target_index(packet.sites[0])]] += packet.size
    if (most := graph.heaviest(weight)) > layout.ring:
        pair.fail(_EFFECTS, f"a warp may emit {most} bytes, but its slot has {layout.ring} and no room behind them")


def _registers(pair: Pair, tally: _Tally) -> dict[int, int]:
    unused: dict[int, int] = {}
    for j, part in fillers(tally.rings):
        if (first := stored(pair.output.code[j])) is not None:
            unused[j] = unused.get(j, 0) | pair.isa.layout["R"].bit(first + part)
    return unused


@dataclass(frozen=True, slots=True)
class _Clobber:
    """Kernel instructions on the way: registers in which probes find nothing of theirs behind them."""

    registers: tuple[str, ...]
    listed: tuple[str, ...]  # written by the model's account alone: kernel registers keep what they held

    def then(self, registers: Iterable[str], listed: Iterable[str]) -> _Clobber:
        """With those of the next instruction, between which and this one nothing of a probe stands."""
        return _Clobber(
            tuple(dict.fromkeys((*self.registers, *registers))), tuple(dict.fromkeys((*self.listed, *listed)))
        )


@dataclass(frozen=True, slots=True)
class _Site:
    """The first word of the island before original instruction ``index``."""

    index: int


@dataclass(frozen=True, slots=True)
class _End:
    """An EXIT with an island (whose last word has the traced index ``word``): original instruction ``index``."""

    word: int
    index: int
    pc: int
    stores: frozenset[int]  # of the island, traced indices


@dataclass(frozen=True)
class _Course:
    """What happens in each basic block of the traced kernel, as far as probes are concerned, and ways through it."""

    graph: BlockGraph
    plain: dict[int, Action | None]  # probe words; None where the meaning waits for a patch
    steps: list[list[int | _Clobber | _Site | _End]]  # an int is the traced index of a probe word
    walks: list[Walk]
    accesses: dict[int, Access]  # by the original instruction before which the address is read
    asked: dict[int, tuple[str, int]]  # predicate and its value with which lanes leave, by original EXIT

    @classmethod
    def of(cls, pair: Pair, patches: dict[int, str], accesses: dict[int, Access]) -> _Course | None:
        code, names = pair.output.code, pair.isa.layout.names
        origin, first = pair.align.origin(), {island[0]: i for i, island in pair.align.islands()}
        stores = {i: frozenset(j for j in island if code[j].base == "STG") for i, island in pair.align.islands()}
        asked = {i: found for i in stores if (found := condition(pair.original.code[i]))}
        plain: dict[int, Any] = {}
        written = 0
        for _, island in pair.align.islands():
            for j in island:
                if copies.is_way(pair, j):  # what the decision is, is another check's: here every warp is sampled
                    continue
                plain[j] = None if j in patches else _compile(pair, j)
                written |= code[j].writes
        if pair.findings.failed(_EFFECTS, pair.name):
            return None
        observed = register_bits(pair, accesses.values())
        graph = BlockGraph(pair.output.without(pair.align.copy))
        steps: list[list[int | _Clobber | _Site | _End]] = []
        for block in graph.blocks:
            does: list[int | _Clobber | _Site | _End] = []
            for j in block if block.start not in pair.align.copy else ():
                if j in first:
                    does.append(_Site(first[j]))
                if j in plain:
                    does.append(j)
                elif not code[j].never:
                    if code[j].flow is Flow.EXIT and j - 1 in plain:
                        i = origin[j]
                        does.append(_End(j - 1, i, pair.original.code[i].pc, stores[i]))
                    certain = changed(code[j], pair.isa.layout)
                    lost, listed = names(certain & (written | observed)), names(code[j].writes & written & ~certain)
                    if lost or listed:
                        last = does[-1] if does else None
                        if isinstance(last, _Clobber):
                            does[-1] = last.then(lost, listed)
                        else:
                            does.append(_Clobber(tuple(lost), tuple(listed)))
            steps.append(does)
        wanted = {n for n, does in enumerate(steps) if any(isinstance(x, int) for x in does)}
        walks = graph.walks(wanted, random.Random(0))
        return cls(graph, plain, steps, walks, {access.at: access for access in accesses.values()}, asked)


@dataclass
class _Tally:
    """What was seen in all walks."""

    rings: list[Ring] = field(default_factory=list)
    ring: set[int] = field(default_factory=set)  # stores that went to the ring
    header: set[int] = field(default_factory=set)  # stores that went to the header
    checked: int = 0  # headers


class _Run:
    """One warp on one way."""

    def __init__(
        self, pair: Pair, course: _Course, launch: Launch, actions: dict[int, Any], packets: dict[int, Packet],
        tally: _Tally, wish: bool | None, elections: Elections,
    ) -> None:  # fmt: skip
        self._pair, self._course, self._launch, self._actions, self._tally = pair, course, launch, actions, tally
        self._warp = launch.warp()
        self._ring = Ring(launch.layout.ring, packets, exact=elections.exact)
        self._elections = elections
        self._partial: set[str] = set()  # predicates of lanes that were elected of some lanes alone
        self._stored = 0  # bytes to the ring
        self._guarded: dict[int, int] = {}  # checks at guarded exits
        self._known: set[str] = set()  # kernel registers with a value that an access was seen to use
        self._rng = random.Random(len(tally.rings))
        self._wish = wish  # whether accesses are made, as far as nothing else tells
        tally.rings.append(self._ring)

    def take(self, walk: Walk, *, wrap: bool) -> bool:
        """False after the first fault."""
        if not self._blocks(walk.lead):
            return False
        rounds = 0
        while walk.tour and rounds < _MOST_ROUNDS:
            before = self._stored
            if not self._blocks(walk.tour):
                return False
            rounds += 1
            idle = self._stored == before or not wrap
            if self._stored > 2 * self._ring.size or (idle and rounds >= _FEW):
                break
        return self._blocks(walk.tail)

    def _blocks(self, numbers: Iterable[int]) -> bool:
        for n in numbers:
            for step in self._course.steps[n]:
                if not (self._execute(step) if isinstance(step, int) else self._step(step)):
                    return False
        return True

    def _step(self, step: _Clobber | _Site | _End) -> bool:
        match step:
            case _Clobber():
                listed = (name for name in step.listed if name not in self._known)
                for name in (*step.registers, *listed):
                    self._warp.registers.pop(name, None)
                    self._warp.elected.discard(name)
                    self._known.discard(name)
            case _Site():
                self._ring.runs.setdefault(step.index, []).append(set())
                self._at = step.index
                if (leaves := self._course.asked.get(step.index)) and leaves[0] not in self._known:
                    self._warp.registers[leaves[0]] = leaves[1]  # forgotten behind the EXIT
                if access := self._course.accesses.get(step.index):
                    seen = access.observe(self._warp, self._known, self._rng, self._wish)
                    self._ring.accesses.setdefault(step.index, []).append(seen)
            case _End():
                return self._end(step)
        return True

    def _execute(self, j: int) -> bool:
        warp = self._warp
        try:
            self._actions[j](warp)
        except NotUnderstood as error:
            self._pair.fail(_EFFECTS, f"effect is not understood: {error}", self._pair.output.code[j])
            return False
        if self._elections.exact and (ins := self._pair.output.code[j]).base == "ELECT":
            names = set(self._pair.isa.layout.names(ins.writes))
            self._partial = self._partial | names if j in self._elections.partial else self._partial - names
        if warp.clocks:
            self._ring.runs[self._at][-1].update(warp.clocks)
            warp.clocks.clear()
        return not warp.stores or self._store(j, warp.stores.pop())

    def _store(self, j: int, store: Store) -> bool:
        lane = self._pair.output.code[j].guard.removeprefix("@")
        one_lane, of_all = lane in self._warp.elected, lane not in self._partial
        at, above = self._launch.place(store.address, store.size), store.address - self._launch.header
        if store.descriptor not in (0, self._launch.patched["header_policy"] << 32):
            why = f"stores with the descriptor {store.descriptor:#x}, which is not what loading fills in"
            self._pair.fail(_EFFECTS, why, self._pair.output.code[j])
            return False
        if at is not None:
            self._tally.ring.add(j)
            self._stored += store.size
            for k, value in enumerate(store.data):
                self._ring.slot[at + 4 * k] = Word(value, j, k, one_lane, of_all)
        elif above >= 0 and above + store.size <= self._launch.layout.header_bytes:
            self._tally.header.add(j)
            for k, value in enumerate(store.data):
                self._ring.header[above + 4 * k] = value
        else:
            where = store.address - self._launch.slot
            why = f"stores {store.size} bytes at slot offset {where:#x}, outside the warp's ring and header"
            self._pair.fail(_EFFECTS, why, self._pair.output.code[j])
            return False
        return True

    def _end(self, end: _End) -> bool:
        """At an EXIT: the header must be there and true. In a loop only the first times."""
        self._guarded[end.word] = times = self._guarded.get(end.word, 0) + 1
        ring, leaves = self._ring, True
        if asked := self._course.asked.get(end.index):
            leaves = self._warp.registers[asked[0]] == asked[1]
            if asked[0] not in self._known:
                del self._warp.registers[asked[0]]
        if leaves and not ring.header and end.stores - self._tally.ring and times <= _FEW:
            why = "lanes that end here write no header"
            self._pair.fail(_EFFECTS, why, self._pair.output.code[end.word])
            return False
        if not ring.header or times > _FEW:
            return True
        self._tally.checked += 1
        why = ring.wrong(self._launch.smid, end.index, end.pc)
        if why:
            self._pair.fail(_EFFECTS, why, self._pair.output.code[end.word])
        ring.header.clear()
        return not why
