"""The report: complete, offline, and honest about what is not there."""

from __future__ import annotations

import base64
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from tests.workflow.samples import FA3, GEMM, SOFTMAX, write_results
from workflow.scripts.plots.__main__ import main as plot
from workflow.scripts.report import build, main
from workflow.scripts.report_view import share

WORKLOADS = [FA3, SOFTMAX, GEMM]


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    write_results(folder)
    cells, fit = ["--cells", str(folder / "overhead.csv")], ["--fit", str(folder / "dose_fit.csv")]
    more = {"blocks": cells, "replicates": cells, "dose": fit}
    for figure in (
        "coverage",
        "overhead",
        "blocks",
        "replicates",
        "dose",
        "trend",
        "architectures",
        "ablation",
        "prediction",
    ):
        out = ["--out", str(folder / "plots" / figure), "--more", str(folder / "plots" / "more" / figure)]
        plot([figure, "--table", str(folder / f"{figure}.csv"), *out, *more.get(figure, [])])
    plot(
        [
            "preservation",
            "--table",
            str(folder / "preservation.csv"),
            "--out",
            str(folder / "plots" / "preservation-pp"),
        ]
    )
    return folder


@pytest.fixture
def results(complete: Path, tmp_path: Path) -> Path:
    """A copy that a test may break."""
    return Path(shutil.copytree(complete, tmp_path / "results"))


def page(results: Path) -> str:
    return build(results, "sm_90a", WORKLOADS, ["pp"], [], "configs/test.yaml")


class Checker(HTMLParser):
    """Collects tags that need the network, and checks that tags are balanced."""

    VOID = frozenset({"meta", "img", "br", "link", "hr", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self.sources += [v or "" for k, v in attrs if k in ("src", "href", "srcset", "data")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_offline(complete: Path) -> None:
    text = page(complete)
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert all(s.startswith(("#", "data:image/")) for s in checker.sources)
    assert not re.search(r"@import|url\(|<script|<link", text)


def test_headline_numbers(complete: Path) -> None:
    text = page(complete)
    assert "18 of 18" in text  # promises
    assert "120 of 121" in text  # sites
    assert "1 of 2 workloads" in text  # pp overhead: one cell measured
    assert "strict 98.50 %" in text


def test_every_table_is_there(complete: Path) -> None:
    text = page(complete)
    for words in (
        "unsupported: ships as machine code only",
        "no free register",
        "bit-identical",
        "recorded",
        "580.95",
        "not measured",
    ):
        assert words in text, words
    assert text.count("data:image/svg+xml;base64,") == 10  # one page each


def test_recorded_figures_are_labelled(complete: Path) -> None:
    assert "recorded measurements, not made in this run" in page(complete)


def test_further_pages_of_a_figure_follow_the_first_in_order(results: Path) -> None:
    for page_number in (2, 10):
        (results / "plots" / "more" / "overhead" / f"{page_number}.svg").write_text(
            f"<svg><!-- {page_number} --></svg>"
        )
    figure = page(results).split('id="figure-overhead"')[1].split("</figure>")[0]
    assert re.findall(r"page (\d) of 3", figure) == ["1", "2", "3"]
    shown = [base64.b64decode(d) for d in re.findall(r"base64,([^\"]+)", figure)]
    assert [b"<!-- 2 -->" in shown[1], b"<!-- 10 -->" in shown[2]] == [True, True]


def test_one_broken_cell_is_a_row_and_the_others_stay(results: Path) -> None:
    path = results / "overhead.csv"
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    table.loc[table["probes"] == "sche", "overhead_percent"] = "nan"
    table.to_csv(path, index=False)
    section = page(results).split('id="overhead"')[1]
    assert "overhead_percent is &#39;nan&#39;" in section
    assert "bit-identical" in section  # the pp cell
    assert "Not available" not in section.split('id="timeline"')[0]


def test_budget_and_verdict_are_columns_and_a_failure_says_why(results: Path) -> None:
    path = results / "overhead.csv"
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    gated = table["probes"] == "pp"
    table.loc[gated, ["budget_percent", "verdict", "reasons"]] = ["0.5", "FAIL", "the whole interval is above"]
    table.to_csv(path, index=False)
    text = page(results)
    assert "FAIL: the whole interval is above" in text


def test_a_simulated_device_is_said_first(results: Path) -> None:
    path = results / "overhead.csv"
    path.write_text(path.read_text().replace("NVIDIA H200", "Simulated GPU"))
    assert "make-believe" in page(results).split("</header>")[0]


def test_nothing_wide_stands_outside_a_scrolling_box(complete: Path) -> None:
    text = page(complete)
    assert text.count("<table") == text.count('<div class="scroll"><table')
    assert 'name="viewport" content="width=device-width' in text
    assert "@media print" in text


def test_the_architectures_that_work_are_listed(complete: Path) -> None:
    section = page(complete).split('id="architectures"')[1].split("</table>")[0]
    assert "sm_90a" in section
    assert "2 of 4 cells" in section


@pytest.mark.parametrize(
    "name",
    [
        "certificates",
        "preservation",
        "coverage",
        "refusals",
        "overhead",
        "architectures",
        "trend",
        "ablation",
        "prediction",
    ],
)
@pytest.mark.parametrize("damage", ["missing", "empty", "broken", "header only"])
def test_a_missing_or_broken_table_is_shown_as_such(results: Path, name: str, damage: str) -> None:
    path = results / f"{name}.csv"
    header = path.read_text().split("\n", 1)[0]
    path.unlink()
    if damage != "missing":
        path.write_text({"empty": "", "broken": "\x00\x01,,\n1", "header only": header + "\n"}[damage])
    text = page(results)
    words = {
        "refusals": "No site was refused",
        "trend": "No revision was measured",
        "ablation": "No workload of the ablation",
        "prediction": "No cell of Xtrace",
    }
    if damage == "header only" and name in words:
        assert words[name] in text
    else:
        assert "Not available" in text
        assert f"{name}.csv" in text
    Checker().feed(text)


@pytest.mark.parametrize(
    ("name", "column"), [("overhead", "overhead_percent"), ("coverage", "placed"), ("preservation", "strict")]
)
def test_impossible_values_are_shown_as_such(results: Path, name: str, column: str) -> None:
    path = results / f"{name}.csv"
    lines = path.read_text().splitlines()
    header = lines[0].split(",")
    first = lines[1].split(",")
    first[header.index(column)] = "banana"
    path.write_text("\n".join([lines[0], ",".join(first)]) + "\n")
    text = page(results)
    assert "cannot be shown" in text
    assert "banana" in text


def test_nothing_at_all_is_still_a_page(tmp_path: Path) -> None:
    text = page(tmp_path)
    Checker().feed(text)
    assert text.count("Not available") >= 5
    assert "Overhead was not measured" in text
    assert "data:image" not in text


def test_a_timeline_without_a_trace_is_said_and_one_with_a_trace_is_shown_twice(results: Path) -> None:
    assert "no recorded trace" in page(results)
    for part in ("", "-zoom"):
        (results / "plots" / f"timeline-{SOFTMAX}{part}.svg").write_text("<svg/>")
    text = build(results, "sm_90a", WORKLOADS, ["pp"], [SOFTMAX], "")
    assert text.count(f'id="figure-timeline-{SOFTMAX}') == 2
    assert "no recorded trace" not in text


def test_a_missing_or_empty_picture_is_said(results: Path) -> None:
    (results / "plots" / "coverage.svg").unlink()
    (results / "plots" / "coverage.png").unlink()
    (results / "plots" / "overhead.svg").write_bytes(b"")
    text = page(results)
    assert "coverage.svg was not made" in text
    assert "overhead.svg is empty" in text


def test_names_from_files_cannot_inject_markup(results: Path) -> None:
    path = results / "certificates.csv"
    path.write_text(path.read_text().replace(GEMM, "<script>alert(1)</script>"))
    assert "<script>" not in page(results)


def test_failed_promises_turn_the_headline_red(results: Path) -> None:
    path = results / "certificates.csv"
    path.write_text(path.read_text().replace("liveness,PASS,", "liveness,FAIL,R1 is live", 1))
    text = page(results)
    assert 'class="tile bad"><b>17 of 18' in text
    assert "R1 is live" in text


def test_the_command_writes_one_file(results: Path) -> None:
    out = results / "report.html"
    main(
        ["--results", str(results), "--arch", "sm_90a", "--workloads", *WORKLOADS, "--groups", "pp", "--out", str(out)]
    )
    assert out.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "100"), (0.999999, "99.99"), (0.0, "0"), (1e-9, "0.01"), (0.5, "50.00")]
)
def test_shares_are_never_rounded_to_whole(value: float, text: str) -> None:
    assert share(value) == text
