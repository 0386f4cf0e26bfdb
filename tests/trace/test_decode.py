"""Decoding gives back what the modelled GPU did: every record, in order, on one time axis."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence

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


def new_warp(ring: int = 4096, clock0: int = 1000, packets: Sequence[Sequence[str]] = ()) -> Warp:
    """A warp of a kernel whose every record is a packet of its own, if ``packets`` does not say otherwise."""
    return Warp(0, 0, clock0, 2000.0, trace_map(ring=ring, packets=packets))


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


@pytest.mark.parametrize("groups", [1, 3, 20, 26, 27, 32, 33, 52, 53, 64, 77, 100, 101])
@pytest.mark.parametrize("size", [1, 3, 4, 5, 7, 8])
def test_the_ring_keeps_the_last_records_and_counts_the_others(groups: int, size: int) -> None:
    warp = new_warp(ring=1024, packets=[list(SITE)[:size]])
    warp.enter(0)
    for g in range(groups):
        warp.group(*((p, 100.0 * g + 10 * k + 5) for k, p in enumerate(list(SITE)[:size])))
    warp.leave(100.0 * groups + 50)
    tables = decode(one_warp(warp), warp.map, KERNEL, block=32)
    kept = warp.records[-warp.kept :]
    assert len(kept) == size * min(groups, 1024 // (16 * (size // 4 + 1)))
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
        warp.group(("softmax", 1e7 * n + 5))  # 4 s: one wrap, after 2.1 s, and the ring has the last 0.6 s
    warp.leave(1e7 * 400)
    tables = decode(one_warp(warp), warp.map, KERNEL, block=32)
    assert list(tables.events["clock"]) == [c for _, c in warp.records[-64:]]


def test_a_packet_that_was_never_written_is_a_hole() -> None:
    launch = attention()
    damaged = bytearray(launch.buffer)
    slot, warp = launch.map["kernels"][0]["slot"]["stride"] * 4, launch.warps[4]
    at, events = warp.packets[3]
    assert events == 5
    damaged[slot + at : slot + at + 32] = bytes(32)
    tables = decoded(launch, bytes(damaged))
    assert (tables.summary["holes"], tables.summary["dropped"], tables.summary["overwritten"]) == (5, 5, 0)
    before = sum(n for _, n in warp.packets[:3])
    rows, known = tables.events.query("slot == 4"), launch.known(warp)
    assert list(zip(rows["site"], rows["clock"], strict=True)) == known[:before] + known[before + 5 :]
    assert list(rows["seq"]) == [*range(before), *range(before + 5, len(known))]
    assert not tables.summary["complete"]
    assert any("not where they were written" in w for w in tables.summary["warnings"])


def test_a_hole_in_a_ring_that_wrapped_is_told_from_what_was_overwritten() -> None:
    warp = new_warp(ring=256)
    warp.enter(0)
    for n in range(40):
        warp.group(("softmax", 100.0 * n + 5))
    warp.leave(4500)
    at, _ = warp.packets[-3]
    warp.data[at % 256 : at % 256 + 16] = bytes(16)
    tables = decode(one_warp(warp), warp.map, KERNEL, block=32)
    known = [c for _, c in warp.records]
    assert list(tables.events["clock"]) == known[-16:-3] + known[-2:]
    assert list(tables.events["seq"]) == [*range(24, 37), 38, 39]
    assert (tables.summary["holes"], tables.summary["overwritten"], tables.summary["dropped"]) == (1, 24, 25)


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
    warp.map["kernels"][0] |= {"sites": [], "packets": []}
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


def test_packets_that_the_map_does_not_know_are_holes_and_reported() -> None:
    launch = attention()
    kernel = launch.map["kernels"][0]
    kernel["sites"].pop()  # epilogue
    kernel["packets"].pop()
    tables = decoded(launch)
    gone = sum(site == SITE["epilogue"] for w in launch.warps for site, _ in w.records)
    assert tables.summary["unknown_sites"] == tables.summary["holes"] == gone > 0
    assert any("does not know" in w for w in tables.summary["warnings"])
    kept = sum(len(w.records) for w in launch.warps) - gone
    assert len(tables.events) == tables.summary["written"] == kept


def test_a_map_of_another_image_is_an_error() -> None:
    launch = attention()
    for packet in launch.map["kernels"][0]["packets"]:
        packet["tag"] += 1
    with pytest.raises(BadInput, match="emitted records is in the rings") as caught:
        decoded(launch)
    assert caught.value.code == "XT8203"


@pytest.mark.parametrize("count", [1, 12, 1 << 23])
def test_a_header_that_contradicts_its_ring_is_left_out(count: int) -> None:
    launch = attention()
    warp = launch.warps[5]
    assert len(warp.records) > 12
    struct.pack_into("<I", warp.header, 8, count << 8 | warp.sm)
    tables = decoded(launch, buffer_of(launch.warps))
    assert tables.summary["damaged_slots"] == [5]
    assert 5 not in set(tables.events["slot"])
    assert tables.summary["dropped"] == 0


def test_a_damaged_header_is_left_out_and_reported() -> None:
    launch = attention()
    struct.pack_into("<I", launch.warps[5].header, 28, 24)  # one quad and a half
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
        ("stride", 8200),
        ("ring", 0),
        ("ring", 16),
        ("ring", 3072),
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


@pytest.mark.parametrize("record", [8, 16])
def test_other_record_sizes_are_unsupported(record: int) -> None:
    launch = attention()
    launch.map["kernels"][0]["slot"]["record"] = record
    with pytest.raises(Unsupported) as caught:
        decoded(launch)
    assert caught.value.code == "XT8103"
    assert "again" in caught.value.hint


def test_buffers_of_older_versions_are_unsupported() -> None:
    launch = attention()
    launch.map["schema"] = "xtrace/map/1"
    with pytest.raises(Unsupported) as caught:
        decoded(launch)
    assert caught.value.code == "XT8103"


@pytest.mark.parametrize(
    "packets",
    [
        None,
        {},
        [3],
        [{"tag": 0, "sites": [1]}],
        [{"tag": 1 << 16, "sites": [1]}],
        [{"tag": True, "sites": [1]}],
        [{"tag": 5, "sites": []}],
        [{"tag": 5, "sites": list(range(1, 17))}],
        [{"tag": 5, "sites": 1}],
        [{"tag": 5, "sites": [11]}],
        [{"tag": 5, "sites": [[]]}],
        [{"tag": 5, "sites": [1, 1]}],
        [{"tag": 5, "sites": [1]}, {"tag": 6, "sites": [1]}],
        [{"tag": 5, "sites": [1]}, {"tag": 5, "sites": [2]}],
        [{"tag": 5, "sites": [1, 2, 3]}],
        [],
    ],
)
def test_impossible_packets_are_refused(packets: object) -> None:
    launch = attention()
    launch.map["kernels"][0]["packets"] = packets
    with pytest.raises(BadInput) as caught:
        decoded(launch)
    assert caught.value.code == "XT8101"


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


def big_buffer(warps: int = 2048, packets: int = 205) -> tuple[bytes, dict[str, object]]:
    """About a million events, written with numpy: the model above is too slow for that."""
    layout = trace_map(ring=8192)
    slot, tag = layout["kernels"][0]["slot"], layout["kernels"][0]["packets"][1]["tag"]
    data = np.zeros((warps + 1, slot["stride"] // 4), dtype="<u4")
    clock = (np.arange(5 * packets) * 700 + 900)[None, :] + np.arange(warps)[:, None] * 3
    words = data[:-1, : 8 * packets].reshape(warps, packets, 8)
    words[:, :, 2:7] = clock.reshape(warps, packets, 5) & 0xFFFFFFFF
    words[:, :, 7] = tag
    header = np.zeros((warps + 1, 8), dtype="<u4")
    header[:-1, 0] = 32_000
    header[:-1, 1] = 800 + np.arange(warps) * 3
    header[:-1, 2] = 5 * packets << 8 | np.arange(warps) % 132
    header[:-1, 4] = 32_000 + packets * 1750 // 32 * 32 + 64
    header[:-1, 6] = 1000 + packets * 3500 + np.arange(warps) * 3
    header[:-1, 7] = 32 * packets
    return data.tobytes() + header.tobytes(), layout


def test_a_million_events_decode_within_seconds() -> None:
    buffer, layout = big_buffer()
    start = time.process_time()
    tables = decode(buffer, layout, KERNEL, grid=512, block=128)
    assert time.process_time() - start < 4.0  # below 1 s on a core of its own
    assert len(tables.events) == 2048 * 1025
