"""Phases, roles, times and counts follow from the records."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trace.synthetic import KERNEL, SITE, Launch, Warp, attention, buffer_of, trace_map
from xtrace.errors import BadInput
from xtrace.trace import TraceTables, check_counts, counts_per_site, decode, phase_times, roles, spans


def decoded(launch: Launch) -> TraceTables:
    return decode(launch.buffer, launch.map, KERNEL, grid=launch.grid, block=launch.block)


def one_warp(times: list[tuple[str, float]]) -> TraceTables:
    warp = Warp(0, 0, 1000, 2000.0, trace_map(packets=()))
    warp.enter(0)
    for record in times:
        warp.group(record)
    warp.leave(1000)
    return decode(buffer_of([warp]), warp.map, KERNEL, block=32)


def test_a_phase_lasts_until_the_next_record_or_the_exit() -> None:
    table = spans(one_warp([("entry", 100), ("softmax", 300), ("epilogue", 600)]))
    assert list(table["phase"]) == ["prologue", "entry", "softmax", "epilogue"]
    assert list(table["cycles"]) == [200, 400, 600, 800]
    assert table["ns"].to_numpy() == pytest.approx([100, 200, 300, 400], rel=0.05)
    assert table["certain"].all()


def test_spans_of_a_warp_never_overlap() -> None:
    table = spans(decoded(attention()))
    for _, part in table.groupby("slot"):
        assert (part["start_ns"].to_numpy()[1:] >= part["end_ns"].to_numpy()[:-1]).all()


def test_spans_never_overlap_even_if_a_clock_ran_backwards() -> None:
    table = spans(one_warp([("entry", 100), ("softmax", 500), ("epilogue", 300), ("entry", 600)]))
    assert (table["start_ns"].to_numpy()[1:] >= table["end_ns"].to_numpy()[:-1]).all()
    assert (table["ns"] >= 0).all()
    assert not table["certain"].all()


def test_the_last_phase_of_an_unfinished_warp_has_no_known_end() -> None:
    tables = one_warp([("entry", 100), ("softmax", 300)])
    tables.warps["finished"], tables.warps["t_exit_ns"] = False, np.nan  # as a trace file may say
    table = spans(tables)
    assert list(table["certain"]) == [True, True, False]
    assert table["ns"].iloc[2] == 0


def test_the_spans_of_a_warp_add_up_to_its_life() -> None:
    tables = decoded(attention())
    lived = (tables.warps["t_exit_ns"] - tables.warps["t_entry_ns"]).to_numpy()
    assert spans(tables).groupby("slot")["ns"].sum().to_numpy() == pytest.approx(lived)


def test_warps_without_records_are_running_from_entry_to_exit() -> None:
    launch = attention()
    launch.map["kernels"][0]["sites"] = [
        {"id": None, "kind": "entry", "pc": 0, "op": "LDC", "phase": "entry"},
        {"id": None, "kind": "exit", "pc": 64, "op": "EXIT", "phase": "exit"},
    ]
    launch.map["kernels"][0]["packets"] = []
    for warp in launch.warps:
        warp.data[:] = bytes(len(warp.data))
        warp.header[9:12], warp.header[28:] = bytes(3), bytes(4)  # no events, no bytes
    launch.buffer = buffer_of(launch.warps)
    tables = decoded(launch)
    table = spans(tables)
    assert set(table["phase"]) == {"running"}
    assert len(table) == len(tables.warps) == 48
    assert table["certain"].all()
    assert list(phase_times(tables)["phase"]) == ["running"]


def test_the_time_before_the_first_record_is_uncertain_when_the_ring_has_dropped_some() -> None:
    table = spans(decoded(attention(ring=128))).query("slot == 5")
    assert list(table["certain"])[:2] == [False, True]


def test_a_phase_before_a_lost_record_is_uncertain() -> None:
    launch = attention()
    damaged = bytearray(launch.buffer)
    stride = launch.map["kernels"][0]["slot"]["stride"]
    at, _ = launch.warps[4].packets[3]
    damaged[4 * stride + at : 4 * stride + at + 32] = bytes(32)
    launch.buffer = bytes(damaged)
    table = spans(decoded(launch)).query("slot == 4")
    assert list(table.loc[~table["certain"], "seq"]) == [sum(n for _, n in launch.warps[4].packets[:3]) - 1]


def test_roles_are_warps_that_pass_the_same_sites() -> None:
    role = roles(decoded(attention()))
    assert role[0] == "warp 0"
    assert set(role[[1, 2, 3]]) == {"warps 1-3"}
    assert set(role[range(4, 12)]) == {"warps 4-11"}


def test_phase_times_add_up_per_role() -> None:
    tables = decoded(attention())
    times = phase_times(tables)
    assert times.groupby("role")["share"].sum().to_numpy() == pytest.approx(1.0)
    softmax = times.query("role == 'warps 4-11' and phase == 'softmax'").iloc[0]
    assert softmax["spans"] == 8 * 12 * 4
    assert 400 < softmax["mean_ns"] < 460
    assert softmax["total_ns"] == pytest.approx(softmax["mean_ns"] * softmax["spans"])


def test_counts_per_site_are_those_of_the_model() -> None:
    launch = attention()
    counts = counts_per_site(decoded(launch)).set_index("site")["records"]
    for number in SITE.values():
        assert counts[number] == sum(site == number for w in launch.warps for site, _ in w.records)


def test_expected_counts_are_met_or_named() -> None:
    launch = attention()
    tables = decoded(launch)
    expected = {s: sum(site == s for w in launch.warps for site, _ in w.records) for s in SITE.values()}
    assert check_counts(tables, expected).ok
    assert check_counts(tables, {np.int64(s): n for s, n in expected.items()}).ok
    wrong = check_counts(tables, {**expected, 7: expected[7] + 3, 99: 1})
    assert not wrong.ok
    assert dict(zip(wrong.rows["site"], wrong.rows["missing"], strict=True)) | {7: 3, 99: 1} == dict(
        zip(wrong.rows["site"], wrong.rows["missing"], strict=True)
    )
    unlisted = check_counts(tables, {s: n for s, n in expected.items() if s != 1})
    assert not unlisted.ok


def test_dropped_records_never_pass_the_count_check() -> None:
    tables = decoded(attention(ring=128))
    seen = counts_per_site(tables).set_index("site")["records"].to_dict()
    assert tables.summary["dropped"] > 0
    assert not check_counts(tables, seen).ok


@pytest.mark.parametrize("bad", [-1, 1.5, True, "3"])
def test_expected_counts_must_be_whole_numbers(bad: object) -> None:
    with pytest.raises(BadInput) as caught:
        check_counts(decoded(attention()), {1: bad})  # type: ignore[dict-item]
    assert caught.value.code == "XT8301"
