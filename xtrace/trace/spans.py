"""Records to phases: each record begins a phase that lasts until the warp's next record or its exit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from xtrace.errors import BadInput
from xtrace.trace.tables import TraceTables

__all__ = ["CountCheck", "check_counts", "counts_per_site", "phase_times", "roles", "spans"]

PROLOGUE, RUNNING = "prologue", "running"
Array = npt.NDArray[Any]


def spans(tables: TraceTables) -> pd.DataFrame:
    """One row per phase ``[start_ns, end_ns)``, ordered by warp and time; spans of a warp never overlap.

    The time from a warp's entry to its first record is the phase ``prologue``; a warp without records is ``running``
    from entry to exit. Both have ``site`` 0 and ``seq`` -1. So the spans of a warp add up to its life.

    Columns: cta, warp, slot, sm, seq, site, phase, start_ns, end_ns, ns, cycles, certain. ``certain`` is
    False where the phase's end is not what the next record says: a record after it was lost, the warp
    never reached its exit (the span is then empty), or the clock ran backwards (it is cut to be empty).
    """
    events, warps, accesses = _without_accesses(tables)
    row = np.searchsorted(warps["slot"].to_numpy(), events["slot"].to_numpy())
    names = [str(p) for p in events["phase"].cat.categories]
    every = [name for name in (PROLOGUE, RUNNING) if name not in names] + names
    recorded = np.zeros(len(warps), dtype=bool)
    recorded[row] = True
    code = np.array([every.index(name) for name in names], dtype=np.int64)
    entry = np.arange(len(warps))
    # Entries first and a stable sort: each warp's entry comes before its records.
    order = np.argsort(np.concatenate([entry, row]), kind="stable")

    def both(of_entry: Array, of_record: Array) -> Array:
        return np.concatenate([of_entry, of_record])[order]

    warp = both(entry, row)
    phase = both(
        np.where(recorded, every.index(PROLOGUE), every.index(RUNNING)), code[events["phase"].cat.codes.to_numpy()]
    )
    t = both(warps["t_entry_ns"].to_numpy(), events["t_ns"].to_numpy())
    clock = both(warps["clock_entry"].to_numpy(), events["clock"].to_numpy())
    seq = both(np.full(len(warps), -1), events["seq"].to_numpy().astype(np.int64))
    site = both(np.zeros(len(warps), dtype=np.int64), events["site"].to_numpy().astype(np.int64))

    last = np.ones(len(t), dtype=bool)
    last[:-1] = warp[1:] != warp[:-1]
    finished = warps["finished"].to_numpy()
    end, end_clock, next_seq = t.copy(), clock.copy(), seq.copy()
    end[:-1], end_clock[:-1], next_seq[:-1] = t[1:], clock[1:], seq[1:]
    end[last] = np.where(finished, warps["t_exit_ns"].to_numpy(), t[last])
    end_clock[last] = np.where(finished, warps["clock_exit"].to_numpy(), clock[last])
    next_seq[last] = np.where(finished, warps["emitted"].to_numpy(), -2)
    # Accesses between two records are no gap: those seen before each are taken off its number.
    seen = both(np.zeros(len(warps), dtype=np.int64), accesses.before)
    behind = seen.copy()
    behind[:-1] = seen[1:]
    behind[last] = accesses.total
    forward = (end >= t) & (end_clock >= clock)
    end, end_clock = np.where(forward, end, t), np.where(forward, end_clock, clock)
    start = t
    if not forward.all():  # a warp whose clock ran backwards would restart before the span in front of it ended
        start = pd.Series(t).groupby(warp).cummax().to_numpy()
        end = np.maximum(end, start)
    table = pd.DataFrame(
        {
            **{name: warps[name].to_numpy()[warp] for name in ("cta", "warp", "slot", "sm")},
            "seq": seq,
            "site": site,
            "phase": pd.Categorical.from_codes(phase, categories=pd.Index(every, dtype=object)),
            "start_ns": start,
            "end_ns": end,
            "ns": end - start,
            "cycles": (end_clock - clock).astype(np.int64),
            "certain": forward & (next_seq - behind == seq - seen + 1),
        }
    )
    empty_prologue = (seq < 0) & recorded[warp] & (table["ns"].to_numpy() <= 0)
    return table[~empty_prologue].reset_index(drop=True) if empty_prologue.any() else table


class _Accesses(NamedTuple):
    before: Array  # for each other record, those of its warp in front of it
    total: Array  # for each warp


def _without_accesses(tables: TraceTables) -> tuple[pd.DataFrame, pd.DataFrame, _Accesses]:
    """The launch's records that begin phases, its warps, and how many others there were."""
    events, warps = tables.events, tables.warps
    access = np.isin(events["site"].to_numpy(), tables.summary.get("access_sites", []))
    row = np.searchsorted(warps["slot"].to_numpy(), events["slot"].to_numpy())
    total = np.bincount(row[access], minlength=len(warps)).astype(np.int64)
    before = np.cumsum(access) - (np.cumsum(total) - total)[row]
    return events[~access], warps, _Accesses(before[~access], total)


def roles(tables: TraceTables) -> pd.Series:
    """Role of each warp of a CTA: warps that pass the same set of sites do the same job.

    Index: warp number in the CTA. Value: the warp numbers that share the role, e.g. ``"warps 0-3"``. The
    sets are united over all CTAs, so that a CTA that leaves early does not found a role of its own.
    """
    pairs = tables.events[["warp", "site"]].drop_duplicates().sort_values(["warp", "site"])
    sites_of: dict[int, list[int]] = {int(w): [] for w in np.unique(tables.warps["warp"].to_numpy())}
    for number, site in zip(pairs["warp"].tolist(), pairs["site"].tolist(), strict=True):
        sites_of[number].append(site)
    signature = {number: tuple(sites) for number, sites in sites_of.items()}
    members: dict[tuple[int, ...], list[int]] = {}
    for number, key in signature.items():
        members.setdefault(key, []).append(number)
    names = {key: ("warp " if len(group) == 1 else "warps ") + _ranges(group) for key, group in members.items()}
    return pd.Series({number: names[key] for number, key in signature.items()}, name="role", dtype=object)


def _ranges(numbers: list[int]) -> str:
    parts: list[list[int]] = []
    for n in numbers:
        if parts and n == parts[-1][1] + 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def phase_times(tables: TraceTables, table: pd.DataFrame | None = None) -> pd.DataFrame:
    """Time per phase and warp role: columns role, phase, spans, total_ns, mean_ns, median_ns, p95_ns, share.

    ``share`` is of all traced time of the role's warps. Uncertain spans are left out. ``table`` is the result
    of :func:`spans` if it is at hand.
    """
    table = spans(tables) if table is None else table
    table = table[table["certain"]]
    role = table["warp"].map(roles(tables)).rename("role")
    grouped = table["ns"].groupby([role, table["phase"]], observed=True)
    result = grouped.agg(
        spans="size", total_ns="sum", mean_ns="mean", median_ns="median", p95_ns=lambda ns: ns.quantile(0.95)
    ).reset_index()
    total = result.groupby("role")["total_ns"].transform("sum")
    result["share"] = result["total_ns"] / total.where(total > 0, 1.0)
    return result.sort_values(["role", "total_ns"], ascending=[True, False], ignore_index=True)


def counts_per_site(tables: TraceTables) -> pd.DataFrame:
    """Records seen per site: columns site, phase, op, pc, records, warps."""
    keys = ["site", "phase", "op", "pc"]
    grouped = tables.events.groupby(keys, observed=True)["slot"]
    return grouped.agg(records="size", warps="nunique").reset_index()


@dataclass(frozen=True)
class CountCheck:
    """Expected against seen record counts.

    ``rows`` has site, expected, seen, missing (negative: too many). ``ok`` is True only if every count
    is met exactly and no record was dropped.
    """

    ok: bool
    rows: pd.DataFrame
    dropped: int


def check_counts(tables: TraceTables, expected: Mapping[int, int]) -> CountCheck:
    """Compare records per site with ``expected``; sites that are not listed are expected to be silent.

    Raises
    ------
    BadInput
        XT8301 when an expected count is not a whole number >= 0.
    """
    for site, count in expected.items():
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
            raise BadInput("XT8301", f"expected count of site {site} is not a whole number")
    sites, counts = np.unique(tables.events["site"].to_numpy(), return_counts=True)
    seen = {int(s): int(c) for s, c in zip(sites, counts, strict=True)}
    rows = pd.DataFrame(
        [(s, int(expected.get(s, 0)), seen.get(s, 0)) for s in sorted({*seen, *expected})],
        columns=["site", "expected", "seen"],
    )
    rows["missing"] = rows["expected"] - rows["seen"]
    dropped = int(tables.summary.get("dropped", 0))
    return CountCheck(ok=dropped == 0 and not rows["missing"].any(), rows=rows, dropped=dropped)
