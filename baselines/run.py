"""Launch a built baseline image on a device, so that it can be timed launch for launch against the original.

A :class:`BaselineArm` has the same ``launch(index)`` as the arms of :mod:`xtrace.runtime`, so the paired timer takes
it as it is. Only the kernel is timed: a tool's own copying back and synchronising are not part of an arm.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xtrace.errors import BadInput, Unsupported, XtraceError
from xtrace.runtime.device import Device, LaunchConfig
from xtrace.runtime.launch import DirectArm, Parameters

__all__ = ["BaselineArm", "records_per_warp"]

SCHEMA = "xtrace/baseline/1"
_PREAMBLE = 0xDEADBEEF
_COUNTS_AT = 40  # bytes: where Proton's per-warp word counts begin in a block's buffer


def read_result(folder: Path) -> dict[str, Any]:
    """The ``result.json`` of a built pair.

    Raises
    ------
    BadInput
        XT7351 when it is missing or not such a document.
    Unsupported
        XT7352, with the recorded reason, when the pair was not built.
    """
    path = folder / "result.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(
            "XT7351", f"cannot be read: {error}", where=str(path), hint="build the baseline first"
        ) from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise BadInput("XT7351", f"is not a {SCHEMA} document", where=str(path))
    if document.get("status") != "ok":
        raise Unsupported("XT7352", f"no image: {document.get('reason')}", where=str(path))
    return document


@dataclass
class BaselineArm:
    """The instrumented image, loaded, with its buffers. Build with :meth:`load`, end with :meth:`close`."""

    device: Device
    arm: DirectArm
    result: Mapping[str, Any]
    config: LaunchConfig
    buffers: list[tuple[int, int]]  # address, bytes
    allocations: list[int]

    @classmethod
    def load(
        cls, device: Device, folder: Path, config: LaunchConfig, parameter_sets: Sequence[Parameters]
    ) -> BaselineArm:
        """Load ``folder/instrumented.cubin`` and allocate what it needs.

        ``config`` and ``parameter_sets`` are the original's: dynamic shared memory is replaced by what the tool needs,
        and buffer addresses go into (or behind) the parameters.

        Raises
        ------
        Unsupported
            XT7353 when the launch is larger than the tool's offset arithmetic allows; XT7352 see above.
        BadInput
            XT7354 when the parameters are not the original's.
        """
        result = read_result(folder)
        launch = result["launch"]
        if launch["dynamic_shared"] is not None:
            config = replace(config, shared=int(launch["dynamic_shared"]))
        allocated: list[tuple[int, int]] = []
        raw: list[int] = []
        try:
            sets = [list(p) for p in parameter_sets]
            for buffer in launch["buffers"]:
                units = config.ctas * (config.warps_per_cta if buffer["unit"] == "warp" else 1)
                if buffer["max_units"] is not None and units > buffer["max_units"]:
                    what = f"{result['title']} addresses at most {buffer['max_units']} {buffer['unit']}s, not {units}"
                    raise Unsupported("XT7353", what, where=str(folder))
                size = units * int(buffer["bytes_per_unit"]) + int(buffer["slack"])
                align = int(buffer["align"])
                raw.append(device.allocate(size + align))
                address = -(-raw[-1] // align) * align
                device.fill(address, size, 0)
                allocated.append((address, size))
                for values in sets:
                    _place(values, buffer, address, str(folder))
            for values in sets:
                if len(values) != launch["parameters"]:
                    what = f"{len(values)} parameters, the kernel takes {launch['parameters']}"
                    raise BadInput("XT7354", what, where=str(folder))
            image = (folder / result["files"]["instrumented"]).read_bytes()
            arm = DirectArm(device, image, str(launch["function"]), config, sets)
        except BaseException:
            for address in raw:
                device.free(address)
            raise
        return cls(device, arm, result, config, allocated, raw)

    def launch(self, index: int) -> None:
        """Enqueue one launch on parameter set ``index`` modulo their number."""
        self.arm.launch(index)

    def zero(self) -> None:
        """Clear all buffers; before a launch whose trace will be read."""
        for address, size in self.buffers:
            self.device.fill(address, size, 0)

    def read(self) -> list[bytes]:
        """The buffers' contents; call after the launch was synchronised."""
        return [self.device.download(address, size) for address, size in self.buffers]

    def close(self) -> None:
        """Unload the image and free the buffers."""
        self.arm.close()
        for address in self.allocations:
            self.device.free(address)
        self.allocations = []


def _place(values: list[tuple[str, int | float]], buffer: Mapping[str, Any], address: int, where: str) -> None:
    index = int(buffer["parameter"])
    if buffer["appended"] and index == len(values):
        values.append(("u64", address))
    elif not buffer["appended"] and index < len(values):
        values[index] = ("u64", address)
    else:
        raise BadInput("XT7354", f"no place for buffer {buffer['name']!r} among {len(values)} parameters", where=where)


def records_per_warp(result: Mapping[str, Any], data: bytes, config: LaunchConfig) -> npt.NDArray[np.int64]:
    """Records that each warp of the launch emitted, from a buffer that was zeroed before it (0: the warp left none).

    Raises
    ------
    XtraceError
        XT7355 when a PTX-probe slot is full: its probes do not check bounds, so the trace can not be trusted.
    """
    buffer = result["launch"]["buffers"][0]
    unit = int(buffer["bytes_per_unit"])
    used: npt.NDArray[np.int64]
    if str(result["tracer"]).startswith("proton"):
        words = np.frombuffer(data, "<u4", config.ctas * unit // 4).reshape(config.ctas, unit // 4)
        first = _COUNTS_AT // 4
        used = words[:, first : first + config.warps_per_cta].astype(np.int64) // 2
        used[words[:, 0] != _PREAMBLE] = 0
        return used.reshape(-1)
    record = int(result["record"]["bytes"]) // 8
    slots = np.frombuffer(data, "<u8", config.warps * unit // 8).reshape(config.warps, -1, record)
    used = np.count_nonzero(slots[:, :, 0], axis=1).astype(np.int64)
    capacity = int(result["record"]["capacity"])
    if capacity > 1 and not result["record"]["bounds_check"] and bool((used >= capacity).any()):
        what = f"a warp filled its slot of {capacity} records"
        raise XtraceError("XT7355", what, hint="build with a larger --capacity")
    return used
