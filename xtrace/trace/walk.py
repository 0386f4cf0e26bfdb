"""The walk back through the rings, which finds the packets of many warps at once.

It starts where the warp's last packet ended, because only a packet's end says how long it is. One step reads one packet
of every warp. The walk ends at the warp's first packet or at one that began before ``limit``, a ring's length before
the end: what stood there is overwritten. A place without a tag that the map knows is a gap; the walk looks one quad
further back.

**Past the ring's end.** A packet that ends in the first seven quads of a lap may have begun in the lap before; then its
end stands in the slack. The same place of the ring (or of the slack) holds something older then. If both look like a
packet, one is right and the other stale, and clocks tell which (as long as a lap takes less than 2**32 cycles). Let A
end in the ring and B, longer than A, in the slack. If B is right, nothing has been written where A stands for a lap: A
is older than everything from ``limit`` on. If A is right, what B shows was written before A. Only words from ``limit``
on count in either; ages are measured back from a clock known to be later. So:

- If both show a clock, the younger one is right.
- If only A does, it is compared with the newest clock before B's start. That is older than A if A is right, and younger
  than A if B is.
- If only B does, it is compared with the newest clock before A's start. That is younger than B if A is right, and older
  if B is. As nobody knows where in the first quads of the lap A's predecessors end, every quad there is looked at, in
  the ring and in the slack.
- If neither does, the newest clocks before either are compared. If they are the same, no event lies between, and the
  walk goes on at the packet that has it.

If no packet from ``limit`` to B's start shows a clock, nobody can tell (but for A's predecessors being younger than
B): the walk ends, and what is older counts as overwritten. Events are given up only of packets that end within B's
quads or in the first seven quads of the lap before, which are not searched, because the same question would arise
there. Only packets of loops can lack clocks.

A stale reading may take an address, an undefined word or a tag for a clock. Such a word misleads only if it lies,
modulo 2**32, between the newest clock of the right packet and the later clock that ages are measured from.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from xtrace.trace.tags import MAX_SITES, MAX_TAG, MAX_WORDS, NO_TAG, Tags

__all__ = ["Walk"]

_OVERHANG = MAX_WORDS // 4  # quads of a packet that may stand behind the ring's end
_NEVER = 1 << 32  # age where there is no clock: more than any

Array = npt.NDArray[Any]


class Walk:
    """The walk; lengths and positions in quads but for word indices ``at``, ``base``.

    ``flat``: the words of all slots. Per warp: ``base``, index of its slot's first word; ``quads`` emitted;
    ``exit_lo``, low half of the clock at its exit. ``gaps`` and ``unknown`` count per warp what held no packet.
    """

    def __init__(
        self, flat: Array, base: Array, quads: Array, exit_lo: Array, ring: int, slack: int, tags: Tags
    ) -> None:
        self.flat, self.tags = flat, tags
        self.ring, self.overhang = ring, min(slack, _OVERHANG)
        self.base, self.quads, self.exit_lo = base, quads, exit_lo
        self.gaps = np.zeros(len(base), np.int64)
        self.unknown = np.zeros(len(base), np.int64)

    def packets(self) -> tuple[Array, ...]:
        """Warp, word index of the tag, tag, and number of gaps after it, of every packet, ordered by warp and time."""
        warp = np.flatnonzero(self.quads)
        base, end, later = self.base[warp], self.quads[warp], self.exit_lo[warp]
        limit = np.maximum(end - self.ring, 0)
        wrapped = bool((limit > 0).any())
        back = np.zeros(len(warp), np.int64)  # packets of the warp that the walk has passed
        parts: list[tuple[Array, ...]] = []
        while len(warp):
            place = self.place(end)
            at = base + 4 * place - 1
            raw, tag, quads, valid = self._look(at)
            valid &= quads <= place
            if wrapped:
                near = np.flatnonzero((place <= self.overhang) & (end > self.ring))
                if len(near):
                    ends = _Ends(self, base[near], end[near], limit[near], later[near])
                    at[near], tag[near], quads[near], valid[near] = ends.right()
            start = end - quads
            done = valid & (start < limit)
            taken = valid & ~done
            parts.append((warp[taken], at[taken], tag[taken], self.gaps[warp[taken]], back[taken]))
            back += taken
            opening = self._clock(at, tag, self.tags.clocks[tag], range(MAX_SITES, 0, -1))
            later = np.where(taken & (opening != 0), opening, later)
            self.gaps[warp] += ~valid
            self.unknown[warp] += ~valid & (raw != 0) & (raw <= MAX_TAG) & (self.tags.count[tag] == 0)
            end = np.where(valid, start, end - 1)
            on = ~done & (end > limit)
            if not on.all():
                warp, base, end, later, limit, back = (x[on] for x in (warp, base, end, later, limit, back))
        return self._in_time(parts)

    def place(self, end: Array) -> Array:
        """Where in the ring what ended at ``end`` has its end, from 1 on."""
        return (end - 1) % self.ring + 1

    def _look(self, at: Array) -> tuple[Array, Array, Array, Array]:
        """Word, tag, length in quads and whether the map knows the tag, at these word indices."""
        raw = self.flat[at]
        tag = np.minimum(raw, NO_TAG).astype(np.int64)
        count = self.tags.count[tag]
        return raw, tag, self.tags.quads[tag], count > 0

    def _clock(self, at: Array, tag: Array, count: Array, places: range) -> Array:
        """The first that is not 0 of the last ``count`` clocks of packets, going through ``places``; else 0.

        Those of uncleared events, which may be left over from an earlier packet, do not count.
        """
        found, uncertain = np.zeros(len(at), np.int64), self.tags.uncertain[tag]
        for back in places:
            open_ = np.flatnonzero((found == 0) & (count >= back) & (uncertain >> back & 1 == 0))
            found[open_] = self.flat[at[open_] - back]
        return found

    def age(self, at: Array, tag: Array, valid: Array, end: Array, limit: Array, later: Array) -> Array:
        """Age of the newest clock from ``limit`` on that packets which ended at ``end`` show."""
        count = np.where(valid, np.minimum(self.tags.clocks[tag], 4 * (end - limit) - 1), 0)
        clock = self._clock(at, tag, count, range(1, MAX_SITES + 1))
        return np.where(clock != 0, (later - clock) & (_NEVER - 1), _NEVER)

    def ends(self, base: Array, end: Array) -> list[tuple[Array, Array, Array, Array]]:
        """Word index, tag, length and existence of what may have ended at ``end``: in the ring, then in the slack."""
        place, found = self.place(end), []
        for past in range(-self.ring, self.overhang, self.ring):  # more than two where packets may exceed the ring
            behind = place + past + self.ring
            there = (place + past <= self.overhang) & (end > past + self.ring)
            at = base + 4 * np.where(there, behind, place) - 1
            _, tag, quads, known = self._look(at)
            found.append((at, tag, quads, there & known & (quads > place + past) & (quads <= behind)))
        return found

    def newest(self, base: Array, end: Array, limit: Array, later: Array) -> tuple[Array, Array]:
        """Age of the newest clock of the packets that ended at ``end`` or before, and where its packet ended.

        The first quads of a lap are not searched.
        """
        age, end = np.full(len(base), _NEVER), end.copy()
        open_ = np.arange(len(base))
        while True:
            open_ = open_[(end[open_] > limit[open_]) & (self.place(end[open_]) > self.overhang)]
            if not len(open_):
                return age, end
            place = self.place(end[open_])
            at = base[open_] + 4 * place - 1
            _, tag, quads, valid = self._look(at)
            valid &= quads <= place
            age[open_] = self.age(at, tag, valid, end[open_], limit[open_], later[open_])
            open_, quads = open_[age[open_] == _NEVER], np.where(valid, quads, 1)[age[open_] == _NEVER]
            end[open_] -= quads

    def _in_time(self, parts: list[tuple[Array, ...]]) -> tuple[Array, ...]:
        if not parts:
            return (np.zeros(0, np.int64),) * 4
        *columns, back = (np.concatenate(column) for column in zip(*parts, strict=True))
        warp = columns[0]
        ends = np.cumsum(np.bincount(warp, minlength=len(self.base)))
        order = np.empty(len(warp), np.int64)
        order[ends[warp] - 1 - back] = np.arange(len(warp))
        return tuple(column[order] for column in columns)


class _Ends:
    """Where packets ended that may stand in the ring or in the slack (see the module's text)."""

    def __init__(self, walk: Walk, base: Array, end: Array, limit: Array, later: Array) -> None:
        self.walk, self.base, self.end, self.limit, self.later = walk, base, end, limit, later
        found = walk.ends(base, end)
        self.at, self.tag, self.quads, self.valid = (np.stack(x) for x in zip(*found, strict=True))  # A, B (and more)
        self.age = np.stack([walk.age(at, tag, valid, end, limit, later) for at, tag, _, valid in found])

    def right(self) -> tuple[Array, Array, Array, Array]:
        """Word index, tag, length and existence of the right ones. A packet that nobody can tell began long ago."""
        pick = np.where(self.valid, self.age, _NEVER + 1).argmin(axis=0)
        at, tag, quads, valid = (x[pick, np.arange(len(pick))] for x in (self.at, self.tag, self.quads, self.valid))
        shown = (self.age < _NEVER) | ~self.valid
        open_ = np.flatnonzero((self.valid.sum(axis=0) > 1) & ~shown.all(axis=0))
        if len(open_):
            quads[open_] = self.end[open_] + 1  # undecided, unless:
            open_ = open_[self.valid[:2, open_].all(axis=0) & ~self.valid[2:, open_].any(axis=0)]
            row, length = self._by_others(open_)
            at[open_], tag[open_], quads[open_] = self.at[row, open_], self.tag[row, open_], length
        return at, tag, quads, valid

    def _by_others(self, some: Array) -> tuple[Array, Array]:
        """0 for A, 1 for B, and the length, of ``some`` where one of the two shows no clock."""
        base, end, limit, later = (x[some] for x in (self.base, self.end, self.limit, self.later))
        (quads_a, quads_b), (age_a, age_b) = self.quads[:2, some], self.age[:2, some]
        lap = end - self.walk.place(end)
        before_lap, _ = self.walk.newest(base, lap, limit, later)
        before_b, there = self.walk.newest(base, end - quads_b, limit, later)
        shows_a, shows_b = age_a < _NEVER, age_b < _NEVER
        in_lap = self._youngest(base, end - quads_a, np.maximum(lap, limit), limit, later)
        age_a = np.where(shows_a, age_a, np.minimum(before_lap, in_lap))
        age_b = np.where(shows_b, age_b, before_b)
        a = age_a < age_b
        sure = (before_b < _NEVER) | (shows_b & a)  # a clock of this lap exists, or A's is too young for a stale one
        length = np.where(a, quads_a, np.where(shows_a | shows_b, quads_b, end - there))
        return np.where(a, 0, 1), np.where(sure, length, end + 1)

    def _youngest(self, base: Array, end: Array, low: Array, limit: Array, later: Array) -> Array:
        """Age of the youngest clock of all that looks like a packet with its end after ``low``, up to ``end``."""
        age = np.full(len(base), _NEVER)
        for back in range(self.walk.overhang):
            at_end = np.maximum(end - back, 1)
            for at, tag, _, valid in self.walk.ends(base, at_end):
                found = self.walk.age(at, tag, valid & (end - back > low), at_end, limit, later)
                age = np.minimum(age, found)
        return age
