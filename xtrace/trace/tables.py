"""The decoded trace: two data frames and a summary."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from xtrace.trace.layout import KernelSites

__all__ = ["EVENT_COLUMNS", "WARP_COLUMNS", "TraceTables", "constant", "event_table"]

EVENT_COLUMNS = ("kernel", "cta", "warp", "slot", "seq", "site", "phase", "op", "pc", "clock", "t_ns", "sm")
WARP_COLUMNS = (
    "kernel",
    "slot",
    "cta",
    "warp",
    "sm",
    "t_entry_ns",
    "t_exit_ns",
    "clock_entry",
    "clock_exit",
    "emitted",
    "written",
    "dropped",
    "finished",
)
UNKNOWN_SITE = "(unknown site)"

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class TraceTables:
    """One launch of one kernel.

    Attributes
    ----------
    events
        One row per surviving record, ordered by warp and time. A record begins ``phase``, which lasts
        until the warp's next record or its exit. ``clock`` counts cycles of the SM ``sm`` and must not
        be compared across SMs; ``t_ns`` is the common time axis, in ns after ``summary["origin_ns"]``.
        ``site`` 0 does not occur; a site that the map does not know has ``pc`` -1.
        A launch whose map has sites of accesses has a column ``address`` (u64, bytes): what the recorded lane accessed,
        0 where it did not make the access, or where the site records none. Such a record begins no phase.
    warps
        One row per warp that ran to its exit. ``written + dropped == emitted``. ``decode`` gives finished warps
        only; a trace file may hold others, with ``finished`` False and ``t_exit_ns`` NaN.
    summary
        Plain JSON values: counts, time axis, warnings; see ``xtrace.trace.decode``.
    """

    events: pd.DataFrame
    warps: pd.DataFrame
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def kernel(self) -> str:
        """Mangled name of the kernel."""
        return str(self.summary.get("kernel", ""))


def event_table(
    layout: KernelSites,
    warps: pd.DataFrame,
    *,
    warp: Array,
    seq: Array,
    site: Array,
    clock: Array,
    t_ns: Array,
    address: Array,
) -> pd.DataFrame:
    """The events frame from per-record columns; ``warp`` is the row in ``warps``, ``site`` the site id."""
    ids = np.array([s.id for s in layout.shown], dtype=np.int64)
    known = np.zeros(len(site), dtype=bool)
    index = np.full(len(site), len(ids), dtype=np.int64)
    if len(ids):
        found = np.minimum(np.searchsorted(ids, site), len(ids) - 1)
        known = ids[found] == site
        index = np.where(known, found, len(ids))
    phases = list(dict.fromkeys([s.phase for s in layout.shown]))
    ops = list(dict.fromkeys([s.op for s in layout.shown]))
    pcs = np.array([*(s.pc for s in layout.shown), -1], dtype=np.int32)
    columns = {name: warps[name].to_numpy()[warp] for name in ("cta", "warp", "slot", "sm")}
    return pd.DataFrame(
        {
            "kernel": constant(layout.name, len(site)),
            "cta": columns["cta"],
            "warp": columns["warp"],
            "slot": columns["slot"],
            "seq": seq.astype(np.uint32),
            "site": site.astype(np.uint32),
            "phase": _categories([s.phase for s in layout.shown], phases, index),
            "op": _categories([s.op for s in layout.shown], ops, index),
            "pc": pcs[index],
            "clock": clock,
            "t_ns": t_ns,
            "sm": columns["sm"],
            **({"address": address} if layout.accesses else {}),
        },
        columns=[*EVENT_COLUMNS, *(["address"] if layout.accesses else [])],
    )


def constant(text: str, rows: int) -> Any:
    """A categorical column that holds ``text`` in every row."""
    return pd.Categorical.from_codes(np.zeros(rows, dtype=np.int8), categories=pd.Index([text], dtype=object))


def _categories(of_site: list[str], names: list[str], index: Array) -> Any:
    """A column of texts by site index; the index behind the last site means "not in the map"."""
    place = {name: k for k, name in enumerate(names)}
    unknown = place.setdefault(UNKNOWN_SITE, len(names))
    codes = np.array([*(place[name] for name in of_site), unknown], dtype=np.int32)
    shown = list(place) if (index == len(of_site)).any() else names
    return pd.Categorical.from_codes(codes[index], categories=pd.Index(shown, dtype=object))
