"""Pictures: right content, stable bytes, distinguishable phases."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.trace.synthetic import KERNEL, PHASES, attention
from xtrace.errors import BadInput
from xtrace.trace import TraceTables, decode
from xtrace.trace.palette import KNOWN, looks
from xtrace.trace.terminal import cta_timeline
from xtrace.trace.timeline import cta_spans, plot_cta


@pytest.fixture(scope="module")
def tables() -> TraceTables:
    launch = attention()
    return decode(launch.buffer, launch.map, KERNEL, grid=launch.grid, block=launch.block)


def texts(path: Path) -> list[str]:
    return ["".join(e.itertext()).strip() for e in ET.parse(path).iter("{http://www.w3.org/2000/svg}text")]


def test_the_picture_names_warps_phases_units_and_the_time_error(tables: TraceTables, tmp_path: Path) -> None:
    svg, png = tmp_path / "t.svg", tmp_path / "t.png"
    assert plot_cta(tables, [svg, png], cta=1) == 1
    shown = texts(svg)
    assert {f"warp {w}" for w in range(12)} <= set(shown)
    assert {name for name, _ in PHASES} <= set(shown)
    assert any("µs" in t and "time error below" in t for t in shown)
    assert any("CTA 1 on SM 1" in t for t in shown)
    assert png.read_bytes().startswith(b"\x89PNG")


def test_a_zoomed_picture_shows_only_what_happened_there(tables: TraceTables, tmp_path: Path) -> None:
    plot_cta(tables, tmp_path / "z.svg", cta=0, window_us=(5, 8))
    shown = texts(tmp_path / "z.svg")
    assert "softmax" in shown
    assert "epilogue" not in shown


def test_the_same_trace_gives_the_same_picture(tables: TraceTables, tmp_path: Path) -> None:
    plot_cta(tables, tmp_path / "a.svg")
    plot_cta(tables, tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"cta": 99}, "XT8501"),
        ({"window_us": (5, 5)}, "XT8502"),
        ({"window_us": (900, 901)}, "XT8502"),
        ({"paths": "t.bmp"}, "XT8503"),
    ],
)
def test_impossible_pictures_are_refused(
    tables: TraceTables, tmp_path: Path, arguments: dict[str, object], code: str
) -> None:
    name = str(arguments.pop("paths", "t.svg"))
    with pytest.raises(BadInput) as caught:
        plot_cta(tables, tmp_path / name, **arguments)  # type: ignore[arg-type]
    assert caught.value.code == code
    assert not list(tmp_path.iterdir())


def test_no_two_phases_look_the_same() -> None:
    names = [*KNOWN, *(f"work {n}" for n in range(12)), *(f"wait {n}" for n in range(11))]
    look = looks(names)
    assert len({(v.colour, v.hatch) for v in look.values()}) == len(names)
    assert len({v.letter for v in look.values()}) == len(names)


def test_a_phase_looks_the_same_whatever_stands_beside_it() -> None:
    assert looks(["compute", "x"])["compute"].colour == looks(["y", "z", "compute"])["compute"].colour


def test_the_terminal_timeline_follows_the_spans(tables: TraceTables) -> None:
    shown, lines = cta_timeline(tables, 120, cta=0)
    assert shown == 0
    rows = [line.plain for line in lines[:12]]
    assert all(len(line) <= 120 for line in rows)
    consumer = rows[4].split()[-1]
    _, _, table = cta_spans(tables, 0)
    look = looks(str(p) for p in table["phase"].cat.categories)
    assert consumer.startswith(look["prologue"].letter)
    assert consumer.endswith(look["epilogue"].letter)
    assert consumer.count(look["softmax"].letter) > 10
    assert set(rows[1].split()[-1][5:]) == {"·"}
    total = table["end_us"].max()
    part = table[(table["warp"] == 0) & (table["phase"] == "wait for slot")]
    share = (part["end_us"] - part["start_us"]).sum() / total
    letter = look["wait for slot"].letter
    producer = rows[0].split()[-1]
    assert producer.count(letter) / len(producer) == pytest.approx(share, abs=0.08)
