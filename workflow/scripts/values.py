"""Fields of tables that were read as text: numbers in, numbers out."""

from __future__ import annotations

import math
import re

import pandas as pd

__all__ = ["number", "places", "plain_reason", "rounded"]


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


def plain_reason(text: object) -> str:
    """An error's words without its code and place, which repeat what stands around them; one line."""
    return re.sub(r"error\[XT\d+\] ([\w/.-]+: )?", "", " ".join(str(text).split()))


def places(table: pd.DataFrame) -> pd.Series[str]:
    """What to call the workload of each row: with its device, and its shape, where the table holds several of them."""
    keys = [k for k in ("workload", "device", "shape") if k in table]
    kinds = table[keys].drop_duplicates()
    devices = set(kinds.get("device", pd.Series(dtype=str))) - {""}
    shapes: dict[str, set[str]] = {}
    for kind in kinds.to_dict("records"):
        shapes.setdefault(kind["workload"], set()).add(kind.get("shape", ""))
    names = []
    for kind in kinds.to_dict("records"):
        on = f" on {kind['device']}" if len(devices) > 1 and kind["device"] else ""
        shape = f", {kind['shape']}" if len(shapes[kind["workload"]] - {""}) > 1 and kind["shape"] else ""
        names.append(kind["workload"] + on + shape)
    return table[keys].merge(kinds.assign(place=names), on=keys, how="left")["place"].set_axis(table.index)
