"""Optional events of a loop, end to end: what a reader finds is what happened, though nothing clears them in the loop.

The verifier's dry run executes the probes along ways through the kernel and knows each clock that was read.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from tests import disassembly
from tests.splice.conftest import image
from tests.trace.test_accesses import buffer_of
from xtrace.fidelity import compare
from xtrace.image import parse
from xtrace.runtime.patching import kernel_entry
from xtrace.splice import Options, ahead, apply, plan
from xtrace.trace import decode
from xtrace.verify import verify, walks
from xtrace.verify.ring import Ring

NAME = "triton_fa_fwd"
HEAD, SIDE, BEHIND = 0x16E0, 0x19A0, 0x2380  # of its loop: the side path is for blocks on the diagonal
SECOND = f"pc:{HEAD:#x},pc:{SIDE:#x},pc:{BEHIND:#x}"
FIRST = f"pc:{SIDE:#x},pc:{BEHIND:#x}"  # the optional event is the packet's first


def runs(spec: str, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], list[tuple[bytes, dict[int, list[int]]]]]:
    """The trace map, and of every way: device memory at its end, and the clocks read at each site."""
    loaded = image(NAME)
    traced = apply(plan(loaded, loaded.kernels[:1], spec, Options(64)))
    entry = traced.map["kernels"][0]
    seen = []
    check = Ring.wrong

    def keep(ring: Ring, smid: int, end: int, pc: int) -> str:
        truth = {
            s["id"]: [clock for clocks in ring.runs.get(s["pc"] // 16, []) for clock in clocks]
            for s in entry["sites"]
            if s["id"] is not None
        }
        seen.append((buffer_of(entry, ring), truth))
        return check(ring, smid, end, pc)

    disassembly.use(monkeypatch)
    monkeypatch.setattr(walks, "_RANDOM_WALKS", 16)
    monkeypatch.setattr(Ring, "wrong", keep)
    assert verify(loaded.data, traced.data, traced.map).ok
    monkeypatch.setattr(Ring, "wrong", check)
    return traced.map, seen


def events(trace_map: dict[str, Any], memory: bytes) -> pd.DataFrame:
    return decode(memory, trace_map, trace_map["kernels"][0]["name"]).events


@pytest.mark.golden
def test_such_an_image_can_be_compared_and_loaded() -> None:
    loaded = image(NAME)
    traced = apply(plan(loaded, loaded.kernels[:1], SECOND, Options(64)))
    assert traced.map["schema"] == "xtrace/map/6"
    assert compare(loaded, parse(traced.data, "traced"), map=traced.map)[0].relocated == 1
    assert kernel_entry(traced.map, loaded.kernels[0].name)["packets"][0]["uncleared"] == [2]


@pytest.mark.golden
@pytest.mark.parametrize("spec", [FIRST, SECOND])
def test_events_are_those_that_happened(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trace_map, seen = runs(spec, monkeypatch)
    entry = trace_map["kernels"][0]
    (packet,) = entry["packets"]
    (optional,) = packet["uncleared"]
    cleared = [i["pc"] for i in entry["islands"] if i["kind"] == "prepare"]
    assert cleared == [HEAD - 16]  # in front of the loop
    skipped = taken = 0
    for memory, truth in seen:
        if not any(truth.values()):
            continue
        found = events(trace_map, memory)
        for site, clocks in truth.items():
            newest = found["clock"][found["site"] == site].tolist()
            whole = len(found) == sum(map(len, truth.values()))
            assert newest == (clocks if whole else clocks[len(clocks) - len(newest) :])
        last = int((found["site"] == packet["sites"][-1]).sum())
        taken += int((found["site"] == optional).sum())
        skipped += last - int((found["site"] == optional).sum())
    assert min(skipped, taken) > 20


@pytest.mark.golden
def test_events_are_those_of_an_image_that_clears_in_every_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    trace_map, seen = runs(SECOND, monkeypatch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ahead, "_clears", lambda *args: None)
        plain_map, plain = runs(SECOND, monkeypatch)
    assert trace_map["schema"] == "xtrace/map/6"
    assert plain_map["schema"] == "xtrace/map/2"
    same_way = {str(truth): memory for memory, truth in plain if any(truth.values())}
    differing = 0
    for memory, truth in seen:
        if (other := same_way.get(str(truth))) is not None:
            columns = ["seq", "site", "clock"]
            pd.testing.assert_frame_equal(events(trace_map, memory)[columns], events(plain_map, other)[columns])
            differing += memory != other
    assert differing > 5  # where a clock is left over
