"""Whatever bytes and maps come, decoding raises our errors or gives tables whose counts add up."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest

from tests.trace.synthetic import KERNEL, Launch, attention, table_start
from tests.trace.test_store import mutate_json
from xtrace.errors import XtraceError
from xtrace.trace import decode, phase_times
from xtrace.trace.export import export

pytestmark = pytest.mark.fuzz


@pytest.fixture(scope="module")
def launch() -> Launch:
    return attention(ctas=2, tiles=8, ring=256)


def check(buffer: bytes, trace_map: dict[str, Any], launch: Launch, *, also_export: bool) -> None:
    try:
        tables = decode(buffer, trace_map, KERNEL, grid=launch.grid, block=launch.block)
        if also_export:
            phase_times(tables)
            export([tables], "chrome")
            export([tables], "perfetto")
    except XtraceError:
        return
    warps, summary = tables.warps, tables.summary
    assert (warps["written"] + warps["dropped"] == warps["emitted"]).all()
    assert (warps["dropped"] >= 0).all()
    assert summary["written"] == len(tables.events) == warps["written"].sum()
    assert summary["overwritten"] + summary["holes"] == summary["dropped"]
    assert summary["overwritten"] >= 0
    assert summary["holes"] >= 0
    json.dumps(summary, allow_nan=False)


def test_mutated_buffers(launch: Launch) -> None:
    rng = random.Random(5)
    table = table_start(launch.buffer, launch.map)
    for round_ in range(1200):
        data = bytearray(launch.buffer)
        for _ in range(rng.choice([1, 2, 8, 64])):
            at = rng.randrange(len(data))
            if rng.random() < 0.6:  # most of the meaning is in the headers
                at = rng.randrange(table, len(data))
            data[at] = rng.choice([0, 255, rng.randrange(256)])
        if rng.random() < 0.05:
            data = data[: rng.randrange(len(data))]
        check(bytes(data), launch.map, launch, also_export=round_ % 10 == 0)


def test_random_buffers(launch: Launch) -> None:
    rng = random.Random(6)
    for round_ in range(200):
        check(rng.randbytes(len(launch.buffer)), launch.map, launch, also_export=round_ % 10 == 0)


def test_mutated_maps(launch: Launch) -> None:
    rng = random.Random(7)
    for _ in range(800):
        trace_map = copy.deepcopy(launch.map)
        mutate_json(rng, trace_map)
        check(launch.buffer, trace_map, launch, also_export=False)
