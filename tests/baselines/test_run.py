"""Baseline images are launched with the original's arguments plus the tool's buffers."""

from __future__ import annotations

import ctypes
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baselines.run import BaselineArm, read_result, records_per_warp
from xtrace.errors import BadInput, Unsupported, XtraceError
from xtrace.runtime.device import LaunchConfig
from xtrace.runtime.params import PackedParams
from xtrace.runtime.simulated import SimulatedDevice, simulated_image

CONFIG = LaunchConfig((3, 1, 1), (64, 1, 1), shared=1000)
PARAMETERS = [("*bf16", 0x1000), ("i32", 7), ("*i8", 0), ("*i8", 0)]


def folder(tmp_path: Path, **changes: Any) -> Path:
    buffer = {
        "name": "map",
        "parameter": 4,
        "appended": True,
        "unit": "warp",
        "bytes_per_unit": 64,
        "align": 128,
        "zero": True,
        "slack": 64,
        "max_units": None,
    }
    buffer |= changes
    document = {
        "schema": "xtrace/baseline/1",
        "tracer": "ptx-probe" if buffer["appended"] else "proton",
        "title": "T",
        "status": "ok",
        "reason": "",
        "files": {"instrumented": "instrumented.cubin"},
        "record": {"bytes": 8, "capacity": 8, "bounds_check": False},
        "launch": {
            "function": "k",
            "parameters": 5 if buffer["appended"] else 4,
            "dynamic_shared": 2000,
            "buffers": [buffer],
        },
    }
    (tmp_path / "result.json").write_text(json.dumps(document))
    (tmp_path / "instrumented.cubin").write_bytes(simulated_image("k"))
    return tmp_path


def values(packed: PackedParams, index: int) -> int:
    """The 64-bit value that the launch passes as parameter ``index``."""
    array = (ctypes.c_void_p * len(packed.params)).from_address(packed.address)
    return ctypes.c_uint64.from_address(array[index] or 0).value


def device_with(behaviour: Any) -> SimulatedDevice:
    return SimulatedDevice(behaviours={"k": behaviour})


def test_buffers_and_shared_memory_of_the_launch(tmp_path: Path) -> None:
    seen: list[tuple[int, int, LaunchConfig]] = []

    def kernel(device: SimulatedDevice, image: bytes, config: LaunchConfig, packed: PackedParams) -> float:
        address = values(packed, 4)
        device.poke(address + 5 * 64, struct.pack("<QQ", 11, 22))  # two records of the last warp
        seen.append((len(packed.params), address, config))
        return 5.0

    device = device_with(kernel)
    arm = BaselineArm.load(device, folder(tmp_path), CONFIG, [PARAMETERS])
    arm.launch(0)
    count, address, config = seen[0]
    assert (count, address % 128, config.shared) == (5, 0, 2000)
    data = arm.read()[0]
    assert len(data) == 6 * 64 + 64
    assert records_per_warp(arm.result, data, CONFIG).tolist() == [0, 0, 0, 0, 0, 2]
    arm.zero()
    assert not any(arm.read()[0])
    arm.close()
    assert device.unloads == 1
    assert not device._memory


def test_a_buffer_can_take_the_place_of_a_null_parameter(tmp_path: Path) -> None:
    def kernel(device: SimulatedDevice, image: bytes, config: LaunchConfig, packed: PackedParams) -> float:
        address = values(packed, 3)
        for cta in range(3):
            device.poke(address + cta * 128, struct.pack("<I", 0xDEADBEEF))
            device.poke(address + cta * 128 + 40, struct.pack("<II", 2 * cta, 4))
        return 5.0

    changes = {"parameter": 3, "appended": False, "unit": "cta", "bytes_per_unit": 128, "slack": 0}
    arm = BaselineArm.load(device_with(kernel), folder(tmp_path, **changes), CONFIG, [PARAMETERS])
    arm.launch(0)
    assert records_per_warp(arm.result, arm.read()[0], CONFIG).tolist() == [0, 2, 1, 2, 2, 2]
    arm.close()


def test_a_launch_beyond_the_tools_own_arithmetic_is_refused(tmp_path: Path) -> None:
    device = device_with(lambda *_: 1.0)
    with pytest.raises(Unsupported, match="at most 5 warps"):
        BaselineArm.load(device, folder(tmp_path, max_units=5), CONFIG, [PARAMETERS])
    assert not device._memory


@pytest.mark.parametrize("parameters", [PARAMETERS[:2], [*PARAMETERS, ("i32", 1)]])
def test_wrong_parameters_are_refused_and_nothing_stays_allocated(tmp_path: Path, parameters: Any) -> None:
    device = device_with(lambda *_: 1.0)
    with pytest.raises(BadInput, match="parameters"):
        BaselineArm.load(device, folder(tmp_path), CONFIG, [parameters])
    assert not device._memory


def test_a_full_slot_is_not_trusted(tmp_path: Path) -> None:
    result = read_result(folder(tmp_path))
    full = np.arange(1, 6 * 8 + 1, dtype="<u8").tobytes()
    with pytest.raises(XtraceError, match="filled its slot of 8"):
        records_per_warp(result, full, CONFIG)


def test_an_unsupported_pair_gives_its_reason(tmp_path: Path) -> None:
    path = folder(tmp_path) / "result.json"
    path.write_text(path.read_text().replace('"ok"', '"unsupported"').replace('"reason": ""', '"reason": "no PTX"'))
    with pytest.raises(Unsupported, match="no PTX"):
        read_result(tmp_path)
    path.write_text("{}")
    with pytest.raises(BadInput, match="document"):
        read_result(tmp_path)
