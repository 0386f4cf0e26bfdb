"""Figures: every cell is drawn, what is missing is written, and the files are reproducible."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from matplotlib.figure import Figure

from tests.trace.synthetic import KERNEL, attention
from tests.workflow.samples import FA3, GEMM, SOFTMAX, write_results
from workflow.scripts.common import read_table
from workflow.scripts.plots import coverage, overhead, preservation, timeline
from workflow.scripts.plots.__main__ import main
from workflow.scripts.plots.style import LEVEL_COLOURS, save, setup
from xtrace.errors import BadInput
from xtrace.trace import decode, load
from xtrace.trace import save as save_trace


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    write_results(folder)
    return folder


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    setup()
    yield
    plt.close("all")


def words(figure: Figure) -> str:
    texts = [
        t.get_text() for ax in figure.axes for t in (*ax.texts, *ax.get_xticklabels(), *ax.get_yticklabels(), ax.title)
    ]
    return "\n".join(texts)


def test_preservation_has_a_bar_a_level_and_the_sites(results: Path) -> None:
    figure = preservation.draw(read_table(results / "preservation.csv", preservation.COLUMNS), "pp")
    visible = [ax for ax in figure.axes if ax.get_visible()]
    assert len(visible) == 3
    bars = sum(len(ax.patches) for ax in visible)
    assert bars == len(LEVEL_COLOURS) * (1 + 3 + 3)  # xtrace alone on the closed kernel, three tracers on the others
    text = words(figure)
    assert "168 sites" in text  # 7 kernels x 24
    assert "unsupported" in text
    assert "machine code only" in text
    assert "(7 kernels)" in text


def test_no_share_is_rounded_up_to_100(results: Path) -> None:
    table = read_table(results / "preservation.csv", preservation.COLUMNS)
    table.loc[table["tracer"] == "xtrace", "strict"] = "0.99999"
    figure = preservation.draw(table, "pp")
    assert "99.9" in words(figure)


def test_a_probe_set_without_rows_says_so(results: Path) -> None:
    figure = preservation.draw(read_table(results / "preservation.csv", preservation.COLUMNS), "waits")
    assert "no preservation results for the probe set 'waits'" in words(figure)


def test_overhead_shows_figures_controls_and_what_was_not_measured(results: Path) -> None:
    table = read_table(results / "overhead.csv", overhead.COLUMNS)
    figure = overhead.draw(table)
    text = words(figure)
    assert text.count("not measured:") == 3
    assert "+1.0" in text
    assert "S=6" in text
    (ax,) = figure.axes
    assert len(ax.get_yticklabels()) == len(table) == 4


def test_a_doubtful_cell_is_marked(results: Path) -> None:
    table = read_table(results / "overhead.csv", overhead.COLUMNS)
    table.loc[table["source"] == "recorded", "problems"] = "outputs differ"
    assert "doubtful: outputs differ" in words(overhead.draw(table))


@pytest.mark.parametrize(("value", "scale"), [("0.8", "linear"), ("45", "symlog")])
def test_the_axis_fits_small_and_large_overheads(results: Path, value: str, scale: str) -> None:
    table = read_table(results / "overhead.csv", overhead.COLUMNS)
    table.loc[table["source"] == "recorded", "overhead_percent"] = value
    figure = overhead.draw(table)
    (ax,) = figure.axes
    assert ax.get_xscale() == scale
    assert ax.get_xlim()[0] < 0 < float(value) < ax.get_xlim()[1]


def test_coverage_writes_the_counts(results: Path) -> None:
    text = words(coverage.draw(read_table(results / "coverage.csv", coverage.COLUMNS)))
    assert "20 of 21" in text
    assert text.count("20 of 20") == 5


@pytest.mark.parametrize("module", [overhead, coverage])
def test_an_empty_table_gives_words_not_an_empty_plot(module: object) -> None:
    figure = module.draw(pd.DataFrame(columns=list(module.COLUMNS)))  # type: ignore[attr-defined]
    (ax,) = figure.axes
    assert len(ax.texts) == 1
    assert not ax.axison


def test_files_are_written_whole_and_reproducible(results: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        main(["coverage", "--table", str(results / "coverage.csv"), "--out", str(tmp_path / name)])
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert "<text" not in (tmp_path / "a.svg").read_text()  # outlines: looks the same without our font


def test_a_broken_table_is_an_error_and_leaves_no_picture(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x\n1\n")
    with pytest.raises(BadInput, match="lacks the columns"):
        main(["overhead", "--table", str(tmp_path / "t.csv"), "--out", str(tmp_path / "o")])
    assert not list(tmp_path.glob("o.*"))


def test_save_closes_the_figure(tmp_path: Path) -> None:
    figure, _ = plt.subplots()
    save(figure, tmp_path / "x")
    assert not plt.fignum_exists(figure.number)


def test_sample_workloads_are_distinct() -> None:
    assert len({FA3, GEMM, SOFTMAX}) == 3


@pytest.mark.parametrize(("tiles", "zoomed"), [(1, False), (40, True)])
def test_a_timeline_is_drawn_whole_and_in_detail(tmp_path: Path, tiles: int, zoomed: bool) -> None:
    launch = attention(ctas=1, sms=1, tiles=tiles)
    tables = decode(launch.buffer, launch.map, KERNEL, grid=launch.grid, block=launch.block)
    trace = save_trace(tmp_path / "t.xtrace", tables, launch.map, {})
    main(["timeline", "--table", str(trace), "--out", str(tmp_path / "timeline-w")])
    names = {p.name for p in tmp_path.glob("timeline-w*")}
    assert names == {"timeline-w.svg", "timeline-w.png", "timeline-w-zoom.svg", "timeline-w-zoom.png"}
    assert (timeline.zoom_window(load(trace).launches[0]) is not None) == zoomed


def test_a_broken_trace_is_an_error_and_leaves_no_picture(tmp_path: Path) -> None:
    (tmp_path / "t.xtrace").write_bytes(b"PK nonsense")
    with pytest.raises(BadInput):
        main(["timeline", "--table", str(tmp_path / "t.xtrace"), "--out", str(tmp_path / "timeline-w")])
    assert not list(tmp_path.glob("timeline-w*"))
