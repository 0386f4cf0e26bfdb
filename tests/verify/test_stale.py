"""Optional events that are cleared in front of their loop alone: what the map says of them must be so on every way."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pytest

from tests.splice.conftest import image
from tests.verify import handmade as h
from tests.verify.subject import Subject
from tests.verify.test_rules import certificate, failed
from xtrace.splice import Options, apply, plan
from xtrace.verify import verify
from xtrace.verify.ring import Ring

Islands = dict[int, list[int]]
NAME = "triton_fa_fwd"
FRONT, HEAD, SIDE, BEHIND = 0x16D0, 0x16E0, 0x19A0, 0x2380  # in front of the loop; its head, a side path, its end
SECOND = f"pc:{HEAD:#x},pc:{SIDE:#x},pc:{BEHIND:#x}"
FIRST = f"pc:{SIDE:#x},pc:{BEHIND:#x}"  # the optional event is the packet's first
CLEAR, CLOCK, STORE = 0x7802, 0x7805, 0x986  # low bits of words, any guard but the store's


@lru_cache(maxsize=2)
def subject(spec: str) -> Subject:
    loaded = image(NAME)
    result = apply(plan(loaded, loaded.kernels[:1], spec, Options(64)))
    return Subject(spec, loaded.data, result.data, result.map, loaded.kernels[0].name)


def rebuilt(spec: str, change: Callable[[Islands], None] = lambda islands: None, **claims: Any) -> h.Traced:
    """The spliced image, put together again after ``change`` of its islands."""
    s = subject(spec)
    islands = {16 * i: [s.traced[j].word for j in island] for i, island in s.islands}
    change(islands)
    place = {s.new.offset + 16 * j + 4: (16 * i, j - island[0]) for i, island in s.islands for j in island}
    traced = h.insert(
        h.GOLDEN / f"{NAME}.cubin",
        islands,
        registers=s.claim["registers"]["after"],
        probe_registers=s.claim["probe_registers"],
        patches={place[p["offset"]]: p["value"] for p in s.claim["patches"]},
        sites=s.claim["sites"],
        packets=s.claim["packets"],
    )
    return traced.with_kernel(slot=s.claim["slot"], **claims)


def _register(islands: Islands) -> int:
    """The one that takes the clock on the side path."""
    return next(w for w in islands[SIDE] if w & 0xFFFF == CLOCK) >> 16 & 0xFF


def _no_clear(islands: Islands) -> None:
    at = next(k for k, w in enumerate(islands[FRONT]) if w & 0xFFFF == CLEAR and w >> 16 & 0xFF == _register(islands))
    islands[FRONT][at] = h.nop(h.control(4))


def _clear_on_the_side_path(islands: Islands) -> None:
    _no_clear(islands)
    islands[SIDE].insert(0, h.mov(_register(islands), 0, h.control(8)))


def _other_clock(islands: Islands) -> None:
    islands[BEHIND].insert(0, h.clock(_register(islands), h.control(8)))


def _other_value(islands: Islands) -> None:
    islands[BEHIND].insert(0, h.mov(_register(islands), 5, h.control(8)))


def _renamed(islands: Islands) -> None:
    """All of the packet goes through registers of which the kernel writes the optional event's in the loop."""
    s, r = subject(SECOND), _register(islands)
    gpr, base = s.model.layout["R"], r & ~3
    loop = s.code[HEAD // 16 : 0x42B0 // 16]
    named = next(n for n in range(r & 3, base, 4) if any(ins.writes & gpr.bit(n) for ins in loop))
    for pc, words in islands.items():
        for k, w in enumerate(words if FRONT <= pc < 0x42B0 else ()):
            for opcode, first in ((CLEAR, 16), (CLOCK, 16), (STORE, 32)):
                if w & 0xFFF == opcode & 0xFFF and base <= w >> first & 0xFF < base + 4:
                    words[k] = w + (named - r << first)


FAULTS = {
    "no clear": _no_clear,
    "clear where not every way passes": _clear_on_the_side_path,
    "another clock in the register": _other_clock,
    "another value in the register": _other_value,
    "a register that the kernel writes": _renamed,
}
WHY = ("holds neither the clock of event", "was seen")  # the kernel overwrites the packet's tag as well


@pytest.mark.parametrize("spec", [FIRST, SECOND])
def test_clear_in_front_of_the_loop_is_proved(spec: str) -> None:
    s = subject(spec)
    assert s.map["schema"] == "xtrace/map/6"
    assert [p["uncleared"] for p in s.claim["packets"]] == [[1 if spec == FIRST else 2]]
    verdict = verify(s.original, s.data, s.map)
    assert verdict.ok, [str(w) for w in verdict.failures]
    assert certificate(rebuilt(spec)).ok


def _faults(traced: h.Traced, monkeypatch: pytest.MonkeyPatch, *, alone: bool) -> str:
    """Why the image is refused; ``alone``: by the proof, without a look at packets on the ways of the dry run."""
    if alone:
        compare = Ring.wrong
        monkeypatch.setattr(Ring, "wrong", lambda *args: compare(*args)[:0])
    return failed(traced)["effects"]


WAYS = pytest.mark.parametrize(("spec", "alone"), [(FIRST, True), (SECOND, True), (SECOND, False)])


@WAYS
@pytest.mark.parametrize("name", FAULTS)
def test_register_that_may_hold_anything_else_is_found(
    name: str, spec: str, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = _faults(rebuilt(spec, FAULTS[name]), monkeypatch, alone=alone)
    assert not alone or any(why in found for why in WHY)


@WAYS
def test_map_that_does_not_name_the_event_is_found(spec: str, alone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    packets = [{k: v for k, v in p.items() if k != "uncleared"} for p in subject(spec).claim["packets"]]
    found = _faults(rebuilt(spec, packets=packets), monkeypatch, alone=alone)
    assert not alone or "once more, which the map does not say" in found


@pytest.mark.parametrize("claim", [[3], [3, 2], [7], [2, 2]])
def test_map_with_events_that_cannot_be_left_out_is_found(claim: list[int]) -> None:
    packets = [p | {"uncleared": claim} for p in subject(SECOND).claim["packets"]]
    assert "not cleared" in failed(rebuilt(SECOND, packets=packets))["effects"]
