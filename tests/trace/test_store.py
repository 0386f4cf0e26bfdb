"""Trace files: what is saved comes back, and hostile files are refused."""

from __future__ import annotations

import io
import json
import random
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.trace.synthetic import KERNEL, attention
from xtrace.errors import BadInput, XtraceError
from xtrace.trace import decode, load, phase_times, save
from xtrace.trace.export import FORMATS, export

PROVENANCE = {"device": "model", "date": "2026-01-01"}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    launch = attention(ctas=2, tiles=3)
    tables = decode(launch.buffer, launch.map, KERNEL, grid=launch.grid, block=launch.block)
    return save(tmp_path_factory.mktemp("store") / "t.xtrace", [tables, tables], launch.map, PROVENANCE)


def test_tables_map_and_provenance_come_back_unchanged(tmp_path: Path) -> None:
    launch = attention()
    tables = decode(launch.buffer, launch.map, KERNEL, grid=launch.grid, block=launch.block)
    trace = load(save(tmp_path / "t.xtrace", tables, launch.map, PROVENANCE))
    pd.testing.assert_frame_equal(trace.tables.events, tables.events)
    pd.testing.assert_frame_equal(trace.tables.warps, tables.warps)
    assert trace.tables.summary == tables.summary
    assert trace.map == launch.map
    assert trace.provenance == PROVENANCE


RECORDED = sorted((Path(__file__).resolve().parents[2] / "results/recorded/traces").glob("*.xtrace"))


@pytest.mark.parametrize("path", RECORDED, ids=lambda p: p.name)
def test_recorded_traces_load_whatever_version_wrote_them(path: Path) -> None:
    trace = load(path)
    assert len(trace.tables.events) == trace.tables.summary["written"] > 0
    assert (trace.tables.events["pc"] >= 0).all()


def test_a_trace_file_of_an_older_version_keeps_its_sites_and_phases(saved: Path, tmp_path: Path) -> None:
    """Such a file holds decoded tables; only its map is of the older schema, which has no packets."""
    trace = load(saved)
    old = json.loads(json.dumps(trace.map))
    old["schema"] = "xtrace/map/1"
    kernel = old["kernels"][0]
    del kernel["packets"]
    kernel["slot"]["record"] = 8
    again = load(save(tmp_path / "old.xtrace", trace.launches, old, PROVENANCE))
    pd.testing.assert_frame_equal(again.tables.events, trace.tables.events)


def test_several_launches_fit_in_one_file(saved: Path) -> None:
    assert len(load(saved).launches) == 2


def test_the_same_trace_gives_the_same_bytes(saved: Path, tmp_path: Path) -> None:
    trace = load(saved)
    again = save(tmp_path / "u.xtrace", trace.launches, trace.map, trace.provenance)
    assert again.read_bytes() == saved.read_bytes()


def test_numpy_alone_reads_the_columns(saved: Path) -> None:
    with np.load(saved, allow_pickle=False) as columns:
        assert (columns["0/events/clock"] == load(saved).tables.events["clock"]).all()


def test_nothing_is_written_for_what_is_not_json(saved: Path, tmp_path: Path) -> None:
    trace = load(saved)
    with pytest.raises(BadInput) as caught:
        save(tmp_path / "t.xtrace", trace.tables, trace.map, {"x": object()})
    assert caught.value.code == "XT8401"
    with pytest.raises(BadInput):
        save(tmp_path / "t.xtrace", [], trace.map, {})
    assert not list(tmp_path.iterdir())


def test_a_missing_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such trace file"):
        load(tmp_path / "absent.xtrace")


def rewrite(source: Path, target: Path, **changes: bytes | None) -> Path:
    """Copy of a trace file with members replaced (or left out: None)."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            data = changes.get(info.filename, old.read(info))
            if data is not None:
                new.writestr(info.filename, data)
    return target


def npy(array: np.ndarray, allow_pickle: bool = False) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=allow_pickle)
    return out.getvalue()


@pytest.mark.parametrize(
    "changes",
    [
        {"manifest.json": None},
        {"manifest.json": b"{}"},
        {"manifest.json": b"[" * 100_000},
        {"map.json": b"{}"},
        {"0/events/clock.npy": None},
        {"0/events/clock.npy": b""},
        {"0/events/clock.npy": npy(np.zeros(3, dtype="<u8"))},
        {"0/events/clock.npy": npy(np.array([{}, {}], dtype=object), allow_pickle=True)},
        {"0/warps/written.npy": npy(np.full(24, 1000, dtype="<i8"))},
        {"0/events/t_ns.npy": npy(np.zeros((2, 2)))},
    ],
    ids=lambda c: next(iter(c)),
)
def test_files_that_contradict_themselves_are_refused(saved: Path, tmp_path: Path, changes: dict[str, bytes]) -> None:
    with pytest.raises(BadInput) as caught:
        load(rewrite(saved, tmp_path / "bad.xtrace", **changes))
    assert caught.value.code in ("XT8403", "XT8101", "XT8102")
    assert "bad.xtrace" in str(caught.value)


def test_a_file_that_unpacks_to_far_more_than_its_size_is_refused(saved: Path, tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.xtrace"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", b" " * (1 << 26))
    with pytest.raises(BadInput, match="claim to unpack"):
        load(bomb)


def test_a_huge_shape_in_a_small_column_is_refused(saved: Path, tmp_path: Path) -> None:
    column = npy(np.zeros(4, dtype="<u8")).replace(b"(4,)", b"(1<")
    huge = npy(np.zeros(4, dtype="<u8")).replace(b"(4,), }     ", b"(9999999,),}")
    for data in (column, huge):
        with pytest.raises(BadInput):
            load(rewrite(saved, tmp_path / "bad.xtrace", **{"0/events/clock.npy": data}))


@pytest.mark.fuzz
def test_mutated_trace_files_only_raise_our_errors(saved: Path, tmp_path: Path) -> None:
    rng = random.Random(11)
    good = saved.read_bytes()
    path = tmp_path / "m.xtrace"
    for _ in range(600):
        data = bytearray(good)
        for _ in range(rng.choice([1, 1, 2, 8, 64])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.2:
            data = data[: rng.randrange(len(data))]
        path.write_bytes(data)
        use(path)


@pytest.mark.fuzz
def test_mutated_members_only_raise_our_errors(saved: Path, tmp_path: Path) -> None:
    """Checksums stop most byte flips above; here the members change and the archive stays whole."""
    rng = random.Random(12)
    with zipfile.ZipFile(saved) as archive:
        names = archive.namelist()
        members = {name: archive.read(name) for name in names}
    for _ in range(600):
        name = rng.choice([n for n in names if not n.startswith("1/")])
        data = bytearray(members[name])
        if name.endswith(".json"):
            document = json.loads(data)
            mutate_json(rng, document)
            data = bytearray(json.dumps(document).encode())
        else:
            for _ in range(rng.choice([1, 2, 8])):
                data[rng.randrange(len(data))] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
        use(rewrite(saved, tmp_path / "m.xtrace", **{name: bytes(data)}))


def mutate_json(rng: random.Random, node: object) -> None:
    junk = [None, -1, 2**70, 1.5, "x", [], {}, True, [[]], 1 << 41, 1e308, "\x00"]
    while True:
        keys = list(node) if isinstance(node, dict) else range(len(node))  # type: ignore[arg-type]
        key = rng.choice(list(keys))
        child = node[key]  # type: ignore[index]
        if not isinstance(child, dict | list) or not child or rng.random() < 0.2:
            node[key] = rng.choice(junk)  # type: ignore[index]
            return
        node = child


def use(path: Path) -> None:
    """Load a file and, if that works, do with it what the command line does."""
    try:
        trace = load(path)
        for tables in trace.launches:
            phase_times(tables)
        for kind in FORMATS:
            export(trace.launches, kind)
    except XtraceError:
        pass


def test_a_trace_of_extreme_regularity_can_be_read_again(tmp_path: Path) -> None:
    launch = attention(ctas=1, tiles=1)
    tables = decode(launch.buffer, launch.map, KERNEL, grid=launch.grid, block=launch.block)
    trace = load(save(tmp_path / "r.xtrace", tables, launch.map, {"note": "x" * (1 << 25)}))
    assert len(trace.provenance["note"]) == 1 << 25
