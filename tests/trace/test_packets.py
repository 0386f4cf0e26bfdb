"""Packets of any size in rings of any size, for any number of laps: the newest that fit come back, the rest is counted.

What must come back is known from the writer (:mod:`tests.trace.packet_cases`).
"""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest
from hypothesis import example, given, settings

from tests.trace.packet_cases import KERNEL, Case, cases
from xtrace.errors import BadInput
from xtrace.runtime.buffers import SlotLayout, TraceBytes
from xtrace.runtime.checks import trace_facts
from xtrace.trace import decode
from xtrace.trace.packets import chunks, count_events, lift, read_events
from xtrace.trace.tags import Address, Packet, Tags


@settings(max_examples=400, deadline=None)
@given(cases())
@example(Case(64, 48, [12, 1, 4], [1, 2, 3], [[2, 0, 2]], 0, torn=True))
@example(Case(32, 48, [1, 1, 4, 1, 1], [1, 2, 3, 4, 5], [[0, 0, 2, 0, 2]], 2087, skipping=True, torn=True))
def test_the_newest_packets_that_fit_come_back_and_the_others_are_counted(case: Case) -> None:
    comes_back(case)


def comes_back(case: Case) -> None:
    trace_map, buffer = case.map(), case.buffer()
    emitted = case.emitted
    entry = trace_map["kernels"][0]
    facts = trace_facts(TraceBytes(buffer, SlotLayout.of(entry["slot"]), len(case.warps), False), entry)
    kept = facts.per_cta.sum(axis=1).tolist()
    for n, truth, given_up in zip(kept, case.truth, case.given_up, strict=True):
        assert len(truth) - given_up <= n <= len(truth)
    assert (facts.emitted, facts.written, facts.lost) == (sum(emitted), sum(kept), sum(emitted) - sum(kept))
    assert facts.monotonic
    assert facts.bracketed
    assert facts.unknown_sites == 0
    if not sum(kept):  # also where every packet is larger than the ring
        with pytest.raises(BadInput, match="record"):
            decode(buffer, trace_map, KERNEL)
        return
    tables = decode(buffer, trace_map, KERNEL)
    for slot, (n, truth) in enumerate(zip(kept, case.truth, strict=True)):
        rows = tables.events[tables.events["slot"] == slot]
        assert list(zip(rows["seq"], rows["site"], rows["clock"], strict=True)) == truth[len(truth) - n :]
    assert tables.warps["emitted"].tolist() == emitted
    assert tables.warps["dropped"].tolist() == [e - k for e, k in zip(emitted, kept, strict=True)]
    assert tables.summary["overwritten"] == tables.summary["dropped"]
    assert set(tables.warps["sm"]) == {131}


@pytest.mark.parametrize(("empty", "most"), [(0, 6), (10, 12), (60, 30)])
def test_of_loops_in_small_rings_nothing_wrong_and_nearly_everything_comes_back(empty: int, most: int) -> None:
    """``most``: warps in a thousand whose oldest packets are given up."""
    rng, short, warps = random.Random(empty), [], 40
    for _ in range(100):
        kinds, ring = rng.randint(1, 4), 16 << rng.randint(1, 5)
        sizes = [rng.choice([1, 2, 3, 4, 7, 8, 12, 15]) for _ in range(kinds)]
        picks = [rng.choices(range(kinds), k=rng.randint(3, 3 + ring // 16)) for _ in range(warps)]
        case = Case(ring, 48, sizes, list(range(1, kinds + 1)), picks, rng.getrandbits(30), kinds > 2, True, empty)
        words = np.frombuffer(case.buffer(), "<u4")
        slots, headers = words[: warps * (ring + 48) // 4], words[-8 * (warps + 1) : -8].reshape(warps, 8)
        tags = Tags.of([(p["tag"], p["sites"]) for p in case.map()["kernels"][0]["packets"]])
        found = read_events(
            slots.reshape(warps, -1),
            np.arange(warps),
            headers[:, 7] // 16,
            np.array(case.emitted),
            headers[:, 6],
            ring=ring,
            slack=48,
            tags=tags,
        )
        assert not found.gaps.any()
        for warp, (truth, most_short) in enumerate(zip(case.truth, case.given_up, strict=True)):
            mine, missing = found.warp == warp, len(truth) - found.written[warp]
            rows = zip(found.site[mine].tolist(), found.clock_lo[mine].tolist(), strict=True)
            assert list(rows) == [event[1:] for event in truth[missing:]]
            assert 0 <= missing <= most_short
            if missing:
                short.append(case.given_up_quads[warp])
    assert len(short) <= most * 4
    assert max(short) <= 8


@pytest.mark.parametrize(
    ("packets", "kept"),
    [
        ("6666666 H 66666 H 5 6", 5),  # no event between the last and the one before the lap
        ("6666666 L 666 H 655 6", 4),  # one, behind two packets without any
    ],
)
def test_where_an_empty_packet_and_empty_remains_end_the_newest_clock_before_either_decides(
    packets: str, kept: int
) -> None:
    """Packets with addresses have fewer clocks than words: their remains hide nothing of what came later."""
    three, seven = ([Address(n, 0) for n in range(k)] for k in (3, 7))
    tags = Tags.of([Packet(5, [1]), Packet(6, [2]), Packet(8, [3] * 3, three, [2]), Packet(9, [4] * 7, seven, [6])])
    words, at, clocks = np.zeros(4 * (8 + 3), "<u4"), 0, []
    for kind in packets.replace(" ", ""):
        tag, quads = {"5": (5, 1), "6": (6, 1), "H": (8, 2), "L": (9, 4)}[kind]
        clocks += [1000 * (at + 1)] * (tag == 6)
        words[4 * (at % 8) : 4 * (at % 8 + quads)] = [0] * (4 * quads - 2) + [clocks[-1] if tag == 6 else 0, tag]
        at += quads
    row, used, events = np.array([0]), np.array([at]), np.array([len(clocks)])
    found = read_events(words[None, :], row, used, events, np.array([99_000]), ring=128, slack=48, tags=tags)
    assert (found.clock_lo.tolist(), found.gaps.tolist()) == (clocks[-kept:], [0])


def test_a_packet_without_any_event_is_passed_over() -> None:
    """What is left of a loop that was not entered: nothing, but a packet all the same."""
    tags = Tags.of([(5, [1, 2]), (6, [3])])
    words = np.zeros(16 + 12, "<u4")
    words[0:12] = [0, 0, 700, 6, 0, 0, 0, 5, 0, 0, 900, 6]
    quads, count = np.array([3]), np.array([2])
    assert lift(count, quads).tolist() == [2]
    found = read_events(words[None, :], np.array([0]), quads, count, np.array([950]), ring=64, slack=48, tags=tags)
    assert (found.site.tolist(), found.clock_lo.tolist(), found.gaps.tolist()) == ([3, 3], [700, 900], [0])


@settings(max_examples=60, deadline=None)
@given(cases())
def test_a_kernel_that_cannot_wrap_needs_no_slack(case: Case) -> None:
    case.ring, case.slack = 1 << 14, 0
    trace_map, buffer = case.map(), case.buffer()
    if any(case.truth):
        tables = decode(buffer, trace_map, KERNEL)
        assert tables.summary["complete"]
        assert list(tables.events["clock"]) == [clock for truth in case.truth for *_, clock in truth]


def test_a_warp_that_overran_a_slot_without_slack_reads_no_neighbour() -> None:
    """The bytes behind such a ring are the next warp's; a damaged header must not make them this warp's."""
    case = Case(64, 0, [1], [5], [[0] * 3, [0] * 4], 1)
    trace_map, buffer = case.map(), bytearray(case.buffer())
    struct.pack_into("<I", buffer, 3 * 64 + 8, 7 << 8)
    struct.pack_into("<I", buffer, 3 * 64 + 28, 7 * 16)
    tables = decode(bytes(buffer), trace_map, KERNEL)
    mine = tables.events[tables.events["slot"] == 0]
    assert list(mine["clock"]) == sorted(mine["clock"])
    assert set(mine["clock"]) <= {clock for *_, clock in case.truth[0]}


def test_a_clock_that_equals_a_tag_at_a_stale_place_loses_by_its_age() -> None:
    """A packet that ended in the slack, while in the ring an old clock looks like a tag."""
    ring, tags = 64, Tags.of([(5, [1]), (6, [2, 3, 4, 5])])
    words = np.zeros(ring // 4 + 12, "<u4")
    words[0:4] = [0, 0, 1_000, 5]  # lap 1: an old packet of one event where the new one would end
    words[12:20] = [0, 0, 0, 90_000, 90_001, 90_002, 90_003, 6]  # begins in the last quad, ends in the slack
    found = read_events(
        np.concatenate([words, words])[None, :],
        np.array([0]),
        np.array([5]),
        np.array([7]),
        np.array([90_010]),
        ring=ring,
        slack=48,
        tags=tags,
    )
    assert found.clock_lo.tolist() == [90_000, 90_001, 90_002, 90_003]
    assert found.gaps.tolist() == [2]


@pytest.mark.parametrize("events", [0, 1, 7, (1 << 24) - 1, 1 << 24, (1 << 24) + 3, 5 << 24])
def test_the_number_of_events_is_exact_though_the_header_holds_24_bits(events: int) -> None:
    for quads in {events, -(-events // 4), (events + 1) // 2, -(-4 * events // 15)}:
        if events - quads < 1 << 24:
            assert lift(np.array([events % (1 << 24)]), np.array([quads]))[0] == events


def test_chunks_cover_all_warps_once() -> None:
    quads = np.random.default_rng(3).integers(0, 1 << 20, 200)
    parts = list(chunks(quads, 1 << 30))
    assert [n for low, high in parts for n in range(low, high)] == list(range(200))
    assert len(parts) > 10
    assert list(chunks(np.zeros(5, np.int64), 64)) == [(0, 5)]


def test_facts_do_not_depend_on_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(256, 48, [1, 5, 15], [1, 2, 65535], [[n % 3] * (5 * n) for n in range(20)], 4)
    entry, buffer = case.map()["kernels"][0], case.buffer()
    trace = TraceBytes(buffer, SlotLayout.of(entry["slot"]), 20, False)
    whole = trace_facts(trace, entry, 3)
    monkeypatch.setattr("xtrace.trace.packets._CHUNK_QUADS", 20)
    parts = trace_facts(trace, entry, 3)
    assert (parts.per_cta == whole.per_cta).all()
    assert (parts.emitted, parts.written, parts.wrapped) == (whole.emitted, whole.written, whole.wrapped)


def test_what_looks_like_packets_is_counted_where_no_end_is_known() -> None:
    case = Case(256, 48, [1, 6], [3, 4], [[0, 1, 1, 0]], 1)
    slots = np.frombuffer(case.buffer()[: 2 * 304], "<u4").reshape(2, -1)
    tags = Tags.of([(p["tag"], p["sites"]) for p in case.map()["kernels"][0]["packets"]])
    assert count_events(slots, np.array([0]), 256, tags) == 14
