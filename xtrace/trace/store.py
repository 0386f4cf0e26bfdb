"""Trace files: one ``.xtrace`` file holds the launches of one traced program.

The file is a zip archive of numpy ``.npy`` columns and two JSON documents, chosen over Parquet because
it needs nothing but numpy (pyarrow alone is 170 MB), and because every numpy reads it:
``numpy.load("run.xtrace")["0/events/clock"]``. Nothing in it is ever unpickled or evaluated.

* ``manifest.json``: schema, provenance, and one summary per launch;
* ``map.json``: the trace map, so that the file explains itself;
* ``N/events/{slot,seq,site,clock,t_ns}.npy`` and ``N/warps/*.npy`` of launch N. All other columns
  of the tables follow from these and the map.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from xtrace.errors import BadInput, XtraceError
from xtrace.files import write_atomic
from xtrace.trace.layout import kernel_sites
from xtrace.trace.tables import WARP_COLUMNS, TraceTables, constant, event_table

__all__ = ["Trace", "load", "save"]

SCHEMA = "xtrace/trace/1"
MAX_LAUNCHES = 1 << 12
MAX_SMS = 1 << 16
MAX_JSON_BYTES = 1 << 28
MAX_RATIO = 250  # uncompressed over compressed; real traces stay below 30
_SMALL = 1 << 24

EVENTS = {"slot": "<i4", "seq": "<u4", "site": "<u4", "clock": "<u8", "t_ns": "<f8"}
ADDRESS = {"address": "<u8"}  # of events, where a site records one
WARPS = {
    "slot": "<i4",
    "cta": "<i4",
    "warp": "<i4",
    "sm": "<i4",
    "t_entry_ns": "<f8",
    "t_exit_ns": "<f8",
    "clock_entry": "<u8",
    "clock_exit": "<u8",
    "emitted": "<i8",
    "written": "<i8",
    "dropped": "<i8",
    "finished": "|b1",
}
_COUNTS = [
    "sites",
    "warps_ran",
    "warps_unfinished",
    "ctas_ran",
    "sms",
    "emitted",
    "written",
    "dropped",
    "overwritten",
    "holes",
    "damaged",
    "non_monotonic",
    "non_monotonic_warps",
    "long_silences",
    "origin_ns",
    "unknown_sites",
    "slots",
]
_NUMBERS = ["duration_ns", "time_step_ns", "time_error_ns", "ns_per_cycle"]
_TEXTS = ["kernel", "demangled", "time_method"]
_FLAGS = ["rate_known", "spill_over", "complete"]

_NPY = re.compile(
    rb"\x93NUMPY\x01\x00(?P<length>..)"
    rb"\{'descr': '(?P<descr>[^']{3})', 'fortran_order': False, 'shape': \((?P<rows>\d{1,12}),\), \} *\n",
    re.DOTALL,
)

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Trace:
    """A trace file's content."""

    launches: tuple[TraceTables, ...]
    map: dict[str, Any]
    provenance: dict[str, Any]

    @property
    def tables(self) -> TraceTables:
        """The first launch."""
        return self.launches[0]


def save(
    path: str | Path,
    tables: TraceTables | Sequence[TraceTables],
    map: Mapping[str, Any],
    provenance: Mapping[str, Any],
) -> Path:
    """Write one or several launches, whole or not at all.

    Raises
    ------
    BadInput
        XT8401 nothing to save, or map or provenance are not JSON; XT7xxx the file cannot be written.
    """
    launches = [tables] if isinstance(tables, TraceTables) else list(tables)
    if not 1 <= len(launches) <= MAX_LAUNCHES:
        raise BadInput("XT8401", f"cannot save {len(launches)} launches", hint=f"1 to {MAX_LAUNCHES} fit in one file")
    for launch in launches:
        kernel_sites(map, launch.kernel)
    try:
        manifest = json.dumps(
            {"schema": SCHEMA, "provenance": dict(provenance), "launches": [t.summary for t in launches]},
            allow_nan=False,
        )
        map_text = json.dumps(map, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BadInput("XT8401", f"map, summary or provenance cannot be stored as JSON: {error}") from error
    members = {"manifest.json": manifest.encode(), "map.json": map_text.encode()}
    for number, launch in enumerate(launches):
        recorded = EVENTS | (ADDRESS if kernel_sites(map, launch.kernel).accesses else {})
        for folder, frame, columns in (("events", launch.events, recorded), ("warps", launch.warps, WARPS)):
            for name, dtype in columns.items():
                members[f"{number}/{folder}/{name}.npy"] = _npy(frame[name].to_numpy(), dtype)
    data = _archive(members, zipfile.ZIP_DEFLATED)
    if sum(len(m) for m in members.values()) > max(_SMALL, MAX_RATIO * len(data)):  # so regular that load() would balk
        data = _archive(members, zipfile.ZIP_STORED)
    return write_atomic(path, data)


def _npy(column: Array, dtype: str) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, np.ascontiguousarray(column, dtype=dtype), version=(1, 0), allow_pickle=False)
    return out.getvalue()


def _archive(members: Mapping[str, bytes], compression: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in members.items():
            # A fixed date: the same trace gives the same file.
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.compress_type = compression
            archive.writestr(info, data, compresslevel=1)
    return out.getvalue()


def load(path: str | Path) -> Trace:
    """Read a trace file.

    Raises
    ------
    BadInput
        XT8402 cannot be opened, XT8403 not a trace file or damaged. Sizes are checked against the file's own size
        before anything is unpacked.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        with zipfile.ZipFile(path) as archive:
            return _Reader(archive, size).trace()
    except XtraceError as error:
        error.where = str(path) if not error.where else f"{path}: {error.where}"
        raise
    except FileNotFoundError as error:
        raise BadInput("XT8402", "no such trace file", where=str(path)) from error
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        KeyError,
        NotImplementedError,
        RuntimeError,  # an encrypted member; also RecursionError from hostile JSON
        ValueError,
        OverflowError,
        TypeError,
    ) as error:
        raise BadInput("XT8403", "not a trace file, or a damaged one", where=str(path)) from error
    except OSError as error:
        raise BadInput("XT8402", f"cannot read the trace file: {error.strerror or error}", where=str(path)) from error


class _Reader:
    def __init__(self, archive: zipfile.ZipFile, size: int) -> None:
        self.archive = archive
        members = archive.infolist()
        self.members = {m.filename: m for m in members}
        if len(self.members) != len(members):
            raise _damaged("two members of one name")
        if any(m.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for m in members):
            raise _damaged("an unknown compression")
        unpacked = sum(m.file_size for m in members)
        if unpacked > max(_SMALL, MAX_RATIO * size):
            raise _damaged(f"{size} bytes claim to unpack to {unpacked}")

    def bytes(self, name: str) -> bytes:
        if name not in self.members:
            raise _damaged(f"no member {name}")
        return self.archive.read(self.members[name])

    def json(self, name: str) -> dict[str, Any]:
        raw = self.bytes(name)
        if len(raw) > MAX_JSON_BYTES:
            raise _damaged(f"{name} is larger than {MAX_JSON_BYTES >> 20} MiB")
        loaded = json.loads(raw)
        if not isinstance(loaded, dict):
            raise _damaged(f"{name} is not an object")
        return loaded

    def column(self, name: str, dtype: str) -> Array:
        raw = self.bytes(name)
        # Exactly the header that numpy writes, matched as text: numpy's own reader evaluates it as Python.
        match = _NPY.match(raw)
        if match is None or match["descr"].decode() != dtype:
            raise _damaged(f"{name} is not a column of type {dtype}")
        length = int.from_bytes(match["length"], "little")
        body = memoryview(raw)[10 + length :]
        if match.end() != 10 + length or int(match["rows"]) * np.dtype(dtype).itemsize != len(body):
            raise _damaged(f"{name} is shorter or longer than it claims")
        return np.frombuffer(body, dtype=dtype)

    def trace(self) -> Trace:
        manifest = self.json("manifest.json")
        if manifest.get("schema") != SCHEMA:
            raise _damaged(f"no trace file of schema {SCHEMA}")
        trace_map, provenance, summaries = self.json("map.json"), manifest.get("provenance"), manifest.get("launches")
        if not isinstance(provenance, dict) or not isinstance(summaries, list):
            raise _damaged("the manifest is incomplete")
        if not 1 <= len(summaries) <= MAX_LAUNCHES:
            raise _damaged(f"{len(summaries)} launches")
        launches = tuple(self.launch(n, summary, trace_map) for n, summary in enumerate(summaries))
        return Trace(launches, trace_map, provenance)

    def launch(self, number: int, summary: object, trace_map: dict[str, Any]) -> TraceTables:
        checked = _checked_summary(summary)
        layout = kernel_sites(trace_map, checked["kernel"])
        columns = {name: self.column(f"{number}/warps/{name}.npy", dtype) for name, dtype in WARPS.items()}
        n = len(columns["slot"])
        if any(len(c) != n for c in columns.values()) or n == 0:
            raise _damaged("warp columns of different lengths")
        slot = columns["slot"]
        if slot[0] < 0 or (np.diff(slot.astype(np.int64)) <= 0).any():
            raise _damaged("warps are not in order")
        if (columns["sm"] < 0).any() or (columns["sm"] >= MAX_SMS).any():
            raise _damaged("a warp's SM is impossible")
        if (columns["cta"] < 0).any() or (columns["warp"] < 0).any() or not np.isfinite(columns["t_entry_ns"]).all():
            raise _damaged("a warp's place or time is impossible")
        if np.isinf(columns["t_exit_ns"]).any() or np.isnan(columns["t_exit_ns"][columns["finished"]]).any():
            raise _damaged("a warp's exit time is impossible")
        if (np.abs(np.nan_to_num(columns["t_exit_ns"])) > 1e18).any() or (np.abs(columns["t_entry_ns"]) > 1e18).any():
            raise _damaged("a warp's time is impossible")
        warps = pd.DataFrame({"kernel": constant(layout.name, n), **columns}, columns=list(WARP_COLUMNS))
        wanted = EVENTS | (ADDRESS if layout.accesses else {})
        records = {name: self.column(f"{number}/events/{name}.npy", dtype) for name, dtype in wanted.items()}
        n_events = len(records["slot"])
        if any(len(c) != n_events for c in records.values()):
            raise _damaged("event columns of different lengths")
        if (np.diff(records["slot"].astype(np.int64)) < 0).any() or not np.isin(records["slot"], slot).all():
            raise _damaged("events are not in warp order")
        if not np.isfinite(records["t_ns"]).all() or (np.abs(records["t_ns"]) > 1e18).any():
            raise _damaged("an event's time is impossible")
        counted = np.bincount(np.searchsorted(slot, records["slot"]), minlength=n)
        if (counted != columns["written"]).any() or (columns["emitted"] - columns["dropped"] != counted).any():
            raise _damaged("record counts contradict the records")
        if checked["written"] != n_events or checked["emitted"] != int(columns["emitted"].sum()):
            raise _damaged("the summary contradicts the records")
        events = event_table(
            layout,
            warps,
            warp=np.searchsorted(slot, records["slot"]),
            seq=records["seq"],
            site=records["site"].astype(np.int64),
            clock=records["clock"],
            t_ns=records["t_ns"],
            address=records.get("address", np.zeros(n_events, np.uint64)),
        )
        more = {"access_sites": layout.accesses} if layout.accesses else {}
        return TraceTables(events, warps, {**checked, **more})


def _checked_summary(summary: object) -> dict[str, Any]:
    if not isinstance(summary, dict):
        raise _damaged("a launch without a summary")
    kinds: list[tuple[Sequence[str], type | tuple[type, ...]]] = [
        (_COUNTS, int),
        (_NUMBERS, (int, float)),
        (_TEXTS, str),
    ]
    for names, kind in kinds:
        for name in names:
            value = summary.get(name)
            if not isinstance(value, kind) or isinstance(value, bool):
                raise _damaged(f"the summary's '{name}' is missing or wrong")
    if any(not np.isfinite(float(summary[name])) for name in _NUMBERS):
        raise _damaged("the summary holds an impossible number")
    if any(not isinstance(summary.get(name), bool) for name in _FLAGS):
        raise _damaged("a flag of the summary is missing")
    if not 0 <= summary["origin_ns"] < 1 << 63:
        raise _damaged("the summary's 'origin_ns' is impossible")
    warnings = summary.get("warnings")
    if not isinstance(warnings, list) or not all(isinstance(w, str) for w in warnings):
        raise _damaged("the summary's warnings are not texts")
    for name in ("grid", "block"):
        shape = summary.get(name)
        if shape is not None and not (
            isinstance(shape, list) and len(shape) == 3 and all(type(x) is int and x > 0 for x in shape)
        ):
            raise _damaged(f"the summary's '{name}' is not a shape")
    return summary


def _damaged(what: str) -> BadInput:
    return BadInput("XT8403", f"not a trace file, or a damaged one: {what}")
