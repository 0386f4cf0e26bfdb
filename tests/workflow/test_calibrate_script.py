"""From the parts of several processes to a calibration that a measurement accepts."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from workflow.scripts import calibrate, protocol
from workflow.scripts.common import read_json, write_json
from xtrace.errors import BadInput
from xtrace.runtime.device import MachineState
from xtrace.runtime.simulated import SimulatedDevice


def part(number: int, placement: float, noise: float = 0.004) -> dict[str, Any]:
    rng = random.Random(number)
    luck = rng.gauss(0, placement)
    blocks = [
        {"kind": "AA", "order": "ABBA", "ns": [1e5, 1e5 * (1 + luck + rng.gauss(0, noise)), 1e5 * (1 + luck), 1e5]}
        for _ in range(20)
    ]
    clocks = {"lowest_mhz": 1650 - number, "highest_mhz": 1980, "throttle": ["none"]}
    curve = [
        {"factor": f, "bytes": int(f * 1e6), "ns": [t]} for f, t in ((0.0, 50.0), (1.0, 80.0), (2.5, 90.0), (4.0, 90.1))
    ]
    return {
        "process": number,
        "event_gaps_ns": [1024.0, 1056.0, 1024.0],
        "flush": {"workload": "w", "shape": {}, "curve": curve},
        "controls": {"w": {"blocks": blocks, "seconds": 1.0, "block_seconds": 0.01, "clocks": clocks}},
        "provenance": {"device": "a GPU", "uuid": SimulatedDevice().info.uuid},
        "machine": {"clocks": {"policy": "unlocked"}},
        "clock_lock": {"permitted": False, "why": "only the administrator may set clocks", "tried": False},
        "seconds": 9.0,
    }


def test_the_parts_become_a_calibration_that_measurements_use(tmp_path: Path) -> None:
    document = calibrate.combine([part(n, 0.002) for n in range(6)], target=0.003)
    path = tmp_path / "c.json"
    write_json(path, document)
    assert document["event"]["step_ns"] == 32.0
    assert document["flush"]["cold_factor"] == 2.5
    assert document["clocks"]["lowest_mhz"] == 1645
    assert document["noise"]["processes"] == 6
    derived = protocol.derived(path)
    assert derived["flush_factor"] == 2.5
    assert derived["processes"] >= 10
    assert document["derived"]["target_reached"]
    assert document["derived"]["half_width"] <= 0.003
    assert "cold from 2.5 L2 sizes on" in calibrate.summary(document)
    assert read_json(path)["schema"] == "xtrace/calibration/1"


def test_a_noisier_machine_needs_more_and_says_when_it_is_not_enough() -> None:
    quiet = calibrate.combine([part(n, 0.001) for n in range(6)], target=0.003)
    loud = calibrate.combine([part(n, 0.004) for n in range(6)], target=0.003)
    assert loud["derived"]["processes"] > quiet["derived"]["processes"]
    hopeless = calibrate.combine([part(n, 0.05) for n in range(6)], target=0.003)
    assert not hopeless["derived"]["target_reached"]
    assert "not the target" in calibrate.summary(hopeless)


@pytest.mark.parametrize(
    ("restricted", "root", "permitted"),
    [(None, False, None), (True, False, False), (True, True, True), (False, False, True)],
)
def test_the_ability_to_lock_clocks_is_asked_not_tried(restricted, root, permitted, monkeypatch) -> None:
    monkeypatch.setattr(calibrate.os, "geteuid", lambda: 0 if root else 1000)
    found = calibrate.clock_lock(MachineState(clocks_restricted=restricted))
    assert (found["permitted"], found["tried"]) == (permitted, False)


def test_one_process_cannot_calibrate(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="1 processes"):
        calibrate.main(["--out", str(tmp_path / "c.json"), "--processes", "1"])
