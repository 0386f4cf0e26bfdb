"""Warp headers hold low halves only: the upper halves must be found again."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.trace.synthetic import KERNEL, Warp, attention, buffer_of, table_start, trace_map
from xtrace.errors import BadInput, XtraceError
from xtrace.trace import decode, spans


@pytest.mark.parametrize("ring", [4096, 256])
@pytest.mark.parametrize("clock0", [(1 << 32) - 20_000, 5, 1 << 41])
def test_upper_halves_are_found_again_up_to_one_multiple_per_sm(ring: int, clock0: int) -> None:
    launch = attention(ctas=6, sms=3, ring=ring, clock0=[clock0, clock0 + 7_000, 3 * clock0])
    tables = decode(launch.buffer, launch.map, KERNEL, grid=launch.grid, block=launch.block)
    events = tables.events.groupby("slot")
    for warp, row in zip(launch.warps, tables.warps.itertuples(), strict=True):
        kept = launch.known(warp)[-warp.kept :]
        assert (row.slot, row.cta, row.warp, row.sm) == (warp.slot, warp.slot // 12, warp.slot % 12, warp.sm)
        assert (row.emitted, row.written, row.finished) == (len(warp.records), len(kept), True)
        part = events.get_group(warp.slot)
        assert list(zip(part["site"], part["clock"], strict=True)) == kept
        base = warp.records[-1][1] - kept[-1][1]
        assert row.clock_entry == warp.entered[1] - base
    cycles = spans(tables).query("seq >= 0").groupby("slot")["cycles"].sum()
    leave = tables.warps.set_index("slot")["clock_exit"]
    assert (cycles == (leave - events["clock"].first()).astype("int64")).all()
    assert tables.summary["complete"] == all(len(w.records) == w.kept for w in launch.warps)
    assert tables.summary["origin_ns"] == min(w.entered[0] for w in launch.warps)


def table_of(*warps: Warp) -> tuple[dict, bytes]:  # type: ignore[type-arg]
    return warps[0].map, buffer_of(warps)


def warp(slot: int, enter: float, leave: float | None, *, records: int = 10) -> Warp:
    one = Warp(slot, 0, 12345, 1700.0, trace_map(packets=()))
    one.enter(enter)
    end = enter + 1000 if leave is None else leave
    for n in range(records):
        one.group(("softmax", enter + (end - enter) * (n + 1) / (records + 1)))
    if leave is not None:
        one.leave(leave)
    return one


def test_a_warp_of_four_seconds_keeps_its_length_when_others_show_the_clock_rate() -> None:
    long = warp(0, 0, 4.2e9)
    trace_map_, buffer = table_of(long, warp(1, 1e9, 1.9e9), warp(2, 4.1e9, 4.2e9))
    tables = decode(buffer, trace_map_, KERNEL, block=96)
    lasted = tables.warps["clock_exit"] - tables.warps["clock_entry"]
    assert lasted.iloc[0] == long.clock(4.2e9) - long.clock(0)
    truth = [c - long.clock(0) for _, c in long.records]
    rows = tables.events[tables.events["slot"] == 0]
    assert list(rows["clock"] - tables.warps["clock_entry"].iloc[0]) == truth
    assert tables.summary["non_monotonic"] == 0


def test_a_guessed_clock_rate_is_said() -> None:
    trace_map_, buffer = table_of(warp(0, 0, 3e9))
    tables = decode(buffer, trace_map_, KERNEL, block=32)
    assert any("rate is not known" in w for w in tables.summary["warnings"])


def test_warps_that_never_reached_their_exit_have_no_header_and_are_counted() -> None:
    trace_map_, buffer = table_of(warp(0, 0, 2000), warp(1, 100, None))
    tables = decode(buffer, trace_map_, KERNEL, block=64, grid=1)
    assert (tables.summary["headless_warps"], tables.summary["headless_records"]) == (1, 10)
    assert tables.summary["warps_never_ran"] == 0
    assert not tables.summary["complete"]
    with pytest.raises(BadInput, match="1 warps wrote records but none of them reached its exit"):
        decode(*reversed(table_of(warp(1, 100, None))), KERNEL, block=32)


def test_a_spilled_header_is_seen() -> None:
    trace_map_, buffer = table_of(warp(0, 0, 2000))
    tables = decode(buffer[:-1] + b"\1", trace_map_, KERNEL, block=32)
    assert tables.summary["spill_over"]


def test_a_table_of_another_size_is_refused() -> None:
    trace_map_, buffer = table_of(warp(0, 0, 2000))
    with pytest.raises(BadInput) as caught:
        decode(buffer[:-32], trace_map_, KERNEL, block=32)
    assert caught.value.code == "XT8201"
    trace_map_["kernels"][0]["slot"]["header_bytes"] = 40
    with pytest.raises(BadInput) as caught:
        decode(buffer, trace_map_, KERNEL, block=32)
    assert caught.value.code == "XT8101"


@pytest.mark.fuzz
def test_mutated_tables_only_raise_our_errors_and_counts_add_up() -> None:
    rng = random.Random(8)
    launch = attention(ctas=2, tiles=8, ring=256)
    good, table = launch.buffer, table_start(launch.buffer, launch.map)
    for _ in range(1500):
        data = bytearray(good)
        for _ in range(rng.choice([1, 2, 8, 64])):
            data[rng.randrange(table if rng.random() < 0.8 else 0, len(data))] = rng.choice(
                [0, 255, rng.randrange(256)]
            )
        try:
            tables = decode(bytes(data), launch.map, KERNEL, grid=launch.grid, block=launch.block)
        except XtraceError:
            continue
        warps = tables.warps
        assert (warps["written"] + warps["dropped"] == warps["emitted"]).all()
        assert (warps["dropped"] >= 0).all()
        assert np.isfinite(tables.events["t_ns"]).all()
