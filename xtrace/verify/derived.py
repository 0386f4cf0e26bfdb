"""Addresses that are not recorded: what the map says they follow from must be so, on every way through the kernel.

The difference between an access's address and what a reader will compute is a sum of registers and of recorded words.
It is followed backwards from the access, against all ways that lead there: arithmetic is put in its place
(:mod:`xtrace.verify.sums`), and a recorded word becomes the register that it is a copy of, at the latest place before
where it is recorded. The sum must vanish before the kernel begins, or before anything is met that is no sum. What is
left of a word that was never recorded does not matter: there the reader knows that it knows nothing.

Besides, leader and words must be one lane's (:mod:`xtrace.verify.lanes`), and the leader's access be made by just the
lanes that make the derived one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from xtrace.isa.model import Flow
from xtrace.verify.accesses import Access, access_at, written
from xtrace.verify.certificate import Promise
from xtrace.verify.lanes import together
from xtrace.verify.pair import Pair
from xtrace.verify.replay import Recorded, replay
from xtrace.verify.sums import ONE, Lost, Sum, Variable, add, before

__all__ = ["Elections", "check", "recorded_sites"]

_EFFECTS = Promise.EFFECTS
_MOST_SUMS = 4096  # that one derived address may lead to
_HIGH = 1 << 32


class Elections(NamedTuple):
    """What the dry run must see to: ``exact`` sites (original instructions before which they are recorded) are stored
    by the lane that is elected of all, and not at one of the ``partial`` elections (traced words).
    """

    exact: frozenset[int] = frozenset()
    partial: frozenset[int] = frozenset()


def check(pair: Pair) -> Elections:
    """All derived accesses of one kernel."""
    claim = pair.claim or {}
    derived = claim.get("derived") or ()
    if not derived:
        return Elections()
    numbers = [s.get("id") for s in (*claim.get("sites", ()), *derived) if s.get("id") is not None]
    if len(numbers) != len(set(numbers)):
        pair.fail(_EFFECTS, "map gives a derived access the number of another site")
        return Elections()
    if pair.original.unknown:
        pair.skip(_EFFECTS, "the kernel jumps through a register: derived addresses cannot be followed")
        return Elections()
    proof, sound = _Proof(pair), []
    for item in derived:
        if why := proof.wrong(item):
            pair.fail(_EFFECTS, f"map: derived access {item['id']} {why}")
        else:
            sound.append(item)
    for number, why in replay(pair, sound, proof.recorded).items():
        pair.fail(_EFFECTS, f"map: derived access {number} {why}")
    return proof.elections(sound)


def recorded_sites(pair: Pair) -> Recorded:
    """Sites of the map with an address or a value, by number."""
    found: dict[int, tuple[Access, Mapping[str, Any]]] = {}
    for site in (pair.claim or {}).get("sites") or ():
        access = access_at(pair, site) if site.get("probe", "time") in ("address", "value") else None
        if isinstance(access, Access):
            found[site["id"]] = access, site
    return found


class _Proof:
    """The map's derived accesses of one kernel, one by one."""

    def __init__(self, pair: Pair) -> None:
        self._pair, self._program = pair, pair.original
        self.recorded = recorded_sites(pair)
        busy = {i for i, island in pair.align.islands() if any(not pair.output.code[j].never for j in island)}
        self._whole = together(self._program, busy)
        self._starts = [block.start for block in self._program.blocks()]
        self._ends = {i for i, ins in enumerate(self._program.code) if ins.flow is Flow.EXIT and ins.conditional}
        self._writes: dict[int, set[str]] = {}
        self._reached: dict[tuple[bool, int], set[int]] = {}
        self._lost = ""  # instruction at which a sum was lost last

    def wrong(self, claim: Mapping[str, Any]) -> str:
        """What is wrong with a derived access; empty if it is proved."""
        pair, size = self._pair, self._pair.word_bytes
        address = {**claim["address"], "made_with": None} if isinstance(claim.get("address"), Mapping) else None
        access = access_at(pair, {**claim, "address": address, "probe": "address"})
        if isinstance(access, str):
            return access
        if claim["from"] not in self.recorded or self.recorded[claim["from"]][1]["probe"] != "address":
            return f"follows from site {claim['from']}, which is no recorded access"
        leader, site = self.recorded[claim["from"]]
        if why := _condition(pair, access, claim["pc"] // size, leader, site["pc"] // size):
            return why
        values: dict[int, Access] = {}
        for term in claim.get("terms") or ():
            found = self.recorded.get(term["site"])
            if found is None or found[1]["probe"] != "value":
                return f"has a term of site {term['site']}, which records no value"
            if term["part"] != "low" and len(found[0].terms[0]) != 2:
                return f"has a term of a word that site {term['site']} does not record"
            values[term["site"]] = found[0]
        if why := self._one_lane(leader, values):
            return why
        words = {_name("leader", k): (leader.at, name) for k, name in enumerate(leader.terms[0])}
        for n, value in values.items():
            words |= {_name(str(n), k): (value.at, name) for k, name in enumerate(value.terms[0])}
        return self._vanishes(_difference(access, leader, claim), access.at, words)

    def elections(self, claims: Iterable[Mapping[str, Any]]) -> Elections:
        numbers = {n for c in claims for n in (c["from"], *(t["site"] for t in c.get("terms") or ()))}
        exact = frozenset(self.recorded[n][0].at for n in numbers)
        islands = [island for i, island in self._pair.align.islands() if not self._whole[i]]
        code = self._pair.output.code
        return Elections(exact, frozenset(j for island in islands for j in island if code[j].base == "ELECT"))

    def _one_lane(self, leader: Access, values: Mapping[int, Access]) -> str:
        """All are recorded by the one lane that is elected of all: together, and none ends in between."""
        program = self._program
        if not all(self._whole[x.at] for x in (leader, *values.values())):
            return "follows from what several lane groups of a warp may record"
        for number, value in values.items():
            if value.at > leader.at and program.block_of[value.at] == program.block_of[leader.at]:
                return f"follows from site {number}, which is recorded behind its leader"
            between = self._reach(value.at, forward=True) & self._reach(leader.at, forward=False)
            if between & self._ends:
                return f"follows from site {number}, but lanes may end before the access"
        return ""

    def _reach(self, start: int, *, forward: bool) -> set[int]:
        """Instructions that may run behind ``start``, or before it."""
        if (forward, start) not in self._reached:
            edges = self._program.succ if forward else self._program.pred
            found: set[int] = set()
            work = list(edges[start])
            while work:
                i = work.pop()
                if i not in found:
                    found.add(i)
                    work += edges[i]
            self._reached[forward, start] = found
        return self._reached[forward, start]

    def _vanishes(self, total: Sum, at: int, words: Mapping[str, tuple[int, str]]) -> str:
        """Follow a sum back from behind the island at ``at``; empty if it is 0 on every way."""
        program = self._program
        recorded: dict[int, dict[str, str]] = {}
        for word, (place, register) in words.items():
            recorded.setdefault(place, {})[word] = register
        seen: set[tuple[int, frozenset[tuple[Variable, int]]]] = set()
        work: list[tuple[int, Sum]] = [(at, total)]  # to be 0 when control stands behind the island before ``at``
        while work:
            i, here = work.pop()
            first = self._starts[program.block_of[i]]
            try:
                i, here = self._to_head(i, first, here, recorded, work)
            except Lost:
                return f"does not follow from what is recorded: {self._lost} writes what is left of it"
            if not here or (first, key := frozenset(here.items())) in seen:
                continue
            seen.add((first, key))
            if len(seen) > _MOST_SUMS:
                return "follows from too many sums to check"
            if first in program.entries and not any(_word(v) in words for v in here):
                return "is another number than what is recorded makes it"
            for p in program.pred[first]:
                try:
                    work += [(p, x) for x in self._before(here, p)]
                except Lost:
                    return f"does not follow from what is recorded: {self._lost} writes what is left of it"
        return ""

    def _to_head(
        self, i: int, first: int, here: Sum, recorded: Mapping[int, Mapping[str, str]], work: list[tuple[int, Sum]]
    ) -> tuple[int, Sum]:
        """Follow a sum to the head of its block; ``work`` gains other sums that must be 0 on the way."""
        names = {_word(v) for v in here}
        while here:
            if i in recorded:
                here = _copied(here, recorded[i])
                names = {_word(v) for v in here}
            if i == first:
                break
            i -= 1
            if not names.isdisjoint(self._written(i)):
                here, *others = self._before(here, i)
                names = {_word(v) for v in here}
                work += [(i, other) for other in others]
        return i, here

    def _written(self, i: int) -> set[str]:
        if i not in self._writes:
            ins, layout = self._program.code[i], self._pair.isa.layout
            bits = layout.everything if ins.opaque else written(ins, layout)
            self._writes[i] = set(layout.names(bits)) if bits else set()
        return self._writes[i]

    def _before(self, total: Sum, i: int) -> list[dict[Variable, int]]:
        ins = self._program.code[i]
        self._lost = f"{ins.text} at {ins.pc:#x}"
        return before(total, ins, self._written(i))


def _condition(pair: Pair, access: Access, index: int, leader: Access, leads: int) -> str:
    """The leader's record is in the same run of the same block, with the same predicates."""
    block_of, layout = pair.original.block_of, pair.isa.layout
    if block_of[index] != block_of[leads] or len(leader.terms) != 1 or len(leader.terms[0]) != 2:
        return "follows from an access of another block, or from one that has no register pair"
    if not max(leads, leader.at) <= access.at or len(access.terms) != 1:
        return "is computed before its leader is recorded"
    if access.conditions != leader.conditions:
        return "is made under another condition than the one that it follows from"
    predicates = {c.lstrip("!") for c in access.conditions}
    first, last = sorted((index, leads))
    for i in range(first, max(last, leader.at)):
        if predicates & set(layout.names(written(pair.original.code[i], layout))):
            return "is made under a condition that changes between it and the one that it follows from"
    return ""


def _name(of: str, word: int) -> str:
    return f"word {word} of {of}"


def _difference(access: Access, leader: Access, claim: Mapping[str, Any]) -> Sum:
    """The address less what a reader computes; 0 if the map is right."""
    low, high = access.terms[0]
    parts: list[tuple[int, Sum]] = [(1, {low: 1, high: _HIGH}), (access.offset, {ONE: 1})]
    parts += [(-1, {_name("leader", 0): 1, _name("leader", 1): _HIGH}), (-leader.offset - claim["offset"], {ONE: 1})]
    for term in claim.get("terms") or ():
        words: tuple[Variable, Variable] = _name(str(term["site"]), 0), _name(str(term["site"]), 1)
        if term["part"] == "pair":
            value: Sum = {words[0]: 1, words[1]: _HIGH}
        else:
            word = words[term["part"] == "high"]
            assert isinstance(word, str)
            value = {word: 1, **({(word, 1): -_HIGH} if term["signed"] else {})}
        parts.append((-term["times"], value))
    return add(*parts)


def _word(variable: Variable) -> str:
    return variable if isinstance(variable, str) else variable[0]


def _copied(total: Sum, copies: Mapping[str, str]) -> Sum:
    """Recorded words as the registers that they are copies of."""
    if not copies or not any(_word(v) in copies for v in total):
        return total
    out: list[tuple[int, Sum]] = []
    for variable, factor in total.items():
        name = copies.get(_word(variable), _word(variable))
        out.append((factor, {name if isinstance(variable, str) else (name, variable[1]): 1}))
    return add(*out)
