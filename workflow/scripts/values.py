"""Fields of tables that were read as text: numbers in, numbers out."""

from __future__ import annotations

import math

import pandas as pd

__all__ = ["number", "places", "rounded"]


def number(value: object) -> float | None:
    """The number in a field. None: empty, not a number, or not finite."""
    try:
        found = float(str(value))
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def rounded(value: float) -> float | None:
    """Four decimals are far below the noise and keep the table readable; None for what is not finite."""
    return round(value, 4) if math.isfinite(value) else None


def places(table: pd.DataFrame) -> pd.Series[str]:
    """What to call the workload of each row: with its device, and its shape, where the table holds several of them."""
    names = table["workload"].astype(str)
    if "device" in table and len(set(table["device"]) - {""}) > 1:
        names = names + table["device"].map(lambda d: f" on {d}" if d else "")
    if "shape" in table:
        shapes = table[table["shape"] != ""].groupby("workload")["shape"].nunique()
        several = table["workload"].map(lambda w: shapes.get(w, 0) > 1)
        names = names + table["shape"].where(several, "").map(lambda s: f", {s}" if s else "")
    return names
