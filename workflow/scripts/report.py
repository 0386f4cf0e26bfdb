"""results/report.html: one offline page. What is missing or broken is shown as such, never as an empty plot or table.

python -m workflow.scripts.report --results results --config configs/default.yaml --out results/report.html
"""

from __future__ import annotations

import argparse
import base64
import importlib.metadata
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from workflow.scripts import overhead_table, report_prediction, report_view
from workflow.scripts.common import read_json, run
from workflow.scripts.report_data import load
from workflow.scripts.report_tiles import tiles
from xtrace import __version__
from xtrace.errors import XtraceError
from xtrace.files import write_atomic

TEMPLATES = Path(__file__).parents[1] / "report"
TOOLS = ("snakemake", "nvidia-cuda-nvdisasm", "triton", "pandas", "scipy", "seaborn", "jinja2")
MAX_PICTURE = 16 << 20
HEAVY = 1 << 20  # bytes of a drawing that slows a phone down: the pixels are shown instead
OVERHEAD_FIGURES = {
    "overhead": "Overhead of each cell with interval and control",
    "replicates": "Process replicates of each cell",
    "blocks": "Distribution of block ratios",
    "dose": "Overhead against the number of records",
    "trend": "Overhead over revisions",
}


def section(
    name: str,
    view: Callable[[pd.DataFrame], Mapping[str, Any]],
    tables: Mapping[str, pd.DataFrame | None],
    errors: Mapping[str, str],
) -> dict[str, Any]:
    """The view of one table, or its error; a table with impossible values is an error too."""
    table = tables[name]
    if table is None:
        return {"error": errors[name]}
    try:
        return dict(view(table))
    except (KeyError, ValueError, TypeError, ZeroDivisionError) as error:
        return {"error": f"{name}.csv holds values that cannot be shown: {error!r}"}


def picture(results: Path, stem: str, caption: str, alt: str) -> dict[str, Any]:
    """One figure as data URIs, one a page: SVG, or PNG (first page only) if there is none or it is much smaller."""
    shown = {"name": f"figure-{stem}", "caption": _caption(caption), "alt": alt}
    first = [results / "plots" / f"{stem}{suffix}" for suffix in (".svg", ".png")]
    present = [path for path in first if path.is_file()]
    if not present:
        return shown | {"error": f"{first[0]} was not made"}
    more = (results / "plots" / "more" / stem).glob("*.svg")
    pages = []
    heavy = len(present) == 2 and present[0].stat().st_size > HEAVY
    for path in [present[heavy], *sorted(more, key=lambda p: (len(p.name), p.name))]:
        data = path.read_bytes()
        if not data or len(data) > MAX_PICTURE:
            return shown | {"error": f"{path} is {'empty' if not data else 'too large'}"}
        pages.append(_data_uri(path, data))
    return shown | {"pages": pages}


def _data_uri(path: Path, data: bytes) -> str:
    kind = {".svg": "svg+xml", ".png": "png"}[path.suffix]
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def _caption(name: str) -> str:
    """How to read a figure, from its file; emphasis marks of reStructuredText are dropped."""
    return (TEMPLATES / "captions" / f"{name}.rst").read_text(encoding="utf-8").replace("*", "").strip()


def _versions(config: str) -> list[tuple[str, str]]:
    rows = [("xtrace", __version__), ("git commit", _commit()), ("configuration", config)]
    rows += [("Python", platform.python_version()), ("system", f"{platform.system()} {platform.machine()}")]
    for tool in TOOLS:
        try:
            rows.append((tool, importlib.metadata.version(tool)))
        except importlib.metadata.PackageNotFoundError:
            rows.append((tool, "not installed"))
    return rows


def _commit() -> str:
    try:
        command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=TEMPLATES, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip() or "unknown"


def _source_line(table: pd.DataFrame | None) -> str:
    sources = set() if table is None else set(table["source"]) - {overhead_table.NOT_MEASURED, overhead_table.BROKEN}
    if table is not None and table["device"].str.contains("simulated", case=False).any():
        return "Figures of the simulated device are make-believe: they rehearse a run and say nothing about a GPU."
    if sources == {"measured"}:
        return "Overhead was measured on this machine in this run."
    if sources == {"recorded"}:
        return "Overhead figures are recorded measurements, not made in this run; their provenance is listed with them."
    if sources:
        return "Overhead figures are partly recorded and partly measured; each row says which."
    return "Overhead was not measured: there is no GPU here and no recorded measurement of these workloads."


def _captioned_once(figures: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Only the first of several figures of a kind explains how to read them."""
    return [
        f if i == 0 else f | {"caption": f"{f['alt']}. To be read as the first figure."} for i, f in enumerate(figures)
    ]


def _timelines(results: Path, workloads: Sequence[str]) -> list[dict[str, Any]]:
    """Whole CTA and detail of every workload with a trace; without any, a figure that says so."""
    alt = "Warps of one thread block over time, coloured by phase"
    shown = [
        picture(results, f"timeline-{w}{part}", "timeline", f"{w}: {alt}") for w in workloads for part in ("", "-zoom")
    ]
    shown = _captioned_once(shown)
    none = {"name": "figure-timeline", "caption": _caption("timeline"), "alt": alt}
    return shown or [none | {"error": "there is no GPU here and no recorded trace of the configured workloads"}]


def _corpus(results: Path, workloads: Sequence[str]) -> dict[str, Any]:
    try:
        return report_view.corpus([read_json(results / "corpus" / w / "meta.json") for w in workloads])
    except XtraceError as error:
        return {"error": str(error)}


def build(
    results: Path,
    arch: str,
    workloads: Sequence[str],
    groups: Sequence[str],
    timelines: Sequence[str],
    config_name: str,
) -> str:
    """The page as text. Never fails for what is in ``results``: that is shown as missing or broken."""
    tables, errors = load(results)
    sections = {
        "certificates": section("certificates", report_view.certificates, tables, errors),
        "preservation": section("preservation", report_view.preservation, tables, errors),
        "coverage": section("coverage", report_view.coverage, tables, errors),
        "overhead": section("overhead", report_view.overhead, tables, errors),
        "architectures": section("architectures", lambda t: {"rows": t.to_dict("records")}, tables, errors),
        "trend": section("trend", report_view.trend, tables, errors),
        "ablation": section("ablation", report_view.ablation, tables, errors),
        "prediction": section("prediction", report_prediction.prediction, tables, errors),
    }
    refusals = section("refusals", lambda t: {"refusals": report_view.refusals(t)}, tables, errors)
    sections["coverage"] |= {"refusals": refusals.get("refusals", []), "refusals_error": refusals.get("error", "")}
    sections["preservation"]["figures"] = _captioned_once(
        [
            picture(results, f"preservation-{p}", "preservation", f"Preservation by tracer and level, probe set {p}")
            for p in groups
        ]
    )
    sections["coverage"]["figures"] = [picture(results, "coverage", "coverage", "Sites placed and refused")]
    sections["overhead"]["figures"] = [picture(results, stem, stem, alt) for stem, alt in OVERHEAD_FIGURES.items()]
    alt = "What is supported, verified and measured on each architecture"
    sections["architectures"]["figures"] = [picture(results, "architectures", "architectures", alt)]
    alt = "Predicted added issue cycles against measured overhead"
    sections["prediction"]["figures"] = [picture(results, "prediction", "prediction", alt)]
    sections["ablation"]["figures"] = [picture(results, "ablation", "ablation", "What each step is worth")]
    usable = {name: table if not sections.get(name, {}).get("error") else None for name, table in tables.items()}
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.ChainableUndefined,
        trim_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        style=jinja2.utils.markupsafe.Markup((TEMPLATES / "style.css").read_text(encoding="utf-8")),
        arch=arch,
        source_line=_source_line(usable["overhead"]),
        tiles=tiles(usable),
        timelines=_timelines(results, timelines),
        corpus=_corpus(results, workloads),
        versions=_versions(config_name),
        **sections,
    )


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="report", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--arch", required=True)
    parser.add_argument("--workloads", nargs="+", required=True)
    parser.add_argument("--groups", nargs="+", required=True, help="probe sets that have a preservation figure")
    parser.add_argument("--timelines", nargs="*", default=[], help="workloads that have a trace")
    parser.add_argument("--config-name", default="", help="shown as provenance")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    write_atomic(
        given.out, build(given.results, given.arch, given.workloads, given.groups, given.timelines, given.config_name)
    )


if __name__ == "__main__":
    run(main)
