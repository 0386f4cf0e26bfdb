"""Which budget applies to which cell. Pure: works on the mapping that a budgets file holds.

An entry names a kernel (workload or kernel name), a probe set, a GPU and a tracer, each as a shell glob; what it does
not name it does not restrict, except for the tracer, which is Xtrace itself unless said. The entry that names most keys
exactly wins, then the one with most globs, then a kernel counts more than a probe set, that more than a GPU, that more
than a tracer. Two entries that differ in nothing but their globs are a mistake, not a coin toss.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from xtrace.config import bad_value
from xtrace.sampling import probe_set
from xtrace.stats.rule import REGRESSION, Rule

__all__ = ["KEYS", "Budget", "Budgets", "CellName", "parse_budgets"]

KEYS = ("kernel", "probes", "gpu", "tracer")  # in order of weight
DEFAULT_TRACER = "xtrace"


@dataclass(frozen=True, slots=True)
class CellName:
    """What a budget can name of a cell. ``gpu`` empty: on whichever GPU."""

    workload: str
    kernel: str
    probes: str
    gpu: str
    tracer: str

    def values(self, key: str) -> tuple[str, ...]:
        if key == "kernel":
            return tuple(v for v in (self.workload, self.kernel) if v)
        return (str(getattr(self, key)),)


@dataclass(frozen=True, slots=True)
class Budget:
    percent: float
    patterns: Mapping[str, str]  # KEYS -> glob
    source: str  # where it stands, for people: "configs/budgets.yaml: budgets[3]"
    why: str = ""
    processes: int | None = None
    extended: int | None = None

    def matches(self, cell: CellName, keys: Sequence[str] = KEYS) -> bool:
        return all(any(fnmatchcase(value, self.patterns[key]) for value in cell.values(key)) for key in keys)

    @property
    def demand(self) -> tuple[float | None, ...]:
        return self.percent, self.processes, self.extended

    @property
    def weight(self) -> tuple[int, ...]:
        exact = [not set(self.patterns[key]) & set("*?[") for key in KEYS]
        named = [self.patterns[key] != "*" for key in KEYS]
        return (sum(exact), sum(named), *exact, *named)


@dataclass(frozen=True, slots=True)
class Budgets:
    rule: Rule  # of a cell whose entry changes nothing but the budget
    entries: tuple[Budget, ...]
    gpus: tuple[str, ...] = ()
    regression: float = REGRESSION  # largest allowed ln(new / older version)
    file: str = ""

    def override(self, percent: float) -> Budgets:
        """The same budget for every cell of every tracer; what else is declared for cells stays."""
        source = "--budget"
        everything = Budget(percent, dict.fromkeys(KEYS, "*"), source)
        return replace(
            self, entries=(everything, *(replace(e, percent=percent, source=source, why="") for e in self.entries))
        )

    def find(self, cell: CellName) -> Budget | None:
        """The entry that applies. Raises ``BadInput`` XT7402 when two apply with equal right and differ."""
        matching = sorted((b for b in self.entries if b.matches(cell)), key=lambda b: b.weight)
        if (
            len(matching) > 1
            and matching[-1].weight == matching[-2].weight
            and matching[-1].demand != matching[-2].demand
        ):
            one, other = matching[-2:]
            name = f"{cell.workload} {cell.probes} on {cell.gpu}"
            raise bad_value(
                self.file, other.source.rpartition(" ")[2], f"applies to {name} as much as {one.source}", None, []
            )
        return matching[-1] if matching else None

    def rule_for(self, budget: Budget) -> Rule:
        """Raises ``ValueError`` when the entry's numbers of processes contradict one another."""
        processes = budget.processes or self.rule.processes
        extended = budget.extended or (2 * processes if budget.processes else self.rule.extended)
        return replace(self.rule, budget=budget.percent / 100, processes=processes, extended=extended)

    def check(self, cells: Sequence[CellName]) -> None:
        """Every entry must apply to a cell that exists, or it guards nothing.

        Parameters
        ----------
        cells
            All cells that the results hold or the suite can produce. Of these any probe set can be sampled
            (``SET@RULE``): an entry may name that before it is measured.

        Raises
        ------
        BadInput
            XT7402, naming the entry, the key at fault and the names that exist.
        """
        cells = [*cells, *self._sampled(cells)]
        for number, entry in enumerate(self.entries):
            place = f"budgets[{number}]"
            for key in KEYS:
                allowed = _names(cells, key, self.gpus)
                value = entry.patterns[key]
                if value != "*" and not any(fnmatchcase(name, value) for name in allowed):
                    raise bad_value(self.file, f"{place}.{key}", f"no cell has {value!r}", value, allowed)
            keys = [key for key in KEYS if key != "gpu"]  # which GPU will run a cell is not known before it did
            if not any(entry.matches(cell, keys) for cell in cells):
                allowed = _names([c for c in cells if entry.matches(c, ("kernel",))], "probes", ())
                value = entry.patterns["probes"]
                what = f"no cell of kernel {entry.patterns['kernel']!r} has {value!r}"
                raise bad_value(self.file, f"{place}.probes", what, value, allowed)

    def _sampled(self, cells: Sequence[CellName]) -> Iterator[CellName]:
        for value in {entry.patterns["probes"] for entry in self.entries}:
            if (group := probe_set(value)) != value:
                yield from (replace(cell, probes=value) for cell in cells if fnmatchcase(cell.probes, group))


def _names(cells: Iterable[CellName], key: str, more: Iterable[str]) -> list[str]:
    found = {value for cell in cells for value in cell.values(key) if value}
    return sorted(found | set(more if key == "gpu" else ()))


def parse_budgets(document: Mapping[str, Any], file: str) -> Budgets:
    """A budgets file that satisfies its schema. Raises ``BadInput`` XT7402 for numbers that contradict one another."""
    gate = dict(document.get("gate", {}))
    percentages = ("control_margin", "max_voided", "layout_shift")
    numbers = {key: value / 100 if key in percentages else value for key, value in gate.items()}
    entries = tuple(
        Budget(
            percent=float(entry["budget"]),
            patterns={key: entry.get(key, DEFAULT_TRACER if key == "tracer" else "*") for key in KEYS},
            source=f"{file}: budgets[{number}]",
            why=entry.get("why", ""),
            processes=entry.get("processes"),
            extended=entry.get("extended"),
        )
        for number, entry in enumerate(document["budgets"])
    )
    try:
        rule = Rule(**numbers)
    except ValueError as error:
        raise bad_value(file, "gate", str(error), None, []) from error
    regression = math.log1p(document["regression"] / 100) if "regression" in document else REGRESSION
    budgets = Budgets(rule, entries, tuple(document.get("gpus", ())), regression, file)
    for number, entry in enumerate(entries):
        try:
            budgets.rule_for(entry)
        except ValueError as error:
            raise bad_value(file, f"budgets[{number}]", str(error), None, []) from error
    return budgets
