"""Tables of a run as the report reads them: every one that can be read, and the reason for every one that cannot."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from workflow.scripts import (
    ablation_table,
    architecture_table,
    certificate_table,
    coverage_table,
    overhead_table,
    prediction_table,
    preservation_table,
    trend_table,
)
from workflow.scripts.common import read_table
from xtrace.errors import XtraceError

__all__ = ["TABLES", "load"]

TABLES = {
    "certificates": certificate_table.COLUMNS,
    "preservation": preservation_table.COLUMNS,
    "coverage": coverage_table.COLUMNS,
    "refusals": coverage_table.REFUSALS,
    "overhead": overhead_table.COLUMNS,
    "architectures": architecture_table.COLUMNS,
    "trend": trend_table.COLUMNS,
    "ablation": ablation_table.COLUMNS,
    "prediction": prediction_table.COLUMNS,
}
MAY_BE_EMPTY = {"refusals", "trend", "ablation", "prediction"}  # nothing refused, nothing measured, not in this run


def load(results: Path, names: Iterable[str] = tuple(TABLES)) -> tuple[dict[str, pd.DataFrame | None], dict[str, str]]:
    """Tables by name, None for those that cannot be shown; and the errors of those."""
    tables: dict[str, pd.DataFrame | None] = {}
    errors: dict[str, str] = {}
    for name in names:
        columns = TABLES[name]
        path = results / f"{name}.csv"
        try:
            table = read_table(path, columns)
        except XtraceError as error:
            tables[name], errors[name] = None, str(error)
            continue
        if name not in MAY_BE_EMPTY and table.empty:
            tables[name], errors[name] = None, f"{path} has no rows"
        else:
            tables[name] = table
    return tables, errors
