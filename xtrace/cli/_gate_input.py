"""What ``xtrace gate`` reads: raw sample documents, a verdict made before, budgets, the kernel suite."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from xtrace.config import bad_value, check_schema, load_yaml
from xtrace.errors import BadInput
from xtrace.stats.budgets import Budgets, CellName, parse_budgets
from xtrace.stats.samples import SCHEMA as RAW
from xtrace.stats.verdicts import SCHEMA as VERDICT
from xtrace.stats.verdicts import name_of

__all__ = ["printable", "read_budgets", "read_results"]

BUDGET_SCHEMA = Path(__file__).parents[1] / "budgets.schema.yaml"
VERDICT_SCHEMA = Path(__file__).parents[1] / "gate.schema.yaml"
_MAX_BYTES = 64 << 20
_MAX_FILES = 200_000


def read_results(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Raw sample documents below a folder (or of one file), or the verdict document that a file holds.

    Other JSON files in the folder are passed over.

    Raises
    ------
    BadInput
        XT7212: not readable, too large, not JSON, or neither samples nor a verdict.
    """
    if path.is_dir():
        files = sorted(f for f in path.rglob("*.json") if f.is_file())
        if len(files) > _MAX_FILES:
            raise BadInput("XT7212", f"holds more than {_MAX_FILES} JSON files", where=str(path))
        documents = [(file, _read_json(file)) for file in files]
        return [{**d, "file": str(file)} for file, d in documents if isinstance(d, dict) and _is_sample(d)], None
    document = _read_json(path)
    if isinstance(document, dict) and document.get("schema") == VERDICT:
        check_schema(document, load_yaml(VERDICT_SCHEMA), str(path))
        return [], document
    if isinstance(document, dict) and _is_sample(document):
        return [{**document, "file": str(path)}], None
    raise BadInput(
        "XT7212",
        "is neither a raw sample document nor a verdict",
        where=str(path),
        hint=f"schema must be {RAW} or {VERDICT}",
    )


def _is_sample(document: Mapping[str, Any]) -> bool:
    return document.get("schema") == RAW or {"cell", "blocks"} <= document.keys()


def _read_json(path: Path) -> Any:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise BadInput("XT7212", f"larger than {_MAX_BYTES >> 20} MiB", where=str(path))
        return json.loads(path.read_bytes())
    except OSError as error:
        raise BadInput("XT7212", f"cannot be read: {error.strerror or error}", where=str(path)) from error
    except (ValueError, RecursionError) as error:
        raise BadInput("XT7212", f"is not JSON: {error}", where=str(path)) from error


def read_budgets(path: Path, documents: Sequence[Mapping[str, Any]]) -> Budgets:
    """Budgets of a file, every entry of which applies to a cell of the results or of the suite that the file names.

    Raises
    ------
    BadInput
        XT7401 or XT7402 with file, key and the values allowed.
    """
    document = load_yaml(path)
    check_schema(document, load_yaml(BUDGET_SCHEMA), str(path))
    budgets = parse_budgets(document, str(path))
    cells = {name_of(d["cell"]) for d in documents if isinstance(d.get("cell"), Mapping)}
    if suite := document.get("suite"):
        cells |= set(_suite_cells(path.parent / suite, str(path)))
    budgets.check(sorted(cells, key=lambda c: (c.workload, c.probes, c.tracer, c.gpu)))
    return budgets


def _suite_cells(path: Path, file: str) -> Iterable[CellName]:
    """Every workload of the suite with every probe set that has sites in it, traced by Xtrace."""
    workloads = load_yaml(path).get("workloads")
    if not isinstance(workloads, Mapping):
        raise bad_value(file, "suite", f"{path} defines no workloads", None, [])
    for name, workload in workloads.items():
        groups = workload.get("groups") if isinstance(workload, Mapping) else None
        for group in groups if isinstance(groups, list) else []:
            yield CellName(str(name), "", str(group), "", "xtrace")


def printable(value: Any) -> Any:
    """A JSON value whose texts may go to a terminal or into XML: what is no printable character is replaced.

    Names come from files that anyone may have written; a terminal would obey an escape sequence in one.
    """
    if isinstance(value, str):
        return "".join(c if c.isprintable() else "\ufffd" for c in value)
    if isinstance(value, Mapping):
        return {printable(k): printable(v) for k, v in value.items()}
    if isinstance(value, list):
        return [printable(v) for v in value]
    return value
