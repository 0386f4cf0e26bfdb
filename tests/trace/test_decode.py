"""Decoding gives back what the modelled GPU did: every record, in order, on one time axis."""

from __future__ import annotations

import struct
import time

import numpy as np
import pandas as pd
import pytest

from tests.trace.synthetic import KERNEL, SITE, Launch, Warp, attention, buffer_of, table_start, trace_map
from xtrace.errors import BadInput, Unsupported
from xtrace.trace import TraceTables, decode
from xtrace.trace.tables import EVENT_COLUMNS, WARP_COLUMNS


def decoded(launch: Launch, buffer: bytes | None = None) -> TraceTables:
    return decode(launch.buffer if buffer is None else buffer, launch.map, KERNEL, grid=launch.grid, block=launch.block)


def one_warp(warp: Warp) -> bytes:
    return buffer_of([warp])


def new_warp(ring: int = 4096, clock0: int = 1000) -> Warp:
    return Warp(0, 0, clock0, 2000.0, trace_map(ring=ring))


def test_every_record_comes_back_in_order_with_its_64_bit_clock() -> None:
    launch = attention()
    tables = decoded(launch)
    assert tuple(tables.events.columns) == EVENT_COLUMNS
    assert tuple(tables.warps.columns) == WARP_COLUMNS
    for warp in launch.warps:
        rows = tables.events[tables.events["slot"] == warp.slot]
        assert list(zip(rows["site"], rows["clock"], strict=True)) == launch.known(warp)
        assert list(rows["seq"]) == list(range(len(warp.records)))
    assert tables.summary["complete"], tables.summary["warnings"]
    assert tables.summary["emitted"] == sum(len(w.records) for w in launch.warps)


def test_columns_say_where_an_event_happened() -> None:
    row = decoded(attention()).events.query("slot == 17 and seq == 3").iloc[0]
    assert (row["cta"], row["warp"], row["sm"], row["phase"], row["op"], row["pc"]) == (
        1,
        5,
        1,
        "QK matrix",
        "HGMMA",
        0x600,
    )


def test_times_are_right_across_sms_within_the_stated_error() -> None:
    launch = attention(ctas=12, sms=4, tiles=30)
    tables = decoded(launch)
    origin, bound = tables.summary["origin_ns"], tables.summary["time_error_ns"]
    assert 32 <= bound <= 100
    mhz = launch.warps[0].mhz
    for warp in launch.warps[::5]:
        rows = tables.events[tables.events["slot"] == warp.slot]
        truth = np.array([(c - warp.clock0) * 1000 / mhz for _, c in warp.records]) - (origin - launch.start_ns)
        assert np.abs(rows["t_ns"].to_numpy() - truth).max() <= bound


def test_clock_changes_during_the_kernel_switch_to_one_map_per_warp() -> None:
    slow = attention(ctas=2, sms=1, tiles=200)
    fast = attention(ctas=2, sms=1, tiles=200, mhz=1500.0, clock0=[1 << 39])
    assert decoded(slow).summary["time_method"] == "per SM"
    tables = decoded(slow, buffer_of(slow.warps[:12] + fast.warps[12:]))  # the second CTA ran at another clock rate
    assert tables.summary["time_method"] == "per warp on 1 of 1 SMs"
    first = tables.warps.iloc[0]
    (leave,) = struct.unpack_from("<Q", slow.warps[0].header, 16)
    assert first["t_exit_ns"] - first["t_entry_ns"] == pytest.approx(leave - slow.warps[0].entered[0], abs=64)


def test_wrapping_of_the_32_bit_clock_is_undone() -> None:
    warp = new_warp(clock0=(1 << 32) - 5000)
    warp.enter(0)
    for n in range(20):
        warp.group(("softmax", 500.0 * n + 100))
    for n in range(1, 5):
        warp.group(("softmax", 1e9 * n))  # 4 s: two wraps
    warp.leave(4.2e9)
    tables = decode(one_warp(warp), warp.map, KERNEL, block=32)
    assert list(tables.events["clock"]) == [c for _, c in warp.records]
    assert tables.summary["non_monotonic"] == 0


@pytest.mark.parametrize("groups", [1, 3, 20, 26, 27, 52, 53, 77, 100, 101])
@pytest.mark.parametrize("size", [1, 3, 5, 7])
def test_the_ring_keeps_the_last_records_and_counts_the_others(groups: int, size: int) -> None:
    warp = new_warp(ring=1024)  # 128 records
    warp.enter(0)
    for g in range(groups):
        warp.group(*((p, 100.0 * g + 10 * k + 5) for k, p in enumerate(list(SITE)[:size])))
    warp.leave(100.0 * groups + 50)
    tables = decode(one_warp(warp), warp.map, KERNEL, block=32)
    kept = warp.records[-128:]
    assert list(zip(tables.events["site"], tables.events["clock"], strict=True)) == kept
    assert tables.events["seq"].iloc[0] == len(warp.records) - len(kept)
    row = tables.warps.iloc[0]
    assert (row["emitted"], row["written"], row["dropped"]) == (
        len(warp.records),
        len(kept),
        len(warp.records) - len(kept),
    )
    assert tables.summary["overwritten"] == row["dropped"]
    assert tables.summary["complete"] == (row["dropped"] == 0)


def test_clocks_survive_a_ring_that_lost_the_wrap_at_its_start() -> None:
    warp = new_warp(ring=1024)
    warp.enter(0)
    for n in range(400):
        warp.group(("softmax", 1e7 * n + 5))  # 4 s: one wrap, after 2.1 s, and the ring has the last 1.3 s
    warp.leave(1e7 * 400)
    tables = decode(one_warp(warp), warp.map, KERNEL, block=32)
    assert list(tables.events["clock"]) == [c for _, c in warp.records[-128:]]


def test_a_record_that_was_never_written_is_a_hole() -> None:
    launch = attention()
    damaged = bytearray(launch.buffer)
    stride = launch.map["kernels"][0]["slot"]["stride"]
    damaged[4 * stride + 40 : 4 * stride + 48] = bytes(8)  # record 5 of warp 4
    tables = decoded(launch, bytes(damaged))
    assert (tables.summary["holes"], tables.summary["dropped"], tables.summary["overwritten"]) == (1, 1, 0)
    assert 5 not in set(tables.events.query("slot == 4")["seq"])
    assert not tables.summary["complete"]
    assert any("never written" in w for w in tables.summary["warnings"])


def test_clocks_that_run_backwards_are_counted() -> None:
    warp = new_warp()
    warp.enter(0)
    for t in (100, 200, 150, 300):
        warp.group(("softmax", t))
    warp.leave(400)
    tables = decode(one_warp(warp), warp.map, KERNEL, block=32)
    assert tables.summary["non_monotonic"] == 1
    assert list(tables.events["clock"]) == [c for _, c in warp.records]
    assert any("backwards" in w for w in tables.summary["warnings"])


def test_no_header_is_an_error() -> None:
    launch = attention()
    with pytest.raises(BadInput, match="no record was written") as caught:
        decoded(launch, bytes(len(launch.buffer)))
    assert caught.value.code == "XT8202"


def test_warps_without_records_are_an_error() -> None:
    warp = new_warp()
    warp.enter(0)
    warp.leave(1000)
    with pytest.raises(BadInput, match="no record was written: 1 warps ran") as caught:
        decode(one_warp(warp), warp.map, KERNEL, block=32)
    assert caught.value.code == "XT8203"


def test_a_map_without_sites_needs_no_records() -> None:
    warp = new_warp()
    warp.enter(0)
    warp.leave(1000)
    warp.map["kernels"][0]["sites"] = []
    tables = decode(one_warp(warp), warp.map, KERNEL, block=32)
    assert len(tables.events) == 0
    assert len(tables.warps) == 1


def test_a_launch_larger_than_the_buffer_is_reported() -> None:
    launch = attention()
    spilled = bytearray(launch.buffer)
    spilled[table_start(launch.buffer, launch.map) - 100] = 1
    tables = decode(bytes(spilled), launch.map, KERNEL, grid=(5, 1, 1), block=launch.block)
    assert tables.summary["spill_over"]
    assert tables.summary["warps_without_slot"] == 12
    assert any("12 warps had no slot" in w for w in tables.summary["warnings"])


def test_warps_that_never_ran_are_counted() -> None:
    launch = attention()
    idle = [Warp(w.slot, w.sm, w.clock0, w.mhz, launch.map) for w in launch.warps[-12:]]
    tables = decoded(launch, buffer_of(launch.warps[:-12] + idle))
    assert tables.summary["warps_never_ran"] == 12


def test_unknown_sites_are_kept_and_reported() -> None:
    launch = attention()
    launch.map["kernels"][0]["sites"].pop(6)  # softmax
    tables = decoded(launch)
    assert tables.summary["unknown_sites"] == int((tables.events["phase"] == "(unknown site)").sum()) > 0


def test_a_damaged_header_is_left_out_and_reported() -> None:
    launch = attention()
    struct.pack_into("<I", launch.warps[5].header, 28, 12)  # one record and a half
    tables = decoded(launch, buffer_of(launch.warps))
    assert tables.summary["damaged_slots"] == [5]
    assert 5 not in set(tables.events["slot"])


def test_without_a_block_size_every_warp_is_its_own_cta() -> None:
    tables = decode(attention().buffer, trace_map(), KERNEL)
    assert tables.events["warp"].eq(0).all()
    assert any("block size is unknown" in w for w in tables.summary["warnings"])


def test_demangled_names_select_too_and_unknown_ones_list_the_kernels() -> None:
    launch = attention()
    assert decode(launch.buffer, launch.map, "flash_fwd(void*)").kernel == KERNEL
    with pytest.raises(BadInput, match=KERNEL) as caught:
        decode(launch.buffer, launch.map, "other")
    assert caught.value.code == "XT8102"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("stride", 100),
        ("stride", 2048),
        ("ring", 0),
        ("header_bytes", 8),
        ("header_bytes", 64),
        ("ring", None),
        ("ring", True),
    ],
)
def test_impossible_layouts_are_refused(key: str, value: object) -> None:
    launch = attention()
    launch.map["kernels"][0]["slot"][key] = value
    with pytest.raises(BadInput) as caught:
        decoded(launch)
    assert caught.value.code == "XT8101"


@pytest.mark.parametrize("key", ["header", "colour"])
def test_keys_of_a_slot_that_the_schema_does_not_know_are_ignored(key: str) -> None:
    launch = attention()
    plain = decoded(launch)
    launch.map["kernels"][0]["slot"][key] = 4608
    tables = decoded(launch)
    pd.testing.assert_frame_equal(tables.events, plain.events)
    pd.testing.assert_frame_equal(tables.warps, plain.warps)
    assert tables.summary == plain.summary


def test_other_record_sizes_are_unsupported() -> None:
    launch = attention()
    launch.map["kernels"][0]["slot"]["record"] = 16
    with pytest.raises(Unsupported):
        decoded(launch)


@pytest.mark.parametrize("shape", [(0,), (1, 2, 3, 4), (32.5,), "32", (2048,), ()])
def test_impossible_launch_shapes_are_refused(shape: object) -> None:
    launch = attention()
    with pytest.raises(BadInput) as caught:
        decode(launch.buffer, launch.map, KERNEL, block=shape)  # type: ignore[arg-type]
    assert caught.value.code == "XT8104"


def test_truncated_buffers_are_refused() -> None:
    launch = attention()
    with pytest.raises(BadInput) as caught:
        decoded(launch, launch.buffer[:-1])
    assert caught.value.code == "XT8201"


def big_buffer(warps: int = 2048, records: int = 512) -> tuple[bytes, dict[str, object]]:
    """About a million events, written with numpy: the model above is too slow for that."""
    layout = trace_map(ring=8 * records)
    slot = layout["kernels"][0]["slot"]
    data = np.zeros((warps + 1, slot["stride"] // 4), dtype="<u4")
    clock = (np.arange(records) * 700 + 900)[None, :] + np.arange(warps)[:, None] * 3
    data[:-1, 0 : 2 * records : 2] = clock & 0xFFFFFFFF
    data[:-1, 1 : 2 * records : 2] = np.arange(records) % 10 + 1
    header = np.zeros((warps + 1, 8), dtype="<u4")
    header[:-1, 0] = 32_000
    header[:-1, 1] = 800 + np.arange(warps) * 3
    header[:-1, 2] = np.arange(warps) % 132
    header[:-1, 4] = 32_000 + records * 350 // 32 * 32 + 64
    header[:-1, 6] = 1000 + records * 700 + np.arange(warps) * 3
    header[:-1, 7] = 8 * records
    return data.tobytes() + header.tobytes(), layout


def test_a_million_events_decode_within_a_second() -> None:
    buffer, layout = big_buffer()
    start = time.process_time()
    tables = decode(buffer, layout, KERNEL, grid=512, block=128)
    assert time.process_time() - start < 1.0
    assert len(tables.events) == 2048 * 512
