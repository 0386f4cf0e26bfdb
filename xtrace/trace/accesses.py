"""Recorded addresses: instants for timelines, and a summary per site."""

from __future__ import annotations

import numpy as np
import pandas as pd

from xtrace.trace.tables import TraceTables

__all__ = ["accesses", "addresses_per_site"]


def accesses(tables: TraceTables) -> pd.DataFrame:
    """Rows of ``tables.events`` whose lane made an access; none where no site records addresses."""
    events = tables.events
    return events[events["address"] > 0] if "address" in events else events[:0].assign(address=np.uint64(0))


def addresses_per_site(tables: TraceTables) -> pd.DataFrame:
    """Columns site, phase, op, pc, records, made, lowest, highest, of sites that record addresses.

    ``made`` are the records whose lane made the access; ``lowest`` and ``highest`` are 0 where none did.
    """
    wanted = tables.events["site"].isin(tables.summary.get("access_sites", []))
    keys = ["site", "phase", "op", "pc"]
    records = tables.events[wanted].groupby(keys, observed=True).size().rename("records")
    found = accesses(tables).groupby(keys, observed=True)["address"].agg(made="size", lowest="min", highest="max")
    return pd.concat([records, found], axis=1).fillna(0).astype(np.uint64).reset_index()
