import itertools

import pytest

from tests.runtime.stand_ins import KERNEL, LAYOUT, images, toy_kernel, trace_map
from xtrace.runtime.buffers import TraceBuffer
from xtrace.runtime.checks import check_outputs, trace_facts
from xtrace.runtime.device import LaunchConfig
from xtrace.runtime.launch import DirectArm, TracedArm
from xtrace.runtime.simulated import SimulatedDevice, WarpTrace, write_trace
from xtrace.sampling import Sampling

CONFIG = LaunchConfig((4, 1, 1), (64, 1, 1))


def _outputs(behaviour):
    device = SimulatedDevice({KERNEL: behaviour})
    out = device.allocate(8)
    params = [[("*i8", out), ("i32", 9)]]
    original, traced = images()
    a = DirectArm(device, original, KERNEL, CONFIG, params)
    b = TracedArm.load(device, traced, trace_map(traced), KERNEL, CONFIG, params)
    region = [(out, 8)]

    def run(arm):
        return lambda: (arm.launch(0), region)[1]

    return check_outputs(device, [run(a), run(a)], run(b), lambda: region)


def test_equal_outputs_pass() -> None:
    check = _outputs(toy_kernel())
    assert check.bit_identical is True
    assert not check.poison_left


def test_one_changed_bit_is_seen() -> None:
    check = _outputs(toy_kernel(corrupt=True))
    assert check.bit_identical is False
    assert check.changed_bytes == 1


def test_a_kernel_that_does_not_repeat_itself_gives_no_verdict() -> None:
    counter = itertools.count(1)

    def behaviour(device, image, config, packed):
        device.poke(packed.params[0][1], next(counter).to_bytes(8, "little"))
        return 1.0

    check = _outputs(behaviour)
    assert check.bit_identical is None
    assert not check.original_repeats


def test_a_kernel_that_writes_nothing_is_seen() -> None:
    assert _outputs(lambda *_: 1.0).poison_left


def _facts(warps, slots=None, entry=None, warps_per_cta=1):
    device = SimulatedDevice()
    buffer = TraceBuffer(device, LAYOUT, slots or len(warps))
    write_trace(device, buffer.address, buffer.table, buffer.slots, LAYOUT, warps)
    return trace_facts(buffer.read(), entry or trace_map(b"")["kernels"][0], warps_per_cta)


def test_totals_per_site() -> None:
    facts = _facts([WarpTrace([(200, 1), (210, 2), (220, 2)]), WarpTrace([(200, 1)]), WarpTrace([])])
    assert facts.warps == 3
    assert facts.emitted == facts.written == 4
    assert facts.lost == 0
    assert dict(facts.per_site) == {1: 2, 2: 2, 3: 0}
    assert facts.monotonic
    assert facts.bracketed


def test_warps_that_the_rule_does_not_take_are_strays() -> None:
    entry = trace_map(b"")["kernels"][0] | {"sample": Sampling.parse("cta=2,warp=1").document()}
    warps = [WarpTrace([(200, 1)]) if n in (1, 5) else None for n in range(8)]  # two warps a CTA
    assert (_facts(warps, entry=entry, warps_per_cta=2).warps, _facts(warps, entry=entry, warps_per_cta=2).stray) == (
        2,
        0,
    )
    warps[2] = WarpTrace([(200, 1)])
    assert _facts(warps, entry=entry, warps_per_cta=2).stray == 1


def test_overwritten_records_are_lost() -> None:
    facts = _facts([WarpTrace([(200 + n, 1) for n in range(66)])])
    assert facts.emitted == 66
    assert facts.lost == 2
    assert facts.wrapped == 1


def test_packets_of_several_events_are_counted_by_site() -> None:
    entry = trace_map(b"")["kernels"][0] | {"packets": [{"tag": 9, "sites": [2, 3]}, {"tag": 4, "sites": [1]}]}
    warps = [WarpTrace(packets=[(4, [200]), (9, [210, 220]), (9, [230, 240])]), WarpTrace(packets=[(4, [300])])]
    facts = _facts(warps, entry=entry)
    assert facts.emitted == facts.written == 6
    assert dict(facts.per_site) == {1: 2, 2: 2, 3: 2}
    assert facts.per_cta.tolist() == [[0, 1, 2, 2], [0, 1, 0, 0]]


def test_a_header_that_contradicts_its_ring_loses_everything() -> None:
    device = SimulatedDevice()
    buffer = TraceBuffer(device, LAYOUT, 1)
    warp = WarpTrace(packets=[(9, [210, 220])])
    write_trace(device, buffer.address, buffer.table, 1, LAYOUT, [warp])
    device.poke(buffer.table + 9, b"\1")  # one event instead of two
    entry = trace_map(b"")["kernels"][0] | {"packets": [{"tag": 9, "sites": [2, 3]}, {"tag": 4, "sites": [1]}]}
    facts = trace_facts(buffer.read(), entry)
    assert (facts.emitted, facts.written, facts.lost) == (1, 0, 1)


def test_order_is_checked_in_rings_that_wrapped_too() -> None:
    records = [(200 + n, 1) for n in range(100)]
    assert _facts([WarpTrace(records)]).monotonic
    records[90:92] = reversed(records[90:92])
    assert not _facts([WarpTrace(records)]).monotonic


def test_clocks_that_run_backwards_are_seen() -> None:
    assert not _facts([WarpTrace([(300, 1), (200, 2)])]).monotonic


def test_the_wrap_of_the_clock_is_not_backwards() -> None:
    warp = WarpTrace([(0xFFFFFFF0, 1), (0x10, 2)], clock_entry=0xFFFFFF00, clock_exit=0x1_0000_0020)
    facts = _facts([warp])
    assert facts.monotonic
    assert facts.bracketed


@pytest.mark.parametrize("records", [[(50, 1)], [(200, 1), (200_000, 2)]])
def test_records_outside_the_life_of_the_warp_are_seen(records) -> None:
    facts = _facts([WarpTrace(records)])
    assert facts.monotonic
    assert not facts.bracketed


def test_unknown_sites_and_unfinished_warps_are_counted() -> None:
    facts = _facts([WarpTrace([(200, 9)]), WarpTrace([(200, 1)], t_exit_ns=0)])
    assert facts.unknown_sites == facts.lost == 1
    assert facts.warps_unfinished == 1
