"""The simulated device takes real images, leaves what their trace maps promise, and never passes for a real one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import xtrace
from xtrace.errors import XtraceError
from xtrace.runtime.checks import trace_facts
from xtrace.runtime.device import LaunchConfig, open_device
from xtrace.runtime.launch import DirectArm, run_traced
from xtrace.runtime.simulated_machine import SimulatedMachine
from xtrace.trace import decode

CONFIG = LaunchConfig(grid=(3, 1, 1), block=(64, 1, 1))


@pytest.fixture
def machine(tmp_path: Path) -> SimulatedMachine:
    return SimulatedMachine(maps=tmp_path)


@pytest.mark.parametrize("name", ["triton_rmsnorm", "triton_softmax"])
def test_a_traced_image_leaves_a_header_a_warp_and_a_record_a_site(
    machine: SimulatedMachine, golden_image: Callable[[str], Path], name: str
) -> None:
    result = xtrace.splice(xtrace.load(golden_image(name)), probes="pp")
    (machine.maps / "pp.cubin.map.json").write_text(json.dumps(result.map))
    entry = result.map["kernels"][0]
    trace = run_traced(machine, result.data, result.map, entry["name"], CONFIG, [("ptr", machine.allocate(4096))])
    facts = trace_facts(trace, entry, CONFIG.warps_per_cta)
    sites = [s["id"] for s in entry["sites"] if s["id"] is not None]
    assert facts.warps == 6
    assert facts.per_site == dict.fromkeys(sites, 6)
    assert facts.monotonic
    assert facts.bracketed
    assert facts.lost == facts.unknown_sites == 0
    assert ("stripe" in entry["slot"]) == (name == "triton_softmax")


def test_a_sampled_image_leaves_what_its_rule_takes(
    machine: SimulatedMachine, golden_image: Callable[[str], Path]
) -> None:
    result = xtrace.splice(xtrace.load(golden_image("triton_rmsnorm")), probes="pp", sample="cta=2,warp=1")
    (machine.maps / "pp.cubin.map.json").write_text(json.dumps(result.map))
    entry = result.map["kernels"][0]
    trace = run_traced(machine, result.data, result.map, entry["name"], CONFIG, [("ptr", machine.allocate(4096))])
    tables = decode(trace.data, trace.map_for(result.map, entry["name"]), entry["name"], grid=(3, 1, 1), block=(64,))
    assert list(zip(tables.warps["cta"], tables.warps["warp"], strict=True)) == [(0, 1), (2, 1)]
    assert tables.summary["complete"]


def test_an_original_writes_its_buffers_and_takes_virtual_time(
    machine: SimulatedMachine, golden_image: Callable[[str], Path]
) -> None:
    image = golden_image("triton_softmax")
    name = xtrace.load(image).kernels[0].name
    out = machine.allocate(4096)
    machine.fill(out, 4096, 0xFF)
    before = machine.now_ns
    arm = DirectArm(machine, image.read_bytes(), name, CONFIG, [[("ptr", out), ("i32", 5)]])
    arm.launch(0)
    assert machine.now_ns > before
    first = machine.download(out, 64)
    assert first != b"\xff" * 64
    arm.launch(0)
    assert machine.download(out, 64) == first


def test_what_is_no_image_or_no_kernel_is_refused(
    machine: SimulatedMachine, golden_image: Callable[[str], Path]
) -> None:
    with pytest.raises(XtraceError):
        machine.load(b"not an image")
    with pytest.raises(XtraceError, match="nowhere"):
        machine.load(golden_image("spin").read_bytes()).kernel("nowhere")


def test_every_gpu_that_a_scheduler_gives_is_a_device_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XTRACE_DEVICE", "simulated")
    uuids = set()
    for visible in ("0", "1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        info = open_device().info
        uuids.add(info.uuid)
        assert (info.name, info.driver) == ("Simulated GPU", "simulated")
    assert len(uuids) == 2
