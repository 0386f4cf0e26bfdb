"""The tables of the report as files for papers, issues and spreadsheets: Markdown, LaTeX (longtable) and CSV.

    python -m workflow.scripts.export_tables --results results --out results/tables

Figures are rounded as in the report; the full tables are the CSV files of ``results/`` itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from workflow.scripts import report_prediction, report_view
from workflow.scripts.common import run
from workflow.scripts.report_data import load
from xtrace.files import write_atomic

TITLES = {
    "certificates": "Promises of every traced image",
    "preservation": "Original instructions preserved (per cent)",
    "coverage": "Probe sites placed and refused",
    "refusals": "Refused sites by reason",
    "overhead": "Overhead of a traced launch",
    "architectures": "Architectures and tracers",
    "ablation": "What each step of making probes cheap is worth",
    "prediction": "Predicted and measured cost of probes",
}


def overhead(table: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for r in report_view.overhead(table)["rows"]:
        names = {"workload": r["workload"], "tracer": r["tracer"], "probes": r["probes"]}
        if not r["measured"]:
            rows.append(names | {"note": r["reason"]})
            continue
        rows.append(
            names
            | {"overhead (%)": r["overhead"], "exact (%)": r["exact"], "S": r["processes"], "blocks": r["blocks"]}
            | {"original (us)": r["original"], "added (us)": r["added"], "control (%)": r["control"]}
            | {"budget (%)": r["budget"], "verdict": r["verdict"], "source": r["source"]}
            | {"note": r["problems"] or r["note"]}
        )
    return pd.DataFrame(rows)


def preservation(table: pd.DataFrame) -> pd.DataFrame:
    view = report_view.preservation(table)
    rows = []
    for r in view["rows"]:
        row = {"workload": r["workload"], "probes": r["probes"], "tracer": r["tracer"]}
        if r["status"] == "ok":
            row |= {name: r[name] for name in ("sites", "instructions", "inserted")}
            row |= dict(zip(view["levels"], r["shares"], strict=True)) | {"changed blocks": r["blocks"], "note": ""}
        else:
            row |= {"note": f"{r['status']}: {r['reason']}"}
        rows.append(row)
    return pd.DataFrame(rows)


def certificates(table: pd.DataFrame) -> pd.DataFrame:
    view = report_view.certificates(table)
    return pd.DataFrame(
        [
            {"workload": r["workload"], "probes": r["probes"], "instructions": r["instructions"]}
            | dict(zip(view["promises"], r["statuses"], strict=True))
            for r in view["rows"]
        ]
    )


def coverage(table: pd.DataFrame) -> pd.DataFrame:
    names = ("workload", "probes", "kernels", "requested", "placed", "refused", "share")
    return pd.DataFrame([{k: r.get(k) for k in names} for r in report_view.coverage(table)["rows"]])


def refusals(table: pd.DataFrame) -> pd.DataFrame:
    columns = ["workload", "probes", "count", "reason", "ops"]
    return pd.DataFrame(report_view.refusals(table), columns=columns)


def ablation(table: pd.DataFrame) -> pd.DataFrame:
    names = {"overhead": "overhead (%)", "gain": "gain (%)", "processes": "S"}
    columns = ("workload", "arm", "what", "events", "words", "overhead", "gain", "processes", "note")
    shown = [{names.get(k, k): row[k] for k in columns} for row in report_view.ablation(table)["rows"]]
    return pd.DataFrame(shown)


def prediction(table: pd.DataFrame) -> pd.DataFrame:
    rows = report_prediction.prediction(table)["rows"]
    return pd.DataFrame([{name: r[key] for key, name in report_prediction.TITLES.items()} for r in rows])


VIEWS: Mapping[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "certificates": certificates,
    "preservation": preservation,
    "coverage": coverage,
    "refusals": refusals,
    "overhead": overhead,
    "architectures": lambda table: table,
    "ablation": ablation,
    "prediction": prediction,
}


def formats(title: str, table: pd.DataFrame) -> dict[str, str]:
    """File suffix -> text. A table without rows says so in every format."""
    shown = table.astype(object).where(table.notna(), "") if len(table) else pd.DataFrame({"note": ["no rows"]})
    shown = shown.astype(str)
    cells: Any = shown.map(lambda text: text.replace("|", "\\|").replace("\n", " "))
    latex = shown.to_latex(index=False, escape=True, longtable=True, caption=title)
    return {
        ".md": f"**{title}**\n\n{cells.to_markdown(index=False, disable_numparse=True)}\n",
        ".csv": shown.to_csv(index=False, lineterminator="\n"),
        ".tex": f"% needs the packages booktabs and longtable\n{latex}",
    }


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="export_tables", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder; made if it is not there")
    given = parser.parse_args(arguments)
    tables, errors = load(given.results)
    given.out.mkdir(parents=True, exist_ok=True)
    for name, view in VIEWS.items():
        table = tables.get(name)
        shown = pd.DataFrame({"note": [errors.get(name, "no rows")]}) if table is None else view(table)
        for suffix, text in formats(TITLES[name], shown).items():
            write_atomic(given.out / f"{name}{suffix}", text)


if __name__ == "__main__":
    run(main)
