"""Prediction beside measurement: honest about what was not measured, exact about bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.workflow.samples import SOFTMAX, costs, raw_sample
from workflow.scripts import report_prediction
from workflow.scripts.plots import prediction as figure
from workflow.scripts.plots.style import setup
from workflow.scripts.prediction_table import COLUMNS, correlation, measured_bytes, rows
from xtrace.stats.rank import rank_correlation

IMAGE = "ab" * 32


def overhead(percent: str = "1.5", **more: str) -> dict[str, str]:
    cell = {"workload": SOFTMAX, "probes": "pp", "device": "NVIDIA H200", "shape": "s", "tracer": "xtrace"}
    figures = {"overhead_percent": percent, "low_percent": "1.2", "high_percent": "1.8", "traced_ns": "50000"}
    return cell | {"kernel": "k", "source": "recorded", "note": "", "problems": ""} | figures | more


def table(*cells: dict[str, str], image: str = IMAGE) -> list[dict[str, Any]]:
    document = raw_sample(0) | {"images": {"instrumented": image}}
    plans = {(SOFTMAX, "pp"): costs(True), (SOFTMAX, "sche"): costs(False)}
    return rows(pd.DataFrame(cells), plans, dict.fromkeys(plans, IMAGE), [document])


def test_a_measured_cell_has_prediction_interval_and_rate() -> None:
    (row,) = table(overhead())
    assert (row["hot"], row["predicted_percent"], row["overhead_percent"]) == ("loop 1 at 0x120", 2.0, "1.5")
    assert row["bytes_per_launch"] == 10 * 32 + 30 * 16  # ten warps; the busiest site of the packet ran 30 times
    assert row["bytes_per_second"] == round(800 / 50e-6)


def test_a_rate_is_not_claimed_for_another_image() -> None:
    (row,) = table(overhead(), image="cd" * 32)
    assert "bytes_per_second" not in row
    assert row["bytes_note"].startswith("another image was timed")


@pytest.mark.parametrize("sites", [None, {}, {"k": {"1": 30, "2": 30}}])
def test_bytes_are_unknown_where_sites_were_not_counted(sites: dict[str, Any] | None) -> None:
    assert measured_bytes(costs(True), {"warps_seen": 10, "records_per_site": sites}) is None
    assert measured_bytes(costs(False), {"warps_seen": 10, "records_per_site": sites}) == 320


def test_what_was_not_measured_or_planned_says_so() -> None:
    empty = {"low_percent": "", "high_percent": "", "source": "not measured", "note": "no GPU", "traced_ns": ""}
    found = table(overhead("", **empty), overhead(probes="waits"), overhead(tracer="proton"))
    assert [r["note"] for r in found] == ["no GPU", "no plan"]
    shown = report_prediction.prediction(
        pd.DataFrame(found, columns=list(COLUMNS), dtype=object).fillna("").astype(str)
    )
    assert shown["rows"][0]["overhead"] == shown["rows"][0]["rate"] == "not measured"
    assert shown["rows"][1]["predicted"] == ""
    assert shown["summary"] == "No cell has both a prediction and a measurement."


def test_spearman_counts_pairs_and_refuses_what_it_cannot_rank() -> None:
    assert rank_correlation([1, 2, 3, 4], [1, 20, 30, 31]).rho == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, 1]).rho == pytest.approx(-1)
    for x, y in ([[1, 2], [1, 2]], [[1, 1, 1], [1, 2, 3]]):
        found = rank_correlation(x, y)
        assert (found.rho, found.pairs) == (None, len(x))
    with pytest.raises(ValueError, match="finite"):
        rank_correlation([1, float("nan"), 2], [1, 2, 3])
    frame = pd.DataFrame({"predicted_percent": ["1", "2", "", "4"], "overhead_percent": ["1", "2", "3", "9"]})
    assert (correlation(frame).rho, correlation(frame).pairs) == (pytest.approx(1), 3)


def test_the_figure_leaves_out_cells_without_both_figures(tmp_path: Path) -> None:
    setup()
    cells = [{**dict.fromkeys(COLUMNS, ""), "workload": f"w{i}", "probes": "pp", "device": "d"} for i in range(4)]
    for i, cell in enumerate(cells[:3]):
        cell |= {"predicted_percent": str(i), "overhead_percent": str(i), "low_percent": str(i), "high_percent": str(i)}
    (page,) = figure.draw(pd.DataFrame(cells))
    texts = [t.get_text() for ax in page.axes for t in ax.texts]
    assert any("rho 1.00, n = 3; 1 cells not measured" in t for t in texts)
    (empty,) = figure.draw(pd.DataFrame(cells[3:]))
    assert "no cell has both" in "".join(t.get_text() for ax in empty.axes for t in ax.texts)
