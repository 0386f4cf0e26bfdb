"""The way of clocks to the registers that are stored: on made-up packets, every word holds what it should."""

from __future__ import annotations

import random
from collections import Counter

from xtrace.isa.nvidia.emit import Carry, Transfer
from xtrace.splice.carry import FETCHED, carry
from xtrace.splice.route import Carried, Route, Skipped, Word

UNIFORM = tuple(range(100, 116))


def _route(rng: random.Random, *, short: bool) -> Route:
    """Events at some places, registers that last for a while, all stored at the last place."""
    places = rng.randint(3, 9)
    last = places - 1
    time = [0]
    for _ in range(last):
        time.append(time[-1] + rng.choice((1, 3, 8, 30)))
    registers = range(12)
    busy = [sum(1 << r for r in registers if rng.random() < rng.choice((0.1, 0.5, 0.9))) for _ in range(last)]
    free = tuple(tuple(r for r in registers if place == last or rng.random() < 0.7) for place in range(places))
    events = sorted(rng.sample(range(last), rng.randint(2, last)))
    skipped = {}
    if not short and rng.random() < 0.4:
        after = rng.choice((1, 9, 20))
        skipped = {events[0]: (Skipped(len(events), (0, 5, 7), time[events[0] + 1] + FETCHED - after),)}
    count = len(events) + len(skipped)
    targets = rng.sample(registers, count + 1)
    pairs = [(k, k + 1) for k in range(1, count - 2, 2)] if short else []
    low_only = [k for k in range(count) if not any(k in pair for pair in pairs)]
    halves = [*pairs, *((k, None) for k in low_only)]
    words = tuple(Word(targets[n], last, low, high) for n, (low, high) in enumerate(halves))
    captured = {place: k for k, place in enumerate(events)}
    return Route(
        tuple(time), free, tuple(busy), captured, skipped, words, frozenset(targets[-1:]), (frozenset(),) * places
    )


class _Run:
    """What registers hold: the clock of an event, two of them, or nothing that is known."""

    def __init__(self, route: Route, found: Carried) -> None:
        self.route, self.found = route, found
        self.general: dict[int, tuple[int, ...]] = {}
        self.uniform: dict[int, tuple[int, ...]] = {}
        self.done: Counter[Carry] = Counter()

    def run(self) -> None:
        route = self.route
        for place in range(len(route.time)):
            if (event := route.captured.get(place)) is not None:
                self.general[self._written(place, self.found.captures[event])] = (event,)
            for step in (step for at, step in self.found.transfers if at == place):
                self._step(place, step)
            for s in route.skipped.get(place, ()):
                assert self.found.captures[s.event] in s.free
                self.general.pop(self.found.captures[s.event], None)
                self.uniform[UNIFORM[s.event]] = (s.event,)
            if place < len(route.gone):
                self.general = {r: v for r, v in self.general.items() if not route.gone[place] >> r & 1}
        for word in route.words:
            assert self.general[word.target] == tuple(k for k in (word.low, word.high) if k is not None)

    def _written(self, place: int, register: int) -> int:
        assert register in self.route.free[place] or register in self.general, "neither free nor the probe's"
        assert register not in self.route.kept
        return register

    def _step(self, place: int, step: Transfer) -> None:
        self.done[step.carry] += 1
        parked = step.carry in (Carry.FETCH, Carry.JOIN_PARKED)
        source = self.uniform if parked else self.general
        value = source[step.source] if step.above is None else source[step.source] + source[step.above]
        if parked:
            late = [s.fetched for events in self.route.skipped.values() for s in events if s.event in value]
            assert all(self.route.time[place] >= time for time in late), "an optional clock is fetched too early"
        if step.general:
            self.general[self._written(place, step.target)] = value
        else:
            self.uniform[step.target] = value


def test_every_word_gets_its_clocks_whatever_the_kernel_does_with_the_registers() -> None:
    done: Counter[Carry] = Counter()
    found = 0
    for seed in range(600):
        rng = random.Random(seed)
        route = _route(rng, short=seed % 2 == 1)
        way = carry(route, UNIFORM)
        if way is not None:
            run = _Run(route, way)
            run.run()
            found += 1
            done += run.done
    assert found > 300
    assert all(done[kind] > 5 for kind in Carry), done


def _straight(lost: list[set[int]], events: int, *words: Word, free: tuple[int, ...] = (4, 5, 6)) -> Route:
    """Places 20 cycles apart, one more than there are sets of registers that do not last to the next one."""
    count = len(lost) + 1
    return Route(
        tuple(20 * k for k in range(count)),
        (free,) * count,
        tuple(sum(1 << r for r in registers) for registers in lost),
        {k: k for k in range(events)},
        {},
        words,
        frozenset(),
        (frozenset(),) * count,
    )


def test_a_clock_whose_register_lasts_needs_no_further_instruction() -> None:
    way = carry(_straight([set()] * 3, 3, *(Word(4 + k, 3, k) for k in range(3))), UNIFORM)
    assert way is not None
    assert (way.cost, way.transfers, dict(way.captures)) == (0, (), {0: 4, 1: 5, 2: 6})


def test_two_short_clocks_are_put_together_in_an_island_where_both_have_arrived() -> None:
    lost: list[set[int]] = [set(), set(), set(), {5}]
    way = carry(_straight(lost, 3, Word(4, 4, 1, 2), Word(6, 4, 0)), UNIFORM)
    assert way is not None
    assert way.cost == 1
    assert [(place, step.carry, step.target) for place, step in way.transfers] == [(3, Carry.JOIN, 4)]


def test_a_clock_is_parked_one_island_later_if_its_register_lasts_that_long() -> None:
    both, one = {4, 9}, {4}
    for lost, place in (([one, both, both, both], 1), ([both, both, both, both], 0)):
        way = carry(_straight(lost, 1, Word(4, 4, 0), free=(4, 9)), UNIFORM)
        assert way is not None
        assert [(at, step.carry) for at, step in way.transfers] == [(place, Carry.PARK), (4, Carry.FETCH)]
