import numpy as np
import pytest

from tests.runtime.stand_ins import KERNEL, LAYOUT, trace_map, warp_traces
from xtrace.errors import BadInput, XtraceError
from xtrace.runtime.buffers import GUARD_BYTES, SlotLayout, TraceBuffer
from xtrace.runtime.device import LaunchConfig
from xtrace.runtime.simulated import SimulatedDevice, WarpTrace, write_trace
from xtrace.trace import decode


@pytest.fixture
def device() -> SimulatedDevice:
    return SimulatedDevice()


def test_slots_are_aligned_zeroed_and_followed_by_the_spill_over_slot(device: SimulatedDevice) -> None:
    with TraceBuffer(device, LAYOUT, 5) as buffer:
        assert buffer.address % LAYOUT.stride == 0
        assert device.download(buffer.address, 6 * LAYOUT.stride) == bytes(6 * LAYOUT.stride)
        assert buffer.untouched()
        assert buffer.guards_intact()


def test_everything_is_given_back(device: SimulatedDevice) -> None:
    with TraceBuffer(device, LAYOUT, 5):
        pass
    assert not device._memory


def test_headers_are_kept_in_l2_only_if_they_leave_it_to_the_kernel(device: SimulatedDevice) -> None:
    most = device.info.l2_bytes // 8 // LAYOUT.header_bytes - 1
    for slots, kept in ((most, True), (most + 1, False)):
        with TraceBuffer(device, SlotLayout(32, 32), slots) as buffer:
            assert buffer.target.keep is kept
        assert device.released == 1


@pytest.mark.parametrize("where", [-1, 6 * LAYOUT.stride])
def test_a_write_beside_the_slots_is_reported(device: SimulatedDevice, where: int) -> None:
    buffer = TraceBuffer(device, LAYOUT, 5)
    device.poke(buffer.address + where, b"\0")
    assert not buffer.guards_intact()
    with pytest.raises(XtraceError) as info:
        buffer.read()
    assert info.value.code == "XT5012"


def test_guards_reach_far_enough_to_matter(device: SimulatedDevice) -> None:
    buffer = TraceBuffer(device, LAYOUT, 1)
    device.poke(buffer.address - GUARD_BYTES, b"\0")
    assert not buffer.guards_intact()


def test_read_back_holds_every_record_in_smaller_slots(device: SimulatedDevice) -> None:
    config = LaunchConfig((5, 1, 1), (96, 1, 1))
    warps = warp_traces(config, records=11)
    buffer = TraceBuffer(device, LAYOUT, config.warps)
    write_trace(device, buffer.address, buffer.table, buffer.slots, LAYOUT, warps)
    trace = buffer.read()
    assert trace.slots == 15
    assert trace.slot.ring == 256
    assert trace.slot.stride < LAYOUT.stride
    assert trace.headers()["emitted_bytes"].tolist() == [176] * 15
    assert trace.headers()["events"].tolist() == [11] * 15
    assert trace.headers()["smid"].tolist() == [w % 4 for w in range(15)]
    quads = trace.rows()[:, :176].copy().view("<u4").reshape(15, 11, 4)
    assert quads[3, :, 2:].tolist() == [list(r) for r in warps[3].records]
    assert not trace.spilled


def test_a_ring_that_wrapped_is_kept_whole_with_its_slack(device: SimulatedDevice) -> None:
    buffer = TraceBuffer(device, LAYOUT, 2)
    long = WarpTrace([(n, 1) for n in range(100)])
    write_trace(device, buffer.address, buffer.table, 2, LAYOUT, [WarpTrace([(5, 2)]), long])
    device.poke(buffer.address + LAYOUT.stride + LAYOUT.ring + 40, b"\x07\0\0\0\x02\0\0\0")
    trace = buffer.read()
    assert trace.slot.ring == LAYOUT.ring
    assert trace.rows()[1, LAYOUT.ring + 40 : LAYOUT.ring + 48].tobytes() == b"\x07\0\0\0\x02\0\0\0"


def test_a_warp_that_never_reached_its_exit_is_read_whole(device: SimulatedDevice) -> None:
    buffer = TraceBuffer(device, LAYOUT, 1)
    warp = WarpTrace([(n, 1) for n in range(50)], t_exit_ns=0)
    write_trace(device, buffer.address, buffer.table, 1, LAYOUT, [warp])
    trace = buffer.read()
    assert not trace.headers()["ran"].any()
    assert np.count_nonzero(trace.rows()[0].copy().view("<u4")[3::4]) == 50


def test_a_launch_larger_than_the_buffer_is_noticed(device: SimulatedDevice) -> None:
    buffer = TraceBuffer(device, LAYOUT, 3)
    write_trace(device, buffer.address, buffer.table, 3, LAYOUT, warp_traces(LaunchConfig((5, 1, 1), (32, 1, 1))))
    trace = buffer.read()
    assert trace.spilled
    assert trace.headers()["t_entry_ns"].tolist() == [5000, 5001, 5002]


def test_the_map_for_the_decoder_carries_the_smaller_layout(device: SimulatedDevice) -> None:
    buffer = TraceBuffer(device, LAYOUT, 3)
    trace = buffer.read()
    document = trace_map(b"")
    changed = trace.map_for(document, KERNEL, (32, 1, 1))
    assert SlotLayout.of(changed["kernels"][0]["slot"]) == trace.slot
    assert changed["kernels"][0]["block"] == [32, 1, 1]
    assert len(trace.data) == 4 * (trace.slot.stride + 32)
    assert document["kernels"][0]["slot"]["stride"] == LAYOUT.stride


def test_zero_makes_the_buffer_fresh_again(device: SimulatedDevice) -> None:
    buffer = TraceBuffer(device, LAYOUT, 2)
    write_trace(device, buffer.address, buffer.table, 2, LAYOUT, warp_traces(LaunchConfig((2, 1, 1), (32, 1, 1))))
    assert not buffer.untouched()
    buffer.zero()
    assert buffer.untouched()


@pytest.mark.parametrize(
    "slot",
    [
        {"stride": 1008, "ring": 1024, "record": 4, "header_bytes": 32},
        {"stride": 1032, "ring": 1024, "record": 4, "header_bytes": 32},
        {"stride": 2048, "ring": 0, "record": 4, "header_bytes": 32},
        {"stride": 2048, "ring": 16, "record": 4, "header_bytes": 32},
        {"stride": 2048, "ring": 1040, "record": 4, "header_bytes": 32},
        {"stride": 2048, "ring": 1024, "record": 8, "header_bytes": 32},
        {"stride": 2048, "ring": 1024, "record": 4, "header_bytes": 64},
        {"stride": 2048, "ring": 1024, "record": 4},
    ],
)
def test_impossible_layouts_are_refused(slot: dict) -> None:
    with pytest.raises(BadInput, match="slot layout"):
        SlotLayout.of(slot)


def test_a_kernel_that_cannot_wrap_may_have_slots_without_slack(device: SimulatedDevice) -> None:
    layout = SlotLayout.of({"stride": 32, "ring": 32, "record": 4, "header_bytes": 32})
    assert layout.slack == 0
    buffer = TraceBuffer(device, layout, 3)
    warps = [WarpTrace([(150, 1), (160, 2)], t_exit_ns=9000 + n) for n in range(3)]
    write_trace(device, buffer.address, buffer.table, 3, layout, warps)
    trace = buffer.read()
    assert trace.slot.stride == trace.slot.ring
    tables = decode(trace.data, trace.map_for(trace_map(b"", layout=layout), KERNEL), KERNEL)
    assert tables.events["clock"].tolist() == [150, 160] * 3
    assert tables.summary["complete"]


def test_a_shortened_ring_keeps_packets_of_several_events(device: SimulatedDevice) -> None:
    document = trace_map(b"")
    document["kernels"][0]["packets"] = [{"tag": 77, "sites": [3, 1]}, {"tag": 2, "sites": [2]}]
    packets = [(77, (200 + 10 * n, 203 + 10 * n)) if n % 3 else (2, (200 + 10 * n,)) for n in range(9)]
    buffer = TraceBuffer(device, LAYOUT, 2)
    write_trace(device, buffer.address, buffer.table, 2, LAYOUT, [WarpTrace(packets=packets)] * 2)
    trace = buffer.read()
    assert trace.slot.ring == 256 < LAYOUT.ring
    tables = decode(trace.data, trace.map_for(document, KERNEL), KERNEL)
    found = list(zip(tables.events["clock"], tables.events["site"], strict=True))
    sites = {77: (3, 1), 2: (2,)}
    assert found == 2 * [pair for tag, clocks in packets for pair in zip(clocks, sites[tag], strict=True)]


def test_headers_alone_tell_that_records_were_overwritten(device: SimulatedDevice) -> None:
    buffer = TraceBuffer(device, LAYOUT, 2)
    warps = [WarpTrace([(200 + n, 1) for n in range(count)]) for count in (64, 67)]
    write_trace(device, buffer.address, buffer.table, 2, LAYOUT, warps)
    assert buffer.summary().overwritten == 3


def test_too_large_a_buffer_says_so(device: SimulatedDevice) -> None:
    with pytest.raises(XtraceError) as info:
        TraceBuffer(device, LAYOUT, 1 << 25)
    assert info.value.code == "XT5004"


def test_keys_of_a_slot_that_the_schema_does_not_know_are_ignored() -> None:
    slot = {"stride": 2048, "ring": 1024, "record": 4, "header_bytes": 32}
    assert SlotLayout.of({**slot, "header": 1536}) == SlotLayout.of(slot)


def test_low_halves_of_timer_and_clock_are_completed_over_their_wrap(device: SimulatedDevice) -> None:
    wrap = 1 << 32
    warps = [
        WarpTrace([(1, 1)], 3, 7 * wrap - 5, 7 * wrap + 9, clock_entry=wrap - 7, clock_exit=wrap + 3),
        WarpTrace([(1, 1)], 3, 7 * wrap - 9, 7 * wrap + 1, clock_entry=wrap - 9, clock_exit=wrap - 2),
    ]
    buffer = TraceBuffer(device, LAYOUT, 2)
    write_trace(device, buffer.address, buffer.table, 2, LAYOUT, warps)
    headers = buffer.read().headers()
    assert headers["t_entry_ns"].tolist() == [7 * wrap - 5, 7 * wrap - 9]
    clock = headers["clock_exit"].astype(int)
    assert clock[0] - clock[1] == 5
    assert (clock - headers["clock_entry"].astype(int)).tolist() == [10, 7]


def test_the_table_has_guards_of_its_own_and_never_crosses_4_gib(device: SimulatedDevice) -> None:
    device._next = (1 << 32) - GUARD_BYTES - 512
    buffer = TraceBuffer(device, LAYOUT, 100)
    assert buffer.table >> 32 == (buffer.table + 101 * 32 - 1) >> 32
    assert buffer.untouched()
    device.poke(buffer.table - 1, b"\0")
    assert not buffer.guards_intact()


def test_the_leading_slots_keep_their_headers(device: SimulatedDevice) -> None:
    buffer = TraceBuffer(device, LAYOUT, 5)
    write_trace(device, buffer.address, buffer.table, 5, LAYOUT, warp_traces(LaunchConfig((5, 1, 1), (32, 1, 1))))
    part = buffer.read().first(2)
    assert part.slots == 2
    assert part.headers()["t_entry_ns"].tolist() == [5000, 5001]
    assert part.rows().shape == (2, part.slot.stride)


def test_slots_that_interleave_are_read_back_as_far_as_they_were_used(device: SimulatedDevice) -> None:
    layout = SlotLayout(1024, 1024, stripe=32)
    warps = [WarpTrace([(1000 + 10 * w + n, 1 + n % 3) for n in range(w)]) for w in range(6)]
    buffer = TraceBuffer(device, layout, 4)  # the last two share the spill-over slot
    write_trace(device, buffer.address, buffer.table, 4, layout, warps)
    ends = [buffer.address + n for n in (-1, 5 * 1024)]
    assert [device.download(at, 1) for at in ends] == [b"\xa5"] * 2
    second = device.download(buffer.address + 5 * 32, 5 * 32)  # the second packet of each slot, side by side
    assert np.frombuffer(second, "<u4").reshape(5, 8)[:, 7].tolist() == [0, 0, 2, 2, 2]
    trace = buffer.read()
    assert (trace.slot.ring, trace.slot.stripe) == (128, 32)
    assert len(trace.data) == 5 * 128 + 5 * 32
    for whole in (trace, trace.first(3)):
        document = whole.map_for(trace_map(b""), KERNEL, (32, 1, 1))
        tables = decode(whole.data, document, KERNEL, grid=whole.slots)
        for slot in range(whole.slots):
            mine = tables.events[tables.events["slot"] == slot]
            assert mine["site"].tolist() == [site for _, site in warps[slot].records]
            assert (mine["clock"].to_numpy() & 0xFFFFFFFF).tolist() == [clock for clock, _ in warps[slot].records]
    assert trace.headers()["events"].tolist() == [0, 1, 2, 3]


def test_slots_that_interleave_keep_all_of_a_ring_that_wrapped(device: SimulatedDevice) -> None:
    layout = SlotLayout(64, 64, stripe=32)
    buffer = TraceBuffer(device, layout, 3)
    write_trace(device, buffer.address, buffer.table, 3, layout, [WarpTrace([(n, 1) for n in range(1, 6)])] * 3)
    trace = buffer.read()
    tables = decode(trace.data, trace.map_for(trace_map(b""), KERNEL), KERNEL)
    assert tables.events["seq"].tolist() == [3, 4] * 3
    assert tables.summary["overwritten"] == 9


@pytest.mark.parametrize("slot", [{"stripe": 48}, {"stripe": 32, "stride": 2048}, {"stripe": "x"}])
def test_impossible_stripes_are_refused(slot: dict) -> None:
    with pytest.raises(BadInput):
        SlotLayout.of({"stride": 1024, "ring": 1024, "record": 4, "header_bytes": 32, **slot})
