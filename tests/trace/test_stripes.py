"""Slots that interleave packet by packet, and short clocks: what was written comes back, or is counted as missing.

The writer here follows decision 0001 word by word; what it keeps is known without reading anything back.
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
from xtrace.trace.packets import lift, read_events
from xtrace.trace.tags import Packet, Tags

KERNEL = "k"
BEGIN = 0xFFFF_0000  # the low half of the clock wraps soon


def words_of(clocks: list[int], short: bool, junk: random.Random) -> list[int]:
    """Words of a packet, its tag left out; what has no meaning is anything."""
    if not short:
        return [clock & 0xFFFFFFFF for clock in clocks]
    first, *between, last = clocks
    halves = [clock & 0xFFFF for clock in between]
    halves += [junk.getrandbits(16)] * (len(halves) % 2)
    packed = [low | high << 16 for low, high in zip(halves[::2], halves[1::2], strict=True)]
    return [*packed, first & 0xFFFFFFFF, last & 0xFFFFFFFF]


@dataclass
class Case:
    ring: int
    stripe: int
    packets: list[tuple[int, bool]]  # events, and whether clocks are short
    warps: list[list[int]]  # of packets, by number
    steps: list[int]  # cycles from one event to the next are drawn from these
    seed: int
    truth: list[list[tuple[int, int, int]]] = field(default_factory=list)  # by warp: seq, site, cycles since BEGIN
    emitted: list[int] = field(default_factory=list)
    ambiguous: list[int] = field(default_factory=list)

    def map(self) -> dict[str, Any]:
        ids, packets = iter(range(1, 1000)), []
        for tag, (events, short) in enumerate(self.packets, 7):
            packets.append({"tag": tag, "sites": [next(ids) for _ in range(events)]})
            packets[-1] |= {"short_clocks": True} if short else {}
        sites = [{"id": i, "pc": 16 * i, "op": "NOP", "phase": "p"} for i in range(1, next(ids))]
        slot = {"stride": self.ring, "ring": self.ring, "record": 4, "header_bytes": 32, "stripe": self.stripe}
        kernel = {"name": KERNEL, "sites": sites, "packets": packets, "slot": slot}
        return {"schema": "xtrace/map/5", "kernels": [kernel]}

    def buffer(self) -> bytes:
        rng, slots = random.Random(self.seed), len(self.warps) + 1
        rings, headers = bytearray(slots * self.ring), bytearray()
        packets = self.map()["kernels"][0]["packets"]
        for slot, picks in enumerate(self.warps):
            clock = events = 0
            kept: list[list[tuple[int, int, int]]] = []
            unsure: list[int] = []
            for number, pick in enumerate(picks):
                packet, short = packets[pick], self.packets[pick][1]
                clocks = []
                for _ in packet["sites"]:
                    clock += rng.choice(self.steps)
                    clock += (BEGIN + clock) % (1 << 32) == 0  # would say that the event did not happen
                    clocks.append(clock)
                known = not short or clocks[-1] - clocks[0] < 1 << 16
                named = list(enumerate(zip(packet["sites"], clocks, strict=True), events))
                kept.append([(seq, site, at) for seq, (site, at) in named if known or at in (clocks[0], clocks[-1])])
                unsure.append(len(clocks) - len(kept[-1]))
                events += len(clocks)
                words = [*words_of([BEGIN + at for at in clocks], short, rng), packet["tag"]]
                data = b"".join(w.to_bytes(4, "little") for w in words)
                data = rng.randbytes(self.stripe - len(data)) + data
                at = (number % (self.ring // self.stripe) * slots + slot) * self.stripe
                rings[at : at + self.stripe] = data
            room = self.ring // self.stripe
            self.truth.append([event for packet in kept[-room:] for event in packet])
            self.ambiguous.append(sum(unsure[-room:]))
            self.emitted.append(events)
            low, emitted = 0xFFFFFFFF, self.stripe * len(picks)
            headers += struct.pack("<4I", 32_000, BEGIN - 5, (events << 8 | 131) & low, 0)
            headers += struct.pack("<QII", 32_000 + (clock + 14), BEGIN + clock + 9 & low, emitted)
        return bytes(rings + headers) + bytes(32)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    stripe = draw(st.sampled_from([16, 32, 64]))
    most = {16: (3, 4), 32: (7, 12), 64: (15, 15)}[stripe]
    kinds = st.booleans().flatmap(lambda s: st.tuples(st.integers(3 if s else 1, most[s]), st.just(s)))
    packets = draw(st.lists(kinds, min_size=1, max_size=4))
    picks = st.lists(st.integers(0, len(packets) - 1), max_size=draw(st.sampled_from([3, 20, 80])))
    return Case(
        max(32, stripe) << draw(st.integers(0, 4)),
        stripe,
        packets,
        draw(st.lists(picks, min_size=1, max_size=4)),
        draw(st.sampled_from([[1], [1, 9, 300], [5, 4_000, 30_000], [65_535, 65_536, 1, 70_000]])),
        draw(st.integers(0, 1 << 30)),
    )


@settings(max_examples=100, deadline=None)
@given(cases())
def test_every_event_that_is_left_comes_back_with_its_time_or_is_counted(case: Case) -> None:
    trace_map, buffer = case.map(), case.buffer()
    entry = trace_map["kernels"][0]
    kept = [len(t) for t in case.truth]
    facts = trace_facts(TraceBytes(buffer, SlotLayout.of(entry["slot"]), len(case.warps), False), entry)
    assert (facts.emitted, facts.written, facts.ambiguous) == (sum(case.emitted), sum(kept), sum(case.ambiguous))
    assert facts.monotonic
    assert facts.per_cta.sum(axis=1).tolist() == kept
    if not sum(kept):
        with pytest.raises(BadInput, match="record"):
            decode(buffer, trace_map, KERNEL)
        return
    tables = decode(buffer, trace_map, KERNEL)
    for slot, truth in enumerate(case.truth):
        rows = tables.events[tables.events["slot"] == slot]
        clock = rows["clock"].to_numpy() - tables.warps["clock_entry"][slot] - np.uint64(5)
        assert list(zip(rows["seq"], rows["site"], clock.tolist(), strict=True)) == truth
    summary = tables.summary
    assert tables.warps["emitted"].tolist() == case.emitted
    assert summary["ambiguous"] == sum(case.ambiguous)
    assert summary["holes"] == summary["non_monotonic"] == 0
    assert summary["written"] + summary["overwritten"] + summary["ambiguous"] == summary["emitted"]
    assert any("--clocks full" in text for text in summary["warnings"]) == bool(sum(case.ambiguous))


@pytest.mark.parametrize(("last", "left_out"), [(65_535, 0), (65_536, 2), (200_000, 2)])
def test_a_pause_within_a_packet_makes_the_clocks_between_ambiguous(last: int, left_out: int) -> None:
    """Up to 65,535 cycles the low halves tell the time. Beyond nothing does, whatever other packets say."""
    tags = Tags.of([Packet(7, (1, 2, 3, 4), short=True)], 16)
    clocks = [1000, 1001, 1002, 1000 + last]
    words = np.array([*words_of(clocks, True, random.Random(0)), 7], "<u4")
    found = read_events(
        words[None, :], np.array([0]), np.array([1]), np.array([4]), np.array([10**6]), ring=32, slack=0, tags=tags
    )
    assert found.clock_lo.tolist() == (clocks if not left_out else [clocks[0], clocks[-1]])
    assert (found.written.tolist(), found.ambiguous.tolist()) == ([4 - left_out], [left_out])
    assert found.ambiguous_after.tolist() == ([0] * 4 if not left_out else [2, 0])


@pytest.mark.parametrize("events", [0, 3, (1 << 24) - 1, 1 << 24, 5 << 24])
def test_the_number_of_events_is_exact_where_packets_are_padded(events: int) -> None:
    for packets in {events, -(-events // 2), -(-events // 15)}:  # of 64 bytes, with as few events as one
        if events - packets < 1 << 24:
            assert lift(np.array([events % (1 << 24)]), np.array([4 * packets]), 4)[0] == events


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"slot": {"stripe": 48}}, "stripes"),
        ({"slot": {"stripe": True}}, "stripes"),
        ({"slot": {"stride": 512}}, "stripes"),
        ({"slot": {"stripe": 16}}, "larger than a stripe"),
        ({"packets": [{"tag": 7, "sites": list(range(1, 13)), "short_clocks": 1}]}, "short clocks"),
        ({"packets": [{"tag": 7, "sites": list(range(1, 13)), "short_clocks": True, "flush": 16}]}, "short clocks"),
    ],
)
def test_maps_that_contradict_themselves_are_refused(change: dict[str, Any], why: str) -> None:
    case = Case(64, 32, [(12, True)], [[0]], [1], 0)
    buffer, trace_map = case.buffer(), case.map()
    kernel = trace_map["kernels"][0]
    for key, value in change.items():
        kernel[key] = kernel[key] | value if isinstance(value, dict) else value
    with pytest.raises(BadInput, match=why):
        decode(buffer, trace_map, KERNEL)
