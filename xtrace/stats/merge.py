"""Raw sample documents of several runs and machines put together. Pure: documents in, documents out.

Two samples belong to one cell only if everything that a time depends on is the same. What may differ between cells but
not within one (another GPU, another driver) makes cells of their own; what must not differ at all (another image under
the same name, a repeated process number, simulated times among real ones) is refused, with the two files that disagree.
Processes of two GPUs are never pooled, same model or not: they are not independent replicates of one machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xtrace.errors import BadInput
from xtrace.stats.machine import is_simulated
from xtrace.stats.samples import CELL_KEYS, SCHEMA

__all__ = ["MergedCell", "merge"]

# Facts that must agree among the processes of one cell; "images" holds the SHA-256 of the images that were timed.
SAME = ("cuda", "torch", "triton", "cuda_bindings", "clocks", "git", "xtrace")
CODE, TWICE, MIXED = "XT7221", "XT7222", "XT7223"


@dataclass(frozen=True)
class MergedCell:
    """All documents of one cell on one GPU, by process number; ``device`` tells it from like-named ones."""

    names: Mapping[str, str]  # CELL_KEYS; "device" as in ``device``
    device: str
    uuid: str
    driver: str
    documents: tuple[Mapping[str, Any], ...]

    @property
    def processes(self) -> list[int]:
        return [int(d["process"]) for d in self.documents]

    @property
    def measured(self) -> bool:
        return any(d["blocks"] for d in self.documents)


def merge(documents: Iterable[Mapping[str, Any]]) -> list[MergedCell]:
    """Sort documents (each with its path under ``file``) into cells and check that they may stand side by side.

    Where one cell was measured on several GPUs of the same name, or under several drivers, both are appended to the
    device's name (``"NVIDIA H200 [GPU-b0364874, driver 580.159.04]"``), so that every table keeps the cells apart. The
    plain name stays in the provenance.

    Raises
    ------
    BadInput
        XT7221: not a raw sample document of this schema. XT7222: the same process twice in a cell. XT7223: documents
        that must not be mixed.
    """
    checked = [_check(d) for d in documents]
    _no_mixture_of_worlds(checked)
    cells: dict[tuple[str, ...], dict[int, Mapping[str, Any]]] = {}
    for document in checked:
        members = cells.setdefault(_key(document), {})
        number = int(document["process"])
        if number in members:
            _disagree(TWICE, document, members[number], f"process {number} of {_label(document)} is there twice")
        members[number] = document
    ambiguous = _ambiguous(cells)
    return [_cell(key, [cells[key][n] for n in sorted(cells[key])], ambiguous) for key in sorted(cells)]


def _ambiguous(keys: Iterable[tuple[str, ...]]) -> set[str]:
    """Names of devices on several of which one cell was measured."""
    seen: set[tuple[str, ...]] = set()
    names = set()
    for key in keys:
        *cell, uuid, driver = key
        if uuid or driver:
            if tuple(cell) in seen:
                names.add(cell[CELL_KEYS.index("device")])
            seen.add(tuple(cell))
    return names


def _check(document: Mapping[str, Any]) -> Mapping[str, Any]:
    where = str(document.get("file", ""))
    if document.get("schema") != SCHEMA:
        raise BadInput(CODE, f"schema is {document.get('schema')!r}, expected {SCHEMA!r}", where=where)
    cell, provenance = document.get("cell"), document.get("provenance")
    wrong = [k for k in CELL_KEYS if not isinstance(cell, Mapping) or k not in cell]
    wrong += ["provenance"] if not isinstance(provenance, Mapping) else []
    wrong += ["blocks"] if not isinstance(document.get("blocks"), list) else []
    process = document.get("process")
    wrong += ["process"] if isinstance(process, bool) or not isinstance(process, int) or process < 0 else []
    if wrong:
        raise BadInput(CODE, f"not a raw sample document: {', '.join(wrong)} missing or wrong", where=where)
    return document


def _no_mixture_of_worlds(documents: Sequence[Mapping[str, Any]]) -> None:
    measured = [d for d in documents if d["blocks"]]
    simulated = next((d for d in measured if is_simulated(d)), None)
    real = next((d for d in measured if not is_simulated(d)), None)
    if simulated is not None and real is not None:
        _disagree(MIXED, simulated, real, "simulated samples and real ones do not mix")


def _machine(document: Mapping[str, Any]) -> tuple[str, str]:
    provenance = document["provenance"]
    return str(provenance.get("uuid", "")), str(provenance.get("driver", ""))


def _key(document: Mapping[str, Any]) -> tuple[str, ...]:
    names = {name: _text(document["cell"][name]) for name in CELL_KEYS}
    names["device"] = str(document["provenance"].get("device") or names["device"])  # as it was before any merge
    return (*names.values(), *_machine(document))


def _cell(key: tuple[str, ...], members: Sequence[Mapping[str, Any]], ambiguous: set[str]) -> MergedCell:
    *values, uuid, driver = key
    names = dict(zip(CELL_KEYS, values, strict=True))
    measured = [d for d in members if d["blocks"]]
    for other in measured[1:]:
        _same(measured[0], other)
    device = names["device"]
    if device in ambiguous and (uuid or driver):
        device = f"{device} [{uuid[:12]}, driver {driver}]"
    return MergedCell({**names, "device": device}, device, uuid, driver, tuple(members))


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    """Refuse two processes of a cell that did not time the same thing in the same way."""
    for name in SAME:
        a, b = one["provenance"].get(name, ""), other["provenance"].get(name, "")
        if a != b:
            _disagree(MIXED, other, one, f"{_label(other)} mixes {name} {b or 'unknown'} and {a or 'unknown'}")
    if one.get("interval", "") != other.get("interval", ""):
        _disagree(MIXED, other, one, f"{_label(other)} mixes different timed intervals")
    theirs, ours = one.get("images") or {}, other.get("images") or {}
    if theirs != ours:
        which = sorted(k for k in {*theirs, *ours} if theirs.get(k) != ours.get(k))
        _disagree(MIXED, other, one, f"{_label(other)} mixes different images ({', '.join(which)})")


def _disagree(code: str, one: Mapping[str, Any], other: Mapping[str, Any], what: str) -> None:
    hint = {
        TWICE: "merge each run once; a repeated measurement replaces the cell as a whole",
        MIXED: "merge them into different folders",
    }[code]
    raise BadInput(
        code, f"{what} (the other: {other.get('file', 'unknown')})", where=str(one.get("file", "")), hint=hint
    )


def _label(document: Mapping[str, Any]) -> str:
    cell = document["cell"]
    return f"{cell['workload']}:{cell['tracer']}:{cell['probes']} on {cell['device'] or 'no device'}"


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{k}={v}" for k, v in value.items())
    return str(value)
