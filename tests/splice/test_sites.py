"""Sites where registers or scoreboards are short: one lane alone, waits shared with the kernel, refusals."""

from __future__ import annotations

import pytest

from tests.analysis.programs import ins
from tests.splice.test_random_flow import kernel
from xtrace.analysis import KernelAnalysis
from xtrace.isa.model import Flow, Instruction
from xtrace.splice import KernelPlan, Options, plan_kernel
from xtrace.splice.apply import splice_kernel

EVERY = (1 << 255) - 1
P0 = 1 << 256


def made_up(free: int, body: list[Instruction], *, elected: bool = True) -> KernelAnalysis:
    """``body`` from index 5 on, run by one elected lane; all registers but ``free`` are live around it."""
    live = EVERY & ~free
    end = 5 + len(body)
    branch = ins(4, target=end, guard="@!P0", reads=P0, opcode="BRA", text=f"@!P0 BRA {16 * end:#x}", stall=13)
    start = [
        ins(0, stall=15),
        ins(1, writes=live, stall=15),
        ins(2, opcode="ELECT", writes=P0, text="ELECT P0, URZ, PT", stall=13),
        ins(3, opcode="BSSY", tags=["converge"], text=f"BSSY B0, {16 * end:#x}", stall=15),
        branch if elected else ins(4, stall=15),
    ]
    close = [
        ins(end, opcode="BSYNC", tags=["converge"], text="BSYNC B0", stall=15),
        ins(end + 1, reads=live | P0, stall=15),
        ins(end + 2, flow=Flow.EXIT, opcode="EXIT", text="EXIT", stall=5),
    ]
    return kernel([*start, *body, *close])


def planned(a: KernelAnalysis, *sites: int) -> KernelPlan:
    return plan_kernel(a, ",".join(f"pc:{16 * i:#x}" for i in sites), Options())


def plain(first: int, count: int) -> list[Instruction]:
    return [ins(i, stall=10) for i in range(first, first + count)]


def registers(*numbers: int) -> int:
    return sum(1 << n for n in numbers)


def test_one_lane_stores_what_fits_without_an_election() -> None:
    a = made_up(registers(17, 18, 19, 20, 21, 30), plain(5, 30))
    placed = planned(a, 8, 11, 14, 17)
    (packet,) = placed.packets
    assert [p.site.index for p in packet.records] == [8, 11, 14, 17]
    stores = [s for p in packet.islands for s in p.stores]
    assert sorted(s.words for s in stores) == [1, 2, 2]
    assert all(s.data % s.words == 0 for s in stores)
    assert all(p.predicate is None and p.elect is None for p in packet.islands)
    splice_kernel(placed)


def test_the_name_of_a_packet_follows_a_clock_through_its_register() -> None:
    a = made_up(registers(17, 19), plain(5, 30))
    placed = planned(a, 8, 11)
    (packet,) = placed.packets
    (stores,) = [p.stores for p in packet.islands if p.stores]
    assert [(s.words, s.fill) for s in stores] == [(1, None), (1, None), (1, packet.tag)]
    assert stores[2].data == stores[0].data
    splice_kernel(placed)


def test_a_warp_that_is_together_elects_a_lane_for_its_stores() -> None:
    a = made_up(registers(*range(16, 24)), plain(5, 30), elected=False)
    (packet,) = planned(a, 8, 11).packets
    assert any(p.elect is not None for p in packet.islands)


def test_registers_that_do_not_last_part_a_packet() -> None:
    body = plain(5, 30)
    body[5] = ins(10, writes=registers(17), stall=10)
    a = made_up(registers(17), body)
    assert [len(k.records) for k in planned(a, 8, 14).packets] == [1, 1]


def busy_body(register: int, *, waits: bool) -> list[Instruction]:
    """A load into ``register``, which the kernel overwrites at index 12, there waiting for it or not."""
    load = ins(6, writes=1 << register, write_sb=2, tags=["memory"], stall=4)
    over = ins(12, writes=1 << register, wait=4 if waits else 0, stall=15)
    return [*plain(5, 1), load, *plain(7, 5), over, *plain(13, 20)]


def test_a_probe_waits_along_with_the_instruction_at_its_site() -> None:
    a = made_up(registers(17), busy_body(17, waits=True))
    placed = planned(a, 12)
    (record,) = placed.records
    assert record.capture == 17
    assert record.shared_waits == ((2, 1 << 17),)
    word = splice_kernel(placed).islands[12].words
    assert any(w >> 116 & 0x3F == 4 and w & 0xFFF == 0x805 for w in word), "the clock is not read behind the wait"


@pytest.mark.parametrize("site", [9, 12])
def test_a_probe_waits_for_nothing_that_the_kernel_does_not_wait_for_there(site: int) -> None:
    a = made_up(registers(17), busy_body(17, waits=site != 12))
    (refusal,) = [r for r in planned(a, site).refused if r.site.kind == "record"]
    assert "R" in refusal.reason
    assert "live" in refusal.reason


def test_a_store_shares_a_scoreboard_only_for_the_time_of_its_island() -> None:
    claims = [ins(6 + k, write_sb=k, stall=4) for k in range(6)]
    body = [*plain(5, 1), *claims, ins(12, wait=8, target=13, opcode="BRA", text="BRA 0xd0", stall=9), *plain(13, 9)]
    (record,) = planned(made_up(registers(*range(16, 24)), body), 12).records
    assert record.scoreboard == 3
    assert record.wait_last
    assert record.shared_waits == ((3, 0),)
