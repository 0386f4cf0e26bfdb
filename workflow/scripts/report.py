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

from workflow.scripts import certificate_table, coverage_table, overhead_table, preservation_table, report_view
from workflow.scripts.common import read_json, read_table, run
from xtrace import __version__
from xtrace.errors import XtraceError
from xtrace.files import write_atomic

TEMPLATES = Path(__file__).parents[1] / "report"
TABLES = {
    "certificates": certificate_table.COLUMNS,
    "preservation": preservation_table.COLUMNS,
    "coverage": coverage_table.COLUMNS,
    "refusals": coverage_table.REFUSALS,
    "overhead": overhead_table.COLUMNS,
}
TOOLS = ("snakemake", "nvidia-cuda-nvdisasm", "triton", "pandas", "scipy", "seaborn", "jinja2")
MAX_PICTURE = 16 << 20


def load(results: Path) -> tuple[dict[str, pd.DataFrame | None], dict[str, str]]:
    """Every table that can be read, and the error of every one that cannot."""
    tables: dict[str, pd.DataFrame | None] = {}
    errors: dict[str, str] = {}
    for name, columns in TABLES.items():
        path = results / f"{name}.csv"
        try:
            tables[name] = read_table(path, columns)
        except XtraceError as error:
            tables[name], errors[name] = None, str(error)
            continue
        if name != "refusals" and tables[name].empty:  # type: ignore[union-attr]
            tables[name], errors[name] = None, f"{path} has no rows"
    return tables, errors


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


def picture(results: Path, stem: str, caption: str, alt: str) -> dict[str, str]:
    """One figure as a data URI: SVG if there, else PNG."""
    shown = {"name": f"figure-{stem}", "caption": _caption(caption), "alt": alt}
    for suffix, kind in ((".svg", "svg+xml"), (".png", "png")):
        path = results / "plots" / f"{stem}{suffix}"
        if not path.is_file():
            continue
        data = path.read_bytes()
        if not data or len(data) > MAX_PICTURE:
            return shown | {"error": f"{path} is {'empty' if not data else 'too large'}"}
        return shown | {"data": f"data:image/{kind};base64,{base64.b64encode(data).decode()}"}
    return shown | {"error": f"{results / 'plots' / stem}.svg was not made"}


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
    sources = set() if table is None else set(table["source"]) - {overhead_table.NOT_MEASURED}
    if sources == {"measured"}:
        return "Overhead was measured on this machine in this run."
    if sources == {"recorded"}:
        return "Overhead figures are recorded measurements, not made in this run; their provenance is listed with them."
    if sources:
        return "Overhead figures are partly recorded and partly measured; each row says which."
    return "Overhead was not measured: there is no GPU here and no recorded measurement of these workloads."


def _captioned_once(figures: list[dict[str, str]]) -> list[dict[str, str]]:
    """Only the first of several figures of a kind explains how to read them."""
    return [
        f if i == 0 else f | {"caption": f"{f['alt']}. To be read as the first figure."} for i, f in enumerate(figures)
    ]


def _timelines(results: Path, workloads: Sequence[str]) -> list[dict[str, str]]:
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
    sections["overhead"]["figures"] = [picture(results, "overhead", "overhead", "Overhead with intervals")]
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
        tiles=report_view.tiles(usable),
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
