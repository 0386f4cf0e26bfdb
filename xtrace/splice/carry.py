"""How clocks get from their sites to the registers that are stored, where those do not last that long.

A clock may wait in any general register that the kernel leaves alone for a while, move on to another one, or be parked
in a uniform register that the kernel never names. Two short clocks are put together as soon as both are there. Each
step is one instruction, rather in an island where what it reads has long arrived. The islands are passed in order, and
of all ways only the few that are expected to cost least are kept (a beam search): instructions, and cycles that the
warp would stall for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from typing import NamedTuple

from xtrace.isa.nvidia.emit import Carry, Transfer

from .route import Carried, Route, Word

__all__ = ["FETCHED", "carry"]

_KEPT = 8  # ways
# Cycles from one instruction to another that reads its result, as xtrace.isa.nvidia.dependence counts them.
_TO_READ, _TO_STORE = 6, 8  # a general register, by any other instruction and by a store
_TO_FETCH, _TO_JOIN = 15, 13  # a parked clock, by a move back and by what puts two together
_JOINED = 12  # two parked clocks in one register, by a move back
FETCHED = 13  # cycles from the end of an island that parks a clock to one that fetches it without a stall
_PARKED = -1  # where a value is that is in its uniform register


class _Value(NamedTuple):
    where: int  # general register, or _PARKED
    since: int  # time when it was written


@dataclass(frozen=True)
class _Way:
    cost: int = 0
    values: Mapping[int, _Value] = field(default_factory=dict)  # by event; two put together by that of the low half
    captures: tuple[tuple[int, int], ...] = ()
    transfers: tuple[tuple[int, Transfer], ...] = ()
    stall: int = 0  # cycles at this place
    joined: frozenset[int] = frozenset()

    def then(
        self, place: int, steps: Sequence[Transfer], changed: Mapping[int, _Value], gone: Iterable[int], stall: int
    ) -> _Way:
        values = {**self.values, **changed}
        for name in gone:
            values.pop(name, None)
        more = max(stall - self.stall, 0)
        done = (*self.transfers, *((place, step) for step in steps))
        cost = self.cost + len(steps) + more
        return replace(self, cost=cost, values=values, transfers=done, stall=self.stall + more)

    @property
    def taken(self) -> set[int]:
        return {value.where for value in self.values.values()}


def carry(route: Route, uniform: Sequence[int]) -> Carried | None:
    """The way that is expected to cost least; None where none was found. ``uniform``: one register for each event."""
    return _Search(route, uniform).best()


class _Search:
    def __init__(self, route: Route, uniform: Sequence[int]) -> None:
        self._route, self._uniform = route, uniform
        self._targets = {word.target for word in route.words}
        self._of_event = {event: word for word in route.words for event in (word.low, word.high) if event is not None}
        self._place = 0
        self._lasting: list[dict[int, int]] = [{} for _ in route.time]
        self._optional = {s.event for events in route.skipped.values() for s in events}

    def best(self) -> Carried | None:
        ways = [_Way()]
        for place in range(len(self._route.time)):
            ways = [replace(way, stall=0) for way in ways]
            self._place = place
            if (event := self._route.captured.get(place)) is not None:
                ways = self._cut(w for way in ways for w in self._capture(way, place, event))
            for word in self._route.words:
                if place <= word.at and any(word.low in way.values or word.high in way.values for way in ways):
                    ways = self._cut(w for way in ways for w in self._forward(way, place, word))
            ways = [w for way in ways if (w := self._finish(way, place)) is not None]
            ways = [w for way in ways if self._lasts(way, place) and (w := self._skip(way, place)) is not None]
        way = min(ways, key=lambda way: way.cost, default=None)
        return None if way is None else Carried(way.cost, dict(way.captures), way.transfers)

    def _cut(self, ways: Iterable[_Way]) -> list[_Way]:
        best: dict[tuple[tuple[int, int, int], ...], _Way] = {}
        for way in ways:
            key = tuple((name, *self._kind(value.where)) for name, value in way.values.items())
            if key not in best or way.cost < best[key].cost:
                best[key] = way
        return nsmallest(_KEPT, best.values(), key=self._rank) if len(best) > 1 else list(best.values())

    def _kind(self, where: int) -> tuple[int, int]:
        """What matters about where a value is: registers that last as long are alike, but those that are stored."""
        if where == _PARKED:
            return _PARKED, _PARKED
        return self._until(self._place, where), where if where in self._targets else _PARKED

    def _rank(self, way: _Way) -> tuple[int, int]:
        """Cost up to the end, with about how many instructions the clocks that have been read need from here on; and
        how much of the registers is taken by what is not where it will be stored.
        """
        cost, taken, values = way.cost, 0, way.values
        for event, value in values.items():
            word = self._of_event[event]
            until = _PARKED if value.where == _PARKED else self._until(self._place, value.where)
            lasting, home = until >= word.at, value.where == word.target
            taken += 0 if home else max(until, 0)
            if word.high is None or event in way.joined:
                cost += 0 if home else 1 if lasting or until == _PARKED else 2
            elif word.low not in values or word.high not in values:
                cost += 1 if home else 2 if lasting else 3
            elif event == word.low:
                other = values[word.high].where
                also = other != _PARKED and self._until(self._place, other) >= word.at
                cost += 3 - lasting - also
        return cost, taken

    def _until(self, place: int, register: int) -> int:
        """Last place up to which the kernel leaves a register alone."""
        known = self._lasting[place]
        if register not in known:
            gone = self._route.gone
            known[register] = next((k for k in range(place, len(gone)) if gone[k] >> register & 1), len(gone))
        return known[register]

    def _lasts(self, way: _Way, place: int) -> bool:
        return all(where == _PARKED or self._until(place, where) > place for where in way.taken)

    def _usable(self, way: _Way, place: int, word: Word, needs: Iterable[int], own: Iterable[int] = ()) -> list[int]:
        """Registers that may be written here for a word, those in ``own`` having been read: the one that is stored, and
        for each place in ``needs`` one that lasts to there, no longer than need be; else the one that lasts longest.
        """
        taken = (way.taken - set(own)) | self._route.kept | self._route.stored[place]
        free = [r for r in self._route.free[place] if r not in taken]
        rank = {r: (self._until(place, r), r in self._targets) for r in free}
        found = {word.target: word.at} if word.target in rank else {}
        for need in needs:
            lasting = [r for r in free if rank[r][0] >= need and r != word.target]
            found |= {min(lasting, key=lambda r: rank[r]): need} if lasting else {}
        if not found and free:
            return [max(free, key=lambda r: (rank[r][0], not rank[r][1]))]
        return list(found)

    def _needs(self, place: int, word: Word, event: int) -> list[int]:
        """Places up to which a clock may have to last that is read, or moved, at ``place``."""
        partner = next((k for k in (word.low, word.high) if k not in (None, event)), None)
        there = [place, *(k for k, captured in self._route.captured.items() if captured == partner and k > place)]
        return [*(self._arrived(k) for k in there), *there[1:], word.at]

    def _arrived(self, place: int) -> int:
        """The first place where a register can be read without a stall that is written at ``place``."""
        time = self._route.time
        return next(
            (k for k in range(place + 1, len(time)) if not self._stall(k, time[place] + _TO_READ)), len(time) - 1
        )

    def _stall(self, place: int, arrives: int) -> int:
        return max(arrives - self._route.time[place] - 1, 0)

    def _capture(self, way: _Way, place: int, event: int) -> Iterator[_Way]:
        word = self._of_event[event]
        for register in self._usable(way, place, word, self._needs(place, word, event)):
            value = _Value(register, self._route.time[place])
            yield replace(way, values={**way.values, event: value}, captures=(*way.captures, (event, register)))

    def _forward(self, way: _Way, place: int, word: Word) -> Iterator[_Way]:
        """Everything that may be done at a place with the clocks of a word."""
        there = [k for k in (word.low, word.high) if k is not None and k in way.values]
        if len(there) == 2:
            joined = list(self._join(way, place, word))
            yield from joined
            if not any(w.values[word.low].where == word.target and w.stall == way.stall for w in joined):
                for first in self._move(way, place, word, word.low):
                    yield from self._move(first, place, word, there[1])
        elif there and (word.high is None or word.low in way.joined):
            settled = self._settle(way, place, word)
            if settled is not None:
                yield settled
            else:
                yield from self._move(way, place, word, word.low)
        elif there:
            yield from self._move(way, place, word, word.low)
        else:
            yield way

    def _join(self, way: _Way, place: int, word: Word) -> Iterator[_Way]:
        """Both halves of a word into one register. At the place of its store, general registers are left for later."""
        assert word.high is not None
        low, high, now = way.values[word.low], way.values[word.high], self._route.time[place]
        way = replace(way, joined=way.joined | {word.low})
        if low.where == high.where == _PARKED:
            stall = self._stall(place, max(low.since, high.since) + _TO_JOIN)
            if not stall or place == word.at:
                u = self._uniform
                step = Transfer(Carry.JOIN_PARKED, u[word.low], u[word.low], u[word.high])
                value = _Value(_PARKED, now + stall + _JOINED - _TO_FETCH)
                yield way.then(place, [step], {word.low: value}, [word.high], stall)
        elif _PARKED not in (low.where, high.where) and place < word.at:
            stall = self._stall(place, max(low.since, high.since) + _TO_READ)
            for register in self._usable(way, place, word, (self._arrived(place), word.at), (low.where, high.where)):
                step = Transfer(Carry.JOIN, register, low.where, high.where)
                yield way.then(place, [step], {word.low: _Value(register, now + stall)}, [word.high], stall)

    def _settle(self, way: _Way, place: int, word: Word) -> _Way | None:
        """A word into the register that is stored, ahead of the store, if that lasts and nothing stalls for it."""
        value = way.values[word.low]
        arrives = value.since + (_TO_FETCH if value.where == _PARKED else _TO_READ)
        if value.where == word.target or place >= word.at or self._stall(place, arrives):
            return None
        if word.target not in self._usable(way, place, word, ()) or self._until(place, word.target) < word.at:
            return None
        step = self._copy(word.target, value, word.low)
        return way.then(place, [step], {word.low: _Value(word.target, self._route.time[place])}, (), 0)

    def _copy(self, target: int, value: _Value, event: int) -> Transfer:
        if value.where == _PARKED:
            return Transfer(Carry.FETCH, target, self._uniform[event])
        return Transfer(Carry.COPY, target, value.where)

    def _move(self, way: _Way, place: int, word: Word, event: int) -> Iterator[_Way]:
        """A value stays where it is, is parked, or goes to a register that lasts longer."""
        value, now = way.values[event], self._route.time[place]
        if value.where == _PARKED or place == word.at:
            yield way
            return
        until = self._until(place, value.where)
        stall = self._stall(place, value.since + _TO_READ)
        if until > place:
            yield way
            if stall or until >= word.at:
                return
        step = Transfer(Carry.PARK, self._uniform[event], value.where)
        yield way.then(place, [step], {event: _Value(_PARKED, now + stall)}, (), stall)
        for register in self._usable(way, place, word, self._needs(place, word, event)):
            if self._until(place, register) > until:
                step = Transfer(Carry.COPY, register, value.where)
                yield way.then(place, [step], {event: _Value(register, now + stall)}, (), stall)

    def _finish(self, way: _Way, place: int) -> _Way | None:
        """What is stored at a place, from wherever it is."""
        here = [word for word in self._route.words if word.at == place]
        steps: dict[int, list[Transfer]] = {}  # by target
        reads: dict[int, set[int]] = {}
        stall = 0
        for word in here:
            there = [(k, way.values[k]) for k in (word.low, word.high) if k is not None and k in way.values]
            if not there or (len(there) == 1 and word.high is not None and word.low not in way.joined):
                return None
            arrives = [self._stall(place, v.since + (_TO_FETCH if v.where == _PARKED else _TO_READ)) for _, v in there]
            if any(k in self._optional and late for (k, _), late in zip(there, arrives, strict=True)):
                return None
            found = self._last_steps(word, there)
            if found is None:
                return None
            steps[word.target], reads[word.target] = found, {v.where for _, v in there}
            if found:
                stall = max(stall, max(arrives) + _TO_STORE - 1 + _TO_READ * (len(found) - 1))
            else:
                stall = max(stall, self._stall(place, there[0][1].since + _TO_STORE))
        stored = {word.low for word in here} | {word.high for word in here if word.high is not None}
        others = {value.where for event, value in way.values.items() if event not in stored}
        ordered: list[Transfer] = []
        left = [target for target, found in steps.items() if found]
        while left:  # no register is overwritten that is still read
            target = next((t for t in left if t not in others.union(*(reads[k] for k in left if k != t))), None)
            if target is None:
                return None
            left.remove(target)
            ordered += steps[target]
        return way.then(place, ordered, {}, stored, stall)

    def _last_steps(self, word: Word, there: Sequence[tuple[int, _Value]]) -> list[Transfer] | None:
        """How values get into the register that is stored, at the place of the store."""
        if len(there) == 1:
            event, value = there[0]
            return [] if value.where == word.target else [self._copy(word.target, value, event)]
        (low, one), (high, other) = there
        if one.where == _PARKED:
            fetch = Transfer(Carry.FETCH, word.target, self._uniform[low])
            join = Transfer(Carry.JOIN, word.target, word.target, other.where)
            return None if other.where in (_PARKED, word.target) else [fetch, join]
        if other.where == _PARKED:
            fetch = Transfer(Carry.FETCH, word.target, self._uniform[high])
            return (
                None if one.where == word.target else [fetch, Transfer(Carry.JOIN, word.target, one.where, word.target)]
            )
        return [Transfer(Carry.JOIN, word.target, one.where, other.where)]

    def _skip(self, way: _Way, place: int) -> _Way | None:
        """Optional events behind a place. Nothing may stall for them."""
        for skipped in self._route.skipped.get(place, ()):
            register = next((r for r in skipped.free if r not in way.taken | self._route.kept), None)
            if register is None:
                return None
            value = _Value(_PARKED, skipped.fetched + 1 - _TO_FETCH)
            captures = (*way.captures, (skipped.event, register))
            way = replace(way, values={**way.values, skipped.event: value}, captures=captures)
        return way
