"""What other viewers get: every phase once, on its warp's track, without overlap."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest

from tests.trace.synthetic import KERNEL, attention
from xtrace.errors import BadInput
from xtrace.trace import TraceTables, decode, spans
from xtrace.trace.export import export, only_ctas


@pytest.fixture(scope="module")
def tables() -> TraceTables:
    launch = attention()
    return decode(launch.buffer, launch.map, KERNEL, grid=launch.grid, block=launch.block)


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """A reader of the protobuf wire format, independent of the library that wrote the file."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = varint()
        kind = tag & 7
        if kind == 0:
            yield tag >> 3, varint()
        elif kind == 2:
            size = varint()
            yield tag >> 3, data[at : at + size]
            at += size
        else:
            raise AssertionError(f"unexpected wire type {kind}")


# Numbers of the fields in Perfetto's public schema.
PACKET, TIMESTAMP, TRACK_EVENT, INTERNED, SEQUENCE, FLAGS, DESCRIPTOR = 1, 8, 11, 12, 10, 13, 60
EVENT_TYPE, EVENT_NAME_IID, EVENT_TRACK = 9, 10, 11
UUID, NAME, PARENT = 1, 2, 5


def read_perfetto(data: bytes) -> tuple[dict[int, tuple[str, int]], dict[int, list[tuple[int, int, str]]]]:
    """Tracks (uuid -> name, parent) and events per track (timestamp, type, name), in file order."""
    tracks: dict[int, tuple[str, int]] = {}
    events: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    names: dict[int, str] = {0: ""}
    for number, raw in fields(data):
        assert number == PACKET
        packet = dict(fields(raw))  # type: ignore[arg-type]
        assert packet[SEQUENCE] == 1
        if DESCRIPTOR in packet:
            track = dict(fields(packet[DESCRIPTOR]))  # type: ignore[arg-type]
            tracks[int(track[UUID])] = (bytes(track[NAME]).decode(), int(track.get(PARENT, 0)))  # type: ignore[arg-type]
        if INTERNED in packet:
            for _, entry in fields(packet[INTERNED]):  # type: ignore[arg-type]
                name = dict(fields(entry))  # type: ignore[arg-type]
                names[int(name[1])] = bytes(name[2]).decode()  # type: ignore[arg-type]
        if TRACK_EVENT in packet:
            event = dict(fields(packet[TRACK_EVENT]))  # type: ignore[arg-type]
            events[int(event[EVENT_TRACK])].append(
                (int(packet[TIMESTAMP]), int(event[EVENT_TYPE]), names[int(event.get(EVENT_NAME_IID, 0))])  # type: ignore[arg-type]
            )
    return tracks, events


def test_perfetto_has_a_track_per_sm_cta_and_warp(tables: TraceTables) -> None:
    tracks, events = read_perfetto(export([tables], "perfetto"))
    paths = set()
    for uuid in events:
        path = []
        while uuid:
            name, uuid = tracks[uuid]
            path.append(name)
        paths.add(tuple(reversed(path)))
    rows = tables.warps[["sm", "cta", "warp"]].itertuples(index=False)
    root = "launch 0: flash_fwd(void*)"
    assert paths == {(root, f"SM {sm}", f"CTA {cta}", f"warp {warp}") for sm, cta, warp in rows}


def test_perfetto_slices_are_the_spans_and_never_overlap(tables: TraceTables) -> None:
    _, events = read_perfetto(export([tables], "perfetto"))
    found = []
    for track in events.values():
        open_since: tuple[int, str] | None = None
        latest = 0
        for timestamp, kind, name in track:
            assert timestamp >= latest
            latest = timestamp
            if kind == 1:
                assert open_since is None
                open_since = (timestamp, name)
            elif kind == 2:
                assert open_since is not None
                found.append((*open_since, timestamp))
                open_since = None
            else:
                found.append((timestamp, name, timestamp))
        assert open_since is None
    table, origin = spans(tables), tables.summary["origin_ns"]
    start, end = (np.rint(table[c]).astype(np.int64) + origin for c in ("start_ns", "end_ns"))
    assert sorted(found) == sorted(zip(start, table["phase"], end, strict=True))


def test_chrome_events_are_in_microseconds_and_never_overlap_on_a_thread(tables: TraceTables) -> None:
    document = json.loads(export([tables], "chrome"))
    threads = defaultdict(list)
    for event in document["traceEvents"]:
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append((event["ts"], event["dur"], event["name"]))
    assert len(threads) == len(tables.warps)
    for events in threads.values():
        for (ts, dur, _), (following, _, _) in zip(sorted(events), sorted(events)[1:], strict=False):
            assert ts + dur <= following + 1e-9
    table = spans(tables)
    total = sum(dur for events in threads.values() for _, dur, _ in events)
    assert total == pytest.approx(table["ns"].sum() / 1000, rel=1e-3)
    names = {e["args"]["name"] for e in document["traceEvents"] if e["name"] == "thread_name"}
    assert "CTA 1 warp 5" in names


def test_launches_do_not_share_chrome_processes(tables: TraceTables) -> None:
    document = json.loads(export([tables, tables], "chrome"))
    processes = [e["pid"] for e in document["traceEvents"] if e["name"] == "process_name"]
    assert len(processes) == len(set(processes)) == 2 * tables.summary["sms"]


@pytest.mark.parametrize("table", ["spans", "events", "warps"])
def test_csv_and_parquet_hold_the_same_rows(tables: TraceTables, table: str) -> None:
    csv = pd.read_csv(io.BytesIO(export([tables], "csv", table)))
    expected = {"spans": spans(tables), "events": tables.events, "warps": tables.warps}[table]
    assert len(csv) == len(expected)
    assert (csv["slot"].to_numpy() == expected["slot"].to_numpy()).all()
    pytest.importorskip("pyarrow")
    parquet = pd.read_parquet(io.BytesIO(export([tables], "parquet", table)))
    assert list(parquet.columns) == list(csv.columns)
    assert len(parquet) == len(csv)


def test_chosen_ctas_only(tables: TraceTables) -> None:
    part = only_ctas(tables, [1, 3])
    assert set(part.warps["cta"]) == set(part.events["cta"]) == {1, 3}
    with pytest.raises(BadInput) as caught:
        only_ctas(tables, [77])
    assert caught.value.code == "XT8501"


def test_unknown_formats_are_refused(tables: TraceTables) -> None:
    with pytest.raises(BadInput, match="perfetto, chrome"):
        export([tables], "speedscope")
