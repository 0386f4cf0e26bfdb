"""Recorded addresses come back exactly: with offset, only of accesses that were made, whatever else shares a packet.

What traced code writes is taken from the verifier's dry run, which keeps by itself what the kernel's registers were.
"""

from __future__ import annotations

import struct
from collections import Counter
from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.splice.conftest import image
from xtrace.splice import Options, Stripes, apply, plan
from xtrace.trace import accesses, addresses_per_site, decode, load, save, spans
from xtrace.trace.export import to_chrome, to_csv
from xtrace.verify import verify
from xtrace.verify.ring import Ring

CASES = (
    ("triton_fa_fwd", "mem"), ("triton_gemm", "pp,mem"), ("cp_async", "mem"), ("spin", "pp,mem"),
    ("warp_specialised", "mem"), ("brx_table", "pp,mem"),
)  # fmt: skip


@cache
def runs(name: str, spec: str) -> tuple[dict[str, Any], list[Ring]]:
    """The map of a traced kernel, and what warps on made-up ways left in their rings."""
    loaded = image(name)
    traced = apply(plan(loaded, loaded.kernels[:1], spec, Options(16, stripes=Stripes.OFF)))
    seen: list[Ring] = []
    check = Ring.wrong

    def keep(ring: Ring, smid: int, end: int, pc: int) -> str:
        seen.append(deepcopy(ring))
        return check(ring, smid, end, pc)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ring, "wrong", keep)
        assert verify(loaded.data, traced.data, traced.map).ok
    return traced.map, seen


def buffer_of(entry: dict[str, Any], ring: Ring) -> bytes:
    """Device memory after a launch of this one warp: its slot and header, and those of warps too many."""
    slot = bytearray(entry["slot"]["stride"])
    for at, word in ring.slot.items():
        struct.pack_into("<I", slot, at, 0xDEADBEEF if word.value is None else word.value)
    header = struct.pack("<8I", *(ring.header[4 * n] or 0 for n in range(8)))
    return bytes(slot) + bytes(len(slot)) + header + bytes(32)


@pytest.mark.parametrize(("name", "spec"), CASES)
def test_every_address_is_the_one_that_the_access_had(name: str, spec: str) -> None:
    trace_map, seen = runs(name, spec)
    entry = trace_map["kernels"][0]
    sites = {s["id"]: s for s in entry["sites"] if s["probe"] == "address"}
    derived = {s["id"]: s["from"] for s in entry.get("derived", [])}
    assert sites
    made = missed = 0
    for ring in seen:
        if not ring.slot:
            continue
        tables = decode(buffer_of(entry, ring), trace_map, entry["name"])
        wanted = {n: ring.accesses.get(s["at"] // 16, []) for n, s in sites.items()}
        counts = tables.events["site"].value_counts()
        unknown = sum(counts.get(leader, 0) - counts.get(number, 0) for number, leader in derived.items())
        assert unknown == tables.summary.get("derived_unknown", 0)
        for number, rows in tables.events.groupby("site"):
            if number in derived:
                continue
            if number not in sites:
                assert not rows["address"].any()
                continue
            newest = wanted[number][-len(rows) :]
            offset = sites[number]["address"]["offset"]
            assert rows["address"].tolist() == [(a + offset) % 2**64 if done else 0 for a, done in newest]
            made += sum(done for _, done in newest)
            missed += sum(not done for _, done in newest)
        if tables.summary["complete"] or not tables.summary["dropped"]:
            counted = Counter(tables.events["site"].tolist())
            assert all(counted[n] == len(found) for n, found in wanted.items())
    assert made
    assert missed or not any(s["address"]["conditional"] for s in sites.values())


def test_accesses_interrupt_no_phase_and_share_the_clock_of_their_run() -> None:
    trace_map, seen = runs("triton_gemm", "pp,mem")
    entry = trace_map["kernels"][0]
    ring = max((r for r in seen if r.slot), key=lambda r: len(r.accesses))
    tables = decode(buffer_of(entry, ring), trace_map, entry["name"])
    numbers = [s["id"] for s in (*entry["sites"], *entry["derived"]) if s.get("probe", "address") == "address"]
    assert set(tables.summary["access_sites"]) == set(numbers)
    others = tables.events[~tables.events["site"].isin(numbers)]
    table = spans(tables)
    assert table["site"][table["site"] > 0].tolist() == others["site"].tolist()
    assert table["certain"].all() or tables.summary["dropped"]
    shown = set(tables.events["site"])
    values = {s["id"] for s in entry["sites"] if s["probe"] == "value"}
    packets = ({*p.get("addresses", [])} - values for p in entry["packets"])
    recorded = next(p for p in packets if len(p) > 2 and shown >= p)
    rows = tables.events[tables.events["site"].isin(recorded)]
    assert rows["clock"].nunique() < len(rows)
    assert rows["clock"].is_monotonic_increasing


@pytest.mark.parametrize(("name", "spec"), [("spin", "mem"), ("triton_gemm", "pp,mem")])
def test_a_trace_file_and_exports_keep_addresses(tmp_path: Any, name: str, spec: str) -> None:
    trace_map, seen = runs(name, spec)
    entry = trace_map["kernels"][0]
    tables = decode(buffer_of(entry, max(seen, key=lambda r: len(r.slot))), trace_map, entry["name"])
    again = load(save(tmp_path / "a.xtrace", tables, trace_map, {})).tables
    assert again.events["address"].tolist() == tables.events["address"].tolist()
    found = accesses(again)
    assert len(found)
    some = int(found["address"].iloc[0])
    assert f"{some:#x}" in to_chrome([again]).decode()
    assert str(some) in to_csv([again], "events").decode()
    table = addresses_per_site(again)
    assert table["made"].sum() == len(found)
    assert table["highest"].max() == found["address"].max()


def test_perfetto_has_an_instant_with_the_address_of_each_access() -> None:
    pytest.importorskip("perfetto")
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    from xtrace.trace.perfetto import to_perfetto

    trace_map, seen = runs("spin", "mem")
    entry = trace_map["kernels"][0]
    tables = decode(buffer_of(entry, max(seen, key=lambda r: len(r.slot))), trace_map, entry["name"])
    trace = Trace()
    trace.ParseFromString(to_perfetto([tables]))
    notes = [note for packet in trace.packet for note in packet.track_event.debug_annotations]
    assert [note.pointer_value for note in notes] == accesses(tables)["address"].tolist()


def test_traces_without_accesses_have_no_address_column() -> None:
    trace_map, seen = runs("spin", "pp")
    entry = trace_map["kernels"][0]
    assert trace_map["schema"] == "xtrace/map/2"
    tables = decode(buffer_of(entry, max(seen, key=lambda r: len(r.slot))), trace_map, entry["name"])
    assert "address" not in tables.events
    assert not len(accesses(tables))
    assert not len(addresses_per_site(tables))
    assert tables.events["clock"].dtype == np.uint64
