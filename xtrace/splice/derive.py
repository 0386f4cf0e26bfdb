"""Accesses whose address need not be recorded, because it follows from another one's.

The addresses of a kernel are sums (:mod:`xtrace.analysis.affine`). Of accesses under the same condition in one block
one *leader* is recorded as ever. The difference of another one's address from the leader's is a sum too; where it does
not change from one iteration of the loops around to the next, and its *values* - the atoms of the sum - stand in
registers somewhere on every way to the leader, they are recorded there, once, and the other address is derived by
whoever reads the trace: ``leader + constant + sum of values``.

A leader and its values must be those of the same lane: the one elected of all the warp's. So both are recorded where
all lanes are together, and no lane may end in between.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from xtrace.analysis import KernelAnalysis
from xtrace.analysis.affine import Atom, Form, minus
from xtrace.probe import Site
from xtrace.probe.accesses import overwrites, sources

from .accesses import access_of, same_condition
from .holders import Range, held
from .model import Derived, Holder, Part, PlacedSite

__all__ = ["Derivation", "derive", "settled"]

_WORTH = 2  # words that a value must save; loops count as so many iterations
_ITERATIONS = 16
_MOST_VALUES = 14  # of 64 bits
_MOST_PLACES = 32  # tried per value


@dataclass(frozen=True, slots=True)
class Derivation:
    derived: tuple[Derived, ...] = ()
    values: tuple[Site, ...] = ()

    @property
    def accesses(self) -> frozenset[int]:
        return frozenset(d.site.access for d in self.derived if d.site.access is not None)


@dataclass(frozen=True, slots=True)
class _Candidate:
    site: Site
    form: Form
    weight: int


def derive(a: KernelAnalysis, sites: Sequence[Site], taken: Set[int], banned: Set[object]) -> Derivation:
    """What need not be recorded, and the values that are recorded instead.

    ``banned`` are accesses (instructions) that are to be recorded, and registers that cannot be.
    """
    groups = list(_groups(a, sites, banned))
    plans = [_Plan(a, group, banned) for group in groups]
    if not plans:
        return Derivation()
    _prune(plans)
    return _layout(a, plans, taken)


def _groups(a: KernelAnalysis, sites: Sequence[Site], banned: Set[object]) -> Iterator[list[_Candidate]]:
    """Accesses of one block under one condition, in order."""
    found: list[list[_Candidate]] = []
    for site in sites:
        if site.access is None or site.access in banned or not a.lanes.whole[site.index]:
            continue
        access = access_of(a, site)
        if access.base is None or access.uniform is not None:
            continue
        form = a.affine.at(site.access, f"R{access.base}", f"R{access.base + 1}")
        loop = a.loop_of(site.access)
        candidate = _Candidate(site, form, 1 if loop is None else _ITERATIONS**loop.depth)
        group = next((g for g in found if same_condition(a, g[0].site, site, made=True)), None)
        if group is None:
            found.append([candidate])
        else:
            group.append(candidate)
    yield from (group for group in found if len(group) > 1)


class _Plan:
    """One group: clusters of accesses that differ by nothing but recordable atoms."""

    def __init__(self, a: KernelAnalysis, group: list[_Candidate], banned: Set[object]) -> None:
        self._a, self._banned = a, banned
        self.ranges: dict[Atom, Range] = {}
        self.clusters: list[list[_Candidate]] = []
        for candidate in group:
            for cluster in self.clusters:
                if self._reachable(cluster[0], candidate):
                    cluster.append(candidate)
                    break
            else:
                self.clusters.append([candidate])

    def _reachable(self, leader: _Candidate, other: _Candidate) -> bool:
        difference = minus(other.form, leader.form)
        found: dict[Atom, Range] = {}
        for atom, counted in difference:
            if counted is not None:
                return False
            if atom is None or atom in self.ranges:
                continue
            where = held(self._a, atom, leader.site, self._banned)
            if where is None:
                return False
            found[atom] = where
        self.ranges |= found
        return True

    def atoms(self) -> Iterator[tuple[Atom, int]]:
        """Atoms of differences, with what deriving the access saves."""
        for cluster in self.clusters:
            for other in cluster[1:]:
                for atom, _ in minus(other.form, cluster[0].form):
                    if atom is not None:
                        yield atom, 2 * other.weight

    def drop(self, atom: Atom) -> None:
        """Record every access whose difference has this atom."""
        kept = []
        for leader, *others in self.clusters:
            out = [o for o in others if any(x == atom for x, _ in minus(o.form, leader.form))]
            kept += [[leader, *(o for o in others if o not in out)], *([o] for o in out)]
        self.clusters = kept


def _prune(plans: Sequence[_Plan]) -> None:
    """Leave out atoms that cost about as much as they save, the worst first."""
    while True:
        saved: dict[Atom, int] = defaultdict(int)
        for plan in plans:
            for atom, words in plan.atoms():
                saved[atom] += words
        ranges = {atom: r for plan in plans for atom, r in plan.ranges.items()}
        if not saved:
            return
        worst = min(saved, key=lambda atom: saved[atom] - ranges[atom].words)
        if saved[worst] - ranges[worst].words >= _WORTH and len(saved) <= 2 * _MOST_VALUES:
            return
        for plan in plans:
            plan.drop(worst)


def _layout(a: KernelAnalysis, plans: Sequence[_Plan], taken: Set[int]) -> Derivation:
    """Values as sites, two 32-bit ones in one where both can be read at the same place, and what is derived."""
    wanted: dict[Atom, list[Range]] = defaultdict(list)
    for plan in plans:
        for atom, _ in plan.atoms():
            wanted[atom].append(plan.ranges[atom])
    sites: list[Site] = []
    part: dict[Atom, tuple[Holder, str]] = {}
    single: list[tuple[Atom, Range]] = []
    for atom, ranges in wanted.items():
        where = min(ranges, key=lambda r: r.last)  # the first leader that needs it
        if where.holder[1] is None:
            single.append((atom, where))
        else:
            part[atom] = where.holder, "pair"
            sites.append(_value(where.holder, where.first, where.last, taken))
    single.sort(key=lambda x: (x[1].last, x[1].first))
    while single:
        atom, one = single.pop(0)
        mate = next((x for x in single if max(x[1].first, one.first) <= min(x[1].last, one.last)), None)
        if mate is None:
            part[atom] = one.holder, "low"
            sites.append(_value(one.holder, one.first, one.last, taken))
            continue
        single.remove(mate)
        holder = one.holder[0], mate[1].holder[0]
        part[atom], part[mate[0]] = (holder, "low"), (holder, "high")
        first, last = max(one.first, mate[1].first), min(one.last, mate[1].last)
        sites.append(_value(holder, first, last, taken))
    derived = []
    for plan in plans:
        for leader, *others in plan.clusters:
            derived += [_derived(a, leader.site, leader.form, o, part) for o in others]
    sites.sort(key=lambda s: s.index)
    return Derivation(tuple(derived), tuple(sites))


def _value(holder: Holder, first: int, last: int, taken: Set[int]) -> Site:
    places = [i for i in range(first, last + 1) if i not in taken][-_MOST_PLACES:]
    start = places[0] if places else first
    return Site(start, "value", alternatives=tuple(places[1:]), value=holder)


def _derived(
    a: KernelAnalysis, leader: Site, base: Form, other: _Candidate, part: dict[Atom, tuple[Holder, str]]
) -> Derived:
    constant, parts = 0, []
    for (atom, _), factor in minus(other.form, base).items():
        times = factor - (1 << 64) if factor >> 63 else factor
        if atom is None:
            constant = times
        else:
            holder, which = part[atom]
            parts.append(Part(times, holder, which, atom.kind == "s"))
    assert leader.access is not None
    offset = constant + access_of(a, other.site).offset - access_of(a, leader).offset
    return Derived(other.site, leader.access, offset, tuple(parts))


def settled(
    a: KernelAnalysis, derivation: Derivation, placed: Sequence[PlacedSite]
) -> tuple[list[Derived], set[object]]:
    """What is derived, now that leaders and values have their places; and what must not be next time, if anything."""
    leaders = {p.site.access: p.site.index for p in placed if p.site.access is not None}
    values = {p.site.value: p.site.index for p in placed if p.site.value is not None}
    out: list[Derived] = []
    banned: set[object] = set()
    for value in derivation.values:
        if value.value not in values:
            banned |= {w for w in value.value or () if w is not None}
    for d in derivation.derived:
        assert d.site.access is not None
        home = leaders.get(d.leader)
        if home is None:
            banned.add(d.leader)
            continue
        at = max(home, d.site.access)
        used = sources(a, access_of(a, d.site))
        if any(overwrites(a, a.instructions[i]) & used for i in range(d.site.access, at)):
            banned.add(d.site.access)
        for part in d.parts:
            place = values.get(part.value)
            if place is not None and a.cfg.block_of[place] == a.cfg.block_of[home] and place >= home:
                banned |= {w for w in part.value if w is not None}
        out.append(Derived(d.site, d.leader, d.offset, d.parts, at))
    return out, banned
