"""Raw sample documents (``xtrace/overhead-raw/1``) -> cells -> one summary row each.

Kinds of blocks, every one the original (``A``) against something else (``B``): ``AB`` the traced kernel, ``AA`` the
original bytes loaded a second time, ``AP`` the padded kernel (probes' room, but nothing in it), ``AO`` the kernel as an
older version traced it. All kinds are interleaved in the same process.

A block is never deleted for its times. It is voided only for facts that the harness recorded with it: the throttle
reason changed, the SM clock moved by more than 1 % inside the block, or a launch reached the device *late*, when the
device stood idle already, so that its sample contains time of the host. Voided blocks are counted.

Older documents only say how many samples were late. Then it is the first of a block, as the device has nothing to do
between blocks (there never are more late samples than blocks), and no first sample of such a document counts.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from xtrace.errors import BadInput
from xtrace.stats.intervals import Equivalence, equivalence, hodges_lehmann
from xtrace.stats.paired import Comparison, compare, log_ratio

__all__ = [
    "CELL_KEYS",
    "CONTROL_MARGIN",
    "KINDS",
    "SCHEMA",
    "Cell",
    "CellSummary",
    "block_ratio",
    "broken_promises",
    "group",
    "leading",
    "ratios_by_kind",
    "skipped",
    "summarise",
    "voided",
]

SCHEMA = "xtrace/overhead-raw/1"
CELL_KEYS = ("workload", "kernel", "shape", "dtype", "device", "tracer", "probes")
KINDS = {"AB": "traced", "AA": "control", "AP": "pad control", "AO": "older version"}
CLOCK_TOLERANCE = 0.01  # relative move of the SM clock inside a block
CONTROL_MARGIN = math.log1p(0.0075)  # the A/A' control must be shown to lie within +-0.75 %


@dataclass(frozen=True, slots=True)
class Cell:
    """All process replicates of one unit of the overhead table."""

    key: tuple[str, ...]  # values of CELL_KEYS
    documents: tuple[Mapping[str, Any], ...]  # one a process, sorted by process number

    @property
    def names(self) -> dict[str, str]:
        return dict(zip(CELL_KEYS, self.key, strict=True))


@dataclass(frozen=True, slots=True)
class CellSummary:
    """What the tables and plots show of a cell."""

    cell: Cell
    overhead: Comparison | None  # None: no block was left
    control: Comparison | None  # the pristine bytes loaded twice
    control_test: Equivalence | None
    voided: int
    median_a_ns: float
    median_b_ns: float
    checks: Mapping[str, Any]
    problems: tuple[str, ...] = field(default=())
    blocks: int = 0  # all of them, voided ones too
    trimmed: int = 0  # processes in which no first sample of a block counts
    pad: Comparison | None = None
    old: Comparison | None = None
    change: Comparison | None = None  # ln(traced / older version), over processes that ran both

    @property
    def valid(self) -> bool:
        return not self.problems


def group(documents: Iterable[Mapping[str, Any]]) -> list[Cell]:
    """Sort documents into cells.

    Raises
    ------
    BadInput
        XT7201: wrong schema, missing key, or the same process twice in one cell.
    """
    cells: dict[tuple[str, ...], dict[int, Mapping[str, Any]]] = {}
    for number, document in enumerate(documents):
        where = str(document.get("file", f"document {number}"))
        if document.get("schema") != SCHEMA:
            raise BadInput("XT7201", f"schema is {document.get('schema')!r}, expected {SCHEMA!r}", where=where)
        try:
            key = tuple(_text(document["cell"][name]) for name in CELL_KEYS)
            process = int(document["process"])
            blocks = document["blocks"]
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput("XT7201", f"not a raw sample document: {error!r}", where=where) from error
        if not isinstance(blocks, list):
            raise BadInput("XT7201", "blocks is not a list", where=where)
        replicates = cells.setdefault(key, {})
        if process in replicates:
            raise BadInput("XT7201", f"process {process} appears twice in the cell {' / '.join(key)}", where=where)
        replicates[process] = document
    return [Cell(key, tuple(cells[key][p] for p in sorted(cells[key]))) for key in sorted(cells)]


def _text(value: Any) -> str:
    """A shape may be written as text or as a mapping of dimensions."""
    if isinstance(value, Mapping):
        return " ".join(f"{k}={v}" for k, v in value.items())
    return str(value)


def leading(late: int, blocks: Sequence[Mapping[str, Any]]) -> int:
    """Samples at the start of every block that do not count, where ``late`` samples of them all were."""
    return int(late > 0 and not any("late" in block for block in blocks))


def skipped(document: Mapping[str, Any]) -> int:
    """:func:`leading` of a raw sample document."""
    return leading(int((document.get("checks") or {}).get("late_samples") or 0), document["blocks"])


def ratios_by_kind(blocks: Sequence[Mapping[str, Any]], late: int) -> dict[str, list[float]]:
    """Log ratios of the blocks without a late sample, ``late`` being how many samples of them all were."""
    found: dict[str, list[float]] = {}
    skip = leading(late, blocks)
    for block in blocks:
        if not _came_late(block):
            found.setdefault(block["kind"], []).append(block_ratio(block, skip))
    return found


def _came_late(block: Mapping[str, Any]) -> bool:
    return any(block.get("late") or ())


def block_ratio(block: Mapping[str, Any], skip: int = 0) -> float:
    """``ln(B/A)`` of a block without its first ``skip`` samples. Raises KeyError, TypeError or ValueError."""
    return log_ratio(block["ns"], block["order"], skip)


def voided(block: Mapping[str, Any]) -> bool:
    """Whether recorded facts disqualify a block. Times are not looked at.

    ``sm_clock_mhz`` and ``throttle`` may be one value (read once) or a list of readings around the block; ``late`` has
    one truth value for each sample.
    """
    if _came_late(block):
        return True
    clocks = block.get("sm_clock_mhz")
    if isinstance(clocks, list | tuple):
        readings = [float(c) for c in clocks if c]
        if readings and max(readings) > min(readings) * (1 + CLOCK_TOLERANCE):
            return True
    throttle = block.get("throttle")
    return isinstance(throttle, list | tuple) and any(reading != throttle[0] for reading in throttle)


def summarise(cell: Cell, alpha: float = 0.025, margin: float = CONTROL_MARGIN) -> CellSummary:
    """Estimate overhead and control of a cell and collect everything that makes it doubtful."""
    ratios: dict[str, dict[int, list[float]]] = {kind: {} for kind in KINDS}  # kind -> process -> block log ratios
    times: dict[str, list[float]] = {"A": [], "B": []}
    total = void = trimmed = 0
    for document in cell.documents:
        per_launch = 1 / max(int(document.get("launches_per_sample", 1)), 1)
        process = int(document["process"])
        skip = skipped(document)
        trimmed += skip
        for block in document["blocks"]:
            total += 1
            if voided(block):
                void += 1
                continue
            try:
                ratios[block["kind"]].setdefault(process, []).append(block_ratio(block, skip))
            except (KeyError, TypeError, ValueError) as error:
                where = f"{' / '.join(cell.key)}, process {process}"
                raise BadInput("XT7202", f"bad block: {error}", where=where) from error
            if block["kind"] == "AB":
                for ns, letter in zip(block["ns"][skip:], block["order"][skip:], strict=True):
                    times[letter].append(ns * per_launch)
    arms = {kind: compare(list(found.values()), alpha) if found else None for kind, found in ratios.items()}
    test = equivalence(control.thetas, margin) if (control := arms["AA"]) else None
    checks = _checks(cell.documents)
    return CellSummary(
        cell=cell,
        overhead=arms["AB"],
        control=control,
        control_test=test,
        voided=void,
        median_a_ns=statistics.median(times["A"]) if times["A"] else math.nan,
        median_b_ns=statistics.median(times["B"]) if times["B"] else math.nan,
        checks=checks,
        problems=tuple(_problems(arms["AB"], control, test, void, total, checks)),
        blocks=total,
        trimmed=trimmed,
        pad=arms["AP"],
        old=arms["AO"],
        change=_change(ratios["AB"], ratios["AO"], alpha),
    )


def _change(new: Mapping[int, list[float]], old: Mapping[int, list[float]], alpha: float) -> Comparison | None:
    """The traced kernel against the older version's, process by process: what both share there cancels."""
    both = sorted(new.keys() & old.keys())
    if not both:
        return None
    differences = [hodges_lehmann(new[p]) - hodges_lehmann(old[p]) for p in both]
    change = compare([[d] for d in differences], alpha)
    return replace(change, blocks=sum(len(new[p]) + len(old[p]) for p in both))


def _checks(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Checks of all processes combined: a promise holds only if it held in every process that looked at it."""
    merged: dict[str, Any] = {}
    for document in documents:
        for name, value in dict(document.get("checks") or {}).items():
            if value is None:
                continue
            if isinstance(value, bool):
                merged[name] = merged.get(name, True) and value
            elif isinstance(value, int | float):
                merged[name] = merged.get(name, 0) + value
            else:
                merged.setdefault(name, value)
    return merged


def _problems(
    overhead: Comparison | None,
    control: Comparison | None,
    test: Equivalence | None,
    void: int,
    total: int,
    checks: Mapping[str, Any],
) -> Iterable[str]:
    if overhead is None:
        yield "no usable block"
    if control is None or test is None:
        yield "no A/A' control"
    elif not test.holds:
        yield f"A/A' control not shown to be within +-{100 * math.expm1(test.margin):.2f} %"
    if void > 0.1 * total:
        yield f"{void} of {total} blocks voided by machine facts"
    yield from broken_promises(checks)


def broken_promises(checks: Mapping[str, Any]) -> Iterable[str]:
    """What no time can make up for, from the merged checks of a cell's documents."""
    if checks.get("bit_identical") is False:
        yield "outputs differ from the original kernel's"
    if checks.get("guards_intact") is False or checks.get("guards_intact_after") is False:
        yield "memory beside the trace buffer was overwritten"
    if checks.get("monotonic") is False:
        yield "timestamps run backwards"
    if lost := checks.get("records_lost"):
        yield f"{lost} records lost"
    expected, emitted = checks.get("records_expected"), checks.get("records_emitted")
    if emitted == 0:
        yield "nothing was recorded: the time is not that of a tracer"
    elif expected is not None and emitted is not None and expected != emitted:
        yield f"{emitted} records emitted, {expected} expected"
