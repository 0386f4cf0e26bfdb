"""Optional events whose registers are cleared in front of their loop alone: a clock left over is told from a new one.

The writer keeps registers as probe code does: a capture writes one, a new run of the loop clears it, and whatever is
there goes into the packet. What really happened is known without reading anything back.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xtrace.errors import BadInput
from xtrace.runtime.buffers import SlotLayout, TraceBytes
from xtrace.runtime.checks import trace_facts
from xtrace.trace import decode
from xtrace.trace.packets import read_events
from xtrace.trace.tags import Packet, Tags

KERNEL = "k"
SLACK = 512
LOW = 0xFFFFFFFF
NEAR_WRAP = (1 << 32) - 30_000


@dataclass
class Case:
    """Loops of one packet each. ``kinds[n]`` has a letter per event: always there, Optional, Uncleared."""

    ring: int
    kinds: list[str]
    warps: list[list[int]]  # packets that the warp emits
    begin: int
    seed: int
    events: list[list[tuple[int, int, int]]] = field(default_factory=list)  # per warp: seq, site, clock of what is kept
    emitted: list[int] = field(default_factory=list)

    def map(self) -> dict[str, Any]:
        ids, packets = iter(range(1, 1000)), []
        for tag, kind in enumerate(self.kinds, 1):
            sites = [next(ids) for _ in kind]
            packet = {"tag": tag, "sites": sites}
            if uncleared := [n for n, letter in zip(sites, kind, strict=True) if letter == "U"]:
                packet["uncleared"] = uncleared
            packets.append(packet)
        sites = [{"id": i, "pc": 16 * i, "op": "NOP", "phase": "p"} for i in range(1, next(ids))]
        slot = {"stride": self.ring + SLACK, "ring": self.ring, "record": 4, "header_bytes": 32}
        return {
            "schema": "xtrace/map/6",
            "kernels": [{"name": KERNEL, "sites": sites, "packets": packets, "slot": slot}],
        }

    def buffer(self) -> bytes:
        rng, packets = random.Random(self.seed), self.map()["kernels"][0]["packets"]
        slots, headers = b"", b""
        for picks in self.warps:
            data, clock, offset = bytearray(self.ring + SLACK), self.begin, 0
            registers: dict[int, int] = {}
            events: list[tuple[int, int, int]] = []  # offset, site, clock
            doubtful = []  # uncleared ones in front of the first certain one of their packet
            for number, pick in enumerate(picks):
                if number and (picks[number - 1] != pick or rng.random() < 0.1):
                    registers = {n: c for n, c in registers.items() if n not in packets[pick]["sites"]}
                words: list[int] = []
                leading = True
                for site, letter in zip(packets[pick]["sites"], self.kinds[pick], strict=True):
                    clock += rng.choice([1, 7, 300, 5000])
                    clock += (1 << 17) * (clock & LOW < 1 << 17)  # no clock looks like a tag
                    happens = letter == "A" or rng.random() < 0.5
                    if letter == "O":
                        registers[site] = 0
                    if happens:
                        registers[site] = clock
                        events.append((offset, site, clock))
                        if leading and letter == "U":
                            doubtful.append(events[-1])
                    words.append(registers.get(site, 0))
                    leading &= letter == "U" or not happens
                size = len(words) // 4 + 1
                words = [rng.getrandbits(32)] * (4 * size - 1 - len(words)) + [w & LOW for w in words]
                struct.pack_into(f"<{4 * size}I", data, offset % self.ring, *words, packets[pick]["tag"])
                offset += 16 * size
            kept = min((start for start, _, _ in events if start >= offset - self.ring), default=0)
            lost = offset > self.ring
            self.events.append(
                [
                    (seq, site, t)
                    for seq, (start, site, t) in enumerate(events)
                    if start >= kept and not (lost and start == kept and (start, site, t) in doubtful)
                ]
            )
            self.emitted.append(len(events))
            slots += data
            counts = (len(events) & 0xFFFFFF) << 8
            headers += struct.pack(
                "<4IQII", 32_000, (self.begin - 5) & LOW, counts, 0, 64_000, (clock + 9) & LOW, offset
            )
        return slots + bytes(self.ring + SLACK) + headers + bytes(32)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kind = st.builds(lambda some: "".join(some) + "A", st.lists(st.sampled_from("AOUU"), max_size=11))
    kinds = draw(st.lists(kind.filter(lambda k: k.count("A") > len(k) // 4), min_size=1, max_size=4))
    runs = st.lists(
        st.tuples(st.integers(0, len(kinds) - 1), st.integers(1, 9)), max_size=draw(st.sampled_from([3, 30]))
    )
    warps = [[pick for pick, times in draw(runs) for _ in range(times)] for _ in range(draw(st.integers(1, 3)))]
    return Case(
        1 << draw(st.integers(6, 10)),
        kinds,
        warps,
        draw(st.sampled_from([1 << 20, NEAR_WRAP])),
        draw(st.integers(0, 1 << 30)),
    )


@settings(max_examples=150, deadline=None)
@given(cases())
def test_events_that_did_not_happen_are_told_by_their_clocks(case: Case) -> None:
    trace_map, buffer = case.map(), case.buffer()
    kept = [len(events) for events in case.events]
    entry = trace_map["kernels"][0]
    facts = trace_facts(TraceBytes(buffer, SlotLayout.of(entry["slot"]), len(case.warps), False), entry)
    assert (facts.emitted, facts.written, facts.ambiguous) == (sum(case.emitted), sum(kept), 0)
    assert facts.monotonic
    assert facts.bracketed
    if not sum(kept):
        return
    tables = decode(buffer, trace_map, KERNEL)
    for slot, events in enumerate(case.events):
        rows = tables.events[tables.events["slot"] == slot]
        assert list(zip(rows["seq"], rows["site"], rows["clock"], strict=True)) == events
    assert tables.warps["emitted"].tolist() == case.emitted
    assert tables.summary["overwritten"] == tables.summary["dropped"] == sum(case.emitted) - sum(kept)
    assert not tables.summary["non_monotonic"]


def _read(words: list[int], packets: list[Packet], emitted: int, ring: int = 64) -> Any:
    slot = np.array(words, np.uint32)[None, :]
    quads, exit_lo = np.array([len(words) // 4]), np.array([1 << 20])
    tags = Tags.of(packets)
    return read_events(slot, np.array([0]), quads, np.array([emitted]), exit_lo, ring=ring, slack=0, tags=tags)


def test_the_first_event_of_a_warp_has_nothing_to_be_left_over_from() -> None:
    found = _read([0, 1000, 1001, 7, 0, 1000, 2001, 7], [Packet(7, (1, 2), uncleared=(0,))], 3)
    assert found.site.tolist() == [1, 2, 2]


def test_behind_a_gap_nobody_can_tell_and_the_event_is_missing_rather_than_guessed() -> None:
    packets = [Packet(7, (1, 2), uncleared=(0,))]
    lost = [0, 0, 0, 0]  # of the second packet nothing is left: the clock 1500 may be of it
    found = _read([0, 1000, 1001, 7, *lost, 0, 1500, 2001, 7], packets, 6)
    assert found.site.tolist() == [1, 2, 2]
    assert found.gaps.tolist() == [1]
    older = _read([0, 1000, 1001, 7, *lost, 0, 1000, 2001, 7], packets, 5)
    assert older.site.tolist() == [1, 2, 2]


@pytest.mark.parametrize(
    "claim",
    [
        {"uncleared": [3]},  # the last one always happens
        {"uncleared": [2, 1]},
        {"uncleared": 1},
        {"uncleared": [9]},
        {"uncleared": [1], "flush": 64},
        {"uncleared": [1], "short_clocks": True},
    ],
)
def test_maps_that_do_not_say_which_events_these_are_get_refused(claim: dict[str, Any]) -> None:
    case = Case(64, ["UUA"], [[0]], 1 << 20, 0)
    trace_map = case.map()
    trace_map["kernels"][0]["packets"][0] |= claim
    with pytest.raises(BadInput, match="XT8101"):
        decode(case.buffer(), trace_map, KERNEL)
