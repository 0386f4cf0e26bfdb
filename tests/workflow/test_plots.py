"""Figures: every cell is drawn, what is missing is written, and the files are reproducible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from tests.trace.synthetic import KERNEL, attention
from tests.workflow.samples import FA3, GEMM, SOFTMAX, write_results
from workflow.scripts.common import read_table
from workflow.scripts.plots import (
    ablation,
    architecture,
    coverage,
    distributions,
    dose,
    overhead,
    preservation,
    timeline,
    trend,
)
from workflow.scripts.plots.__main__ import main
from workflow.scripts.plots.rows import Row, pages
from workflow.scripts.plots.style import LEVEL_COLOURS, ROWS, SMALL, WIDTH, save, setup
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


def words(figures: Figure | Sequence[Figure]) -> str:
    """Everything written in a figure, axes, legends and headings included."""
    shown = [figures] if isinstance(figures, Figure) else figures
    return "\n".join(t.get_text() for f in shown for t in f.findobj(plt.Text) if t.get_visible())


def table(results: Path, name: str, columns: Sequence[str]) -> pd.DataFrame:
    return read_table(results / f"{name}.csv", columns)


def every_figure(results: Path) -> dict[str, list[Figure]]:
    """All figures of the sample results, by name."""
    cells = table(results, "overhead", overhead.COLUMNS)
    points, fits = table(results, "dose", dose.COLUMNS), table(results, "dose_fit", dose.FIT_COLUMNS)
    refusals = table(results, "refusals", coverage.REFUSALS)
    return {
        "preservation": preservation.draw(table(results, "preservation", preservation.COLUMNS), "pp"),
        "coverage": coverage.draw(table(results, "coverage", coverage.COLUMNS), refusals),
        "overhead": overhead.draw(cells),
        "blocks": distributions.ecdf(table(results, "blocks", distributions.BLOCKS), cells),
        "replicates": distributions.strip(table(results, "replicates", distributions.REPLICATES), cells),
        "dose": dose.draw(points, fits),
        "trend": trend.draw(table(results, "trend", trend.COLUMNS)),
        "ablation": ablation.draw(table(results, "ablation", ablation.COLUMNS)),
        "architectures": architecture.draw(table(results, "architectures", architecture.COLUMNS)),
    }


def test_every_figure_is_legible_on_a_phone_and_nothing_is_cut_off(results: Path) -> None:
    for name, figures in every_figure(results).items():
        for figure in figures:
            assert figure.get_figwidth() == WIDTH, name
            sizes = [t.get_fontsize() for t in figure.findobj(plt.Text) if t.get_text()]
            assert min(sizes) >= SMALL, name
            box = figure.get_tightbbox()  # inches, of everything that is drawn
            assert box.x0 >= 0, name
            assert box.y0 >= 0, name
            assert box.x1 <= WIDTH, name
            assert box.y1 <= figure.get_figheight(), name


def test_preservation_has_a_bar_a_level_and_the_sites(results: Path) -> None:
    (figure,) = preservation.draw(table(results, "preservation", preservation.COLUMNS), "pp")
    assert len(figure.axes) == 3
    bars = [p for ax in figure.axes for p in ax.patches if p.get_gid() != "missing"]
    assert len(bars) == len(LEVEL_COLOURS) * (1 + 3 + 3)  # xtrace alone on the closed kernel, three on the others
    hatches = {p.get_hatch() for p in bars}
    assert len(hatches) == len(LEVEL_COLOURS)  # not colour alone
    text = words(figure)
    assert "168 sites" in text  # 7 kernels x 24
    assert "unsupported" in text
    assert "machine code\nonly" in text
    assert "(7 kernels)" in text


def test_no_share_is_rounded_up_to_100(results: Path) -> None:
    shares = table(results, "preservation", preservation.COLUMNS)
    shares.loc[shares["tracer"] == "xtrace", "strict"] = "0.99999"
    assert "99.9" in words(preservation.draw(shares, "pp"))


@pytest.mark.parametrize("value", ["nan", "", "banana", "1.7", "-1"])
def test_a_broken_share_is_a_hatched_cell_and_the_others_are_drawn(results: Path, value: str) -> None:
    shares = table(results, "preservation", preservation.COLUMNS)
    shares.loc[(shares["workload"] == GEMM) & (shares["tracer"] == "proton"), "strict"] = value
    (figure,) = preservation.draw(shares, "pp")
    patches = [p for ax in figure.axes for p in ax.patches]
    assert len([p for p in patches if p.get_gid() != "missing"]) == len(LEVEL_COLOURS) * (1 + 3 + 2)
    assert "broken" in words(figure)


def test_a_probe_set_without_rows_says_so(results: Path) -> None:
    figures = preservation.draw(table(results, "preservation", preservation.COLUMNS), "waits")
    assert "no preservation results for the probe set 'waits'" in words(figures)


def test_overhead_shows_figures_controls_and_what_was_not_measured(results: Path) -> None:
    cells = table(results, "overhead", overhead.COLUMNS)
    (figure,) = overhead.draw(cells)
    text = words(figure)
    assert text.count("not measured:") == 2
    assert "+1.0" in text
    (ax,) = figure.axes
    assert len(ax.get_yticklabels()) == len(cells) == 4


def test_a_doubtful_cell_is_marked(results: Path) -> None:
    cells = table(results, "overhead", overhead.COLUMNS)
    cells.loc[cells["source"] == "recorded", "problems"] = "outputs differ"
    assert words(overhead.draw(cells)).count("] !") == 2


@pytest.mark.parametrize("value", ["nan", "inf", "banana"])
def test_a_broken_overhead_is_a_row_that_says_so(results: Path, value: str) -> None:
    cells = table(results, "overhead", overhead.COLUMNS)
    cells.loc[cells["source"] == "recorded", "overhead_percent"] = value
    assert (
        words(overhead.draw(cells)).count(f"broken: value that cannot be shown: overhead_percent is '{value}'"[:40])
        == 2
    )


def test_budget_and_verdict_are_shown(results: Path) -> None:
    cells = table(results, "overhead", overhead.COLUMNS)
    cells["budget_percent"], cells["verdict"] = "0.5", "FAIL"
    (figure,) = overhead.draw(cells)
    assert "] FAIL" in words(figure)
    assert any(np.allclose(line.get_xdata(), 0.5) for line in figure.axes[0].lines if len(line.get_xdata()) == 2)


@pytest.mark.parametrize(("value", "scale"), [("0.8", "linear"), ("45", "symlog")])
def test_the_axis_fits_small_and_large_overheads(results: Path, value: str, scale: str) -> None:
    cells = table(results, "overhead", overhead.COLUMNS)
    cells.loc[cells["source"] == "recorded", "overhead_percent"] = value
    (figure,) = overhead.draw(cells)
    (ax,) = figure.axes
    assert ax.get_xscale() == scale
    assert ax.get_xlim()[0] < 0 < float(value) < ax.get_xlim()[1]


def test_devices_of_one_run_are_told_apart(results: Path) -> None:
    cells = table(results, "overhead", overhead.COLUMNS)
    other = cells[cells["source"] == "recorded"].assign(device="AMD MI300X")
    text = words(overhead.draw(pd.concat([cells, other])))
    assert "softmax on NVIDIA H200" in text
    assert "softmax on AMD MI300X" in text


def test_coverage_writes_the_counts_and_the_reasons(results: Path) -> None:
    refusals = table(results, "refusals", coverage.REFUSALS)
    text = words(coverage.draw(table(results, "coverage", coverage.COLUMNS), refusals))
    assert "20 of 21" in text
    assert text.count("20 of 20") == 5
    assert "refused: no free register" in text


def test_sites_refused_for_no_known_reason_are_not_lost(results: Path) -> None:
    (figure,) = coverage.draw(table(results, "coverage", coverage.COLUMNS))
    assert "refused: reason not in the table" in words(figure)
    assert sum(p.get_width() for p in figure.axes[0].patches) == pytest.approx(600)  # six bars of 100 %


def test_reasons_that_differ_in_a_register_are_one_class() -> None:
    one, other = (coverage.reason_class(f"no general register below R{n} is dead") for n in (22, 168))
    assert one == other == "no general register below Rn is dead"


def test_a_broken_count_is_a_row_that_says_so(results: Path) -> None:
    counts = table(results, "coverage", coverage.COLUMNS)
    counts.loc[counts["workload"] == SOFTMAX, "placed"] = "nan"
    assert words(coverage.draw(counts)).count("broken: placed is 'nan'") == 2


def test_blocks_are_curves_and_cells_without_blocks_are_named(results: Path) -> None:
    cells = table(results, "overhead", overhead.COLUMNS)
    (figure,) = distributions.ecdf(table(results, "blocks", distributions.BLOCKS), cells)
    drawn = {ax.get_title(loc="left"): len(ax.lines) for ax in figure.axes}
    assert drawn == {"softmax, pp": 3, "softmax, sche": 3, "fa3 fwd causal, pp": 1, "fa3 fwd causal, sche": 1}
    assert words(figure).count("no block: xtrace") == 2  # the closed kernel's
    assert words(figure).count("no usable block") == 2


def test_voided_and_broken_blocks_are_not_in_the_curve(results: Path) -> None:
    blocks = table(results, "blocks", distributions.BLOCKS)
    blocks = blocks[(blocks["probes"] == "pp") & (blocks["kind"] == "AB")]
    blocks.iloc[0, blocks.columns.get_loc("voided")] = "True"
    blocks.iloc[1, blocks.columns.get_loc("log_ratio_percent")] = "nan"
    (figure,) = distributions.ecdf(blocks)
    (curve,) = [line for line in figure.axes[0].lines if len(line.get_xdata()) > 2]
    assert len(curve.get_xdata()) == len(blocks) - 2 + 1  # a step a block, and the start


def test_replicates_are_one_mark_a_process(results: Path) -> None:
    cells = table(results, "overhead", overhead.COLUMNS)
    (figure,) = distributions.strip(table(results, "replicates", distributions.REPLICATES), cells)
    marks = sorted(len(line.get_xdata()) for line in figure.axes[0].lines if line.get_linestyle() == "None")
    assert marks == [6, 6, 6, 6]  # two cells, overhead and control
    assert words(figure).count("not measured") == 2


def test_a_process_without_an_estimate_is_counted(results: Path) -> None:
    rows = table(results, "replicates", distributions.REPLICATES)
    rows.loc[rows["process"] == "0", "overhead_percent"] = ""
    rows.loc[rows["probes"] == "sche", ["overhead_percent", "problem"]] = ["nan", "no usable block"]
    text = words(distributions.strip(rows))
    assert "S=5 −1" in text
    assert "no usable block" in text


def test_dose_shows_points_with_their_line(results: Path) -> None:
    points, fits = table(results, "dose", dose.COLUMNS), table(results, "dose_fit", dose.FIT_COLUMNS)
    (figure,) = dose.draw(points, fits)
    text = words(figure)
    assert "pp (3)" in text
    assert "no samples" in text  # the closed kernel was not measured
    band = [ax for ax in figure.axes if ax.collections]
    assert len(band) == 1


def test_dose_without_a_line_shows_the_points(results: Path) -> None:
    points = table(results, "dose", dose.COLUMNS)
    (figure,) = dose.draw(points[points["probes"] != "sche"], pd.DataFrame(columns=list(dose.FIT_COLUMNS)))
    assert "pp (3)" in words(figure)
    assert not any(ax.collections for ax in figure.axes)


def test_trend_says_whether_there_is_one(results: Path) -> None:
    one = table(results, "trend", trend.COLUMNS)
    assert "a single revision: no trend yet" in words(trend.draw(one))
    older = one.assign(revision="0ld0ld0ld", measured_at="2026-01-01T00:00:00Z")
    (figure,) = trend.draw(pd.concat([one, older]))
    assert "2 revisions" in words(figure)
    labels = [t.get_text() for t in figure.axes[0].get_xticklabels()]
    assert labels[0] == "0ld0ld0ld"


def test_no_two_probe_sets_of_a_trend_look_the_same(results: Path) -> None:
    one = table(results, "trend", trend.COLUMNS)
    (row,) = one[one["tracer"] == "xtrace"].head(1).to_dict("records")
    (figure,) = trend.draw(pd.DataFrame([{**row, "probes": f"pp@cta{n}"} for n in range(30)]))
    (legend,) = figure.legends
    looks = [(h.get_color(), h.get_marker(), h.get_linestyle()) for h in legend.get_lines()]
    assert len(set(looks)) == len(looks) == 30


def test_the_architecture_matrix_shows_what_is_unsupported(results: Path) -> None:
    text = words(architecture.draw(table(results, "architectures", architecture.COLUMNS)))
    assert "measured\n2 of 4 cells" in text
    assert "unsupported" in text
    assert "gfx942" in text


FIGURES = ["coverage", "overhead", "blocks", "replicates", "dose", "trend", "architectures", "ablation"]


@pytest.mark.parametrize("name", FIGURES)
def test_an_empty_table_gives_words_not_an_empty_plot(results: Path, tmp_path: Path, name: str) -> None:
    header = (results / f"{name}.csv").read_text().split("\n", 1)[0]
    (tmp_path / "t.csv").write_text(header + "\n")
    main([name, "--table", str(tmp_path / "t.csv"), *extra(results, name), "--out", str(tmp_path / "o")])
    assert (tmp_path / "o.png").stat().st_size > 3000  # the words
    drawn = {"coverage": coverage.draw, "overhead": overhead.draw, "blocks": distributions.ecdf, "trend": trend.draw}
    if name in drawn:
        (figure,) = drawn[name](read_table(tmp_path / "t.csv", []))  # type: ignore[operator]
        (ax,) = figure.axes
        assert len(ax.texts) == 1
        assert not ax.axison


def extra(results: Path, name: str) -> list[str]:
    return ["--fit", str(results / "dose_fit.csv")] if name == "dose" else []


def test_a_step_of_the_ablation_says_what_it_gains_or_costs(results: Path) -> None:
    shown = words(ablation.draw(table(results, "ablation", ablation.COLUMNS)))
    assert "-0.19 [-0.19, -0.19]" in shown  # the second step is slower than the first
    assert "+0.97 [+0.97, +0.97]" in shown
    assert "not measured" in shown  # the workload without samples


def test_rows_keep_groups_together_and_none_is_lost() -> None:
    rows = [Row(f"w{i // 7}", str(i), {}) for i in range(500)]
    sheets = pages(rows)
    assert [r.label for sheet in sheets for r in sheet] == [r.label for r in rows]
    assert all(len(s) + len({r.heading for r in s}) <= ROWS for s in sheets)
    split = [h for h in {r.heading for r in rows} if sum(any(r.heading == h for r in s) for s in sheets) > 1]
    assert split == []


def test_a_group_larger_than_a_page_is_continued() -> None:
    sheets = pages([Row("w", str(i), {}) for i in range(3 * ROWS)])
    assert sum(map(len, sheets)) == 3 * ROWS
    assert len(sheets) == 4


def test_further_pages_are_files_and_old_ones_do_not_stay(results: Path, tmp_path: Path) -> None:
    cells = table(results, "overhead", overhead.COLUMNS)
    many = pd.concat([cells.assign(workload=f"w{i}") for i in range(20)])
    save(overhead.draw(many), tmp_path / "o", tmp_path / "more")
    assert [p.name for p in sorted((tmp_path / "more").iterdir())] == ["2.svg", "3.svg"]
    save(overhead.draw(cells), tmp_path / "o", tmp_path / "more")
    assert not list((tmp_path / "more").iterdir())


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
