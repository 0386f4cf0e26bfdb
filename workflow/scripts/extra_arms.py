"""Further arms of a cell, measured in the same process: the pad control and the image of an older revision."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workflow.scripts.gpu_files import CellName
from xtrace.errors import XtraceError
from xtrace.runtime.buffers import TraceBuffer
from xtrace.runtime.device import Device
from xtrace.runtime.older import older_image
from xtrace.runtime.replicate import Instrumented, check_cell
from xtrace.runtime.timing import Arm
from xtrace.splice.pad import pad

__all__ = ["ExtraArms", "load_extra"]


@dataclass
class ExtraArms:
    """``arms`` by kind of block; ``notes`` are keys of the sample document, with the reason where an arm is missing."""

    arms: dict[str, Arm] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)


def load_extra(
    device: Device,
    case: Any,
    cell: CellName,
    stack: contextlib.ExitStack,
    *,
    want_pad: bool,
    want_base: bool,
    revision: str = "",
    timeout_s: float = 60.0,
) -> ExtraArms:
    """Load the arms that are wanted and check their outputs. An arm that cannot be had leaves its reason, not an error.

    Only Xtrace's own cells have them: there is no map of what another tracer inserted.
    """
    out = ExtraArms()
    if cell.tracer != "xtrace":
        return out

    def add(
        kind: str,
        key: str,
        note: dict[str, Any],
        loaded: Instrumented,
        older: Mapping[str, TraceBuffer] | None = None,
    ) -> None:
        stack.callback(loaded.close)
        report = check_cell(device, case, loaded, full=False, timeout_s=timeout_s)
        values, failures = report.values, report.failures
        if older is not None:  # of another format: not read, but it must have been written
            values |= {"guards_intact": all(b.guards_intact() for b in older.values())}
            values |= {"trace_written": any(not b.untouched() for b in older.values())}
            failures += [name for name in ("guards_intact", "trace_written") if not values[name]]
        out.notes[key] = note | {"checks": values}
        if failures:
            print(f"CHECK {cell} {key}: {', '.join(failures)}", flush=True)
            out.notes[key]["unsupported"] = f"not timed, failed: {', '.join(failures)}"
            return
        out.arms[kind] = loaded.arm

    image, trace_map = case.folders.traced_image(cell.workload, cell.probes)
    if want_pad:
        try:
            padded = pad(image, trace_map, f"{cell.workload}/{cell.probes}")
            add("AP", "pad", {"sha256": hashlib.sha256(padded.data).hexdigest()}, case.untraced(padded.data))
        except XtraceError as error:
            _missing(out, cell, "pad", error)
    if want_base:
        try:
            old, old_map = case.folders.base_image(cell.workload, cell.probes)
            note = {
                "revision": revision,
                "sha256": hashlib.sha256(old).hexdigest(),
                "xtrace": str(old_map.get("xtrace", "")),
                "identical": old == image,
            }
            if old_map.get("schema") == trace_map.get("schema"):
                add("AO", "base", note, case.traced(old, old_map))
            else:
                patched, buffers = older_image(device, old, old_map, str(case.meta["kernel"]), case.warps)
                for buffer in buffers.values():
                    stack.callback(buffer.free)
                add("AO", "base", note | {"format": str(old_map["schema"])}, case.untraced(patched), buffers)
        except XtraceError as error:
            _missing(out, cell, "base", error)
    return out


def _missing(out: ExtraArms, cell: CellName, key: str, error: XtraceError) -> None:
    if error.code in FATAL:  # the context is lost: nothing else can run in this process either
        raise error
    print(f"unsupported {cell} {key}: {error}", flush=True)
    out.notes[key] = {"unsupported": str(error)}


FATAL = ("XT5006", "XT5007", "XT5008")
"""Codes of errors after which the context is lost and the process must end."""
