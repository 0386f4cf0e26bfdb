"""``xtrace plan``: a dry run."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from xtrace.errors import BadInput
from xtrace.image.names import short_names
from xtrace.sampling import Sampling
from xtrace.splice import Clocks, Options, Stripes, plan
from xtrace.splice.report import plan_document
from xtrace.splice.volume import Launch, volume

from ._plan_costs import loops_table, record_lines, sites_table
from ._selection import (
    clocks_option,
    kernel_option,
    layout_option,
    load_selection,
    number_of,
    probes_option,
    records_option,
    sample_option,
    stripes_option,
)

_FILE_WIDTH = 150  # columns where nothing is as narrow as a terminal


@click.command(
    epilog="""\b
Examples:
  xtrace plan attention.cubin --probes pp
  xtrace plan attention.cubin --probes pp --sample cta=8,warpgroup=1
  xtrace plan fa3.cubin --kernel '*DynamicPersistent*' --probes 'op:WARPGROUP*' --json
  xtrace plan gemm.cubin --probes pp --duration-us 1500 --warps 16384 --iterations 128
"""
)
@click.argument("image", type=click.Path(path_type=Path))
@kernel_option
@probes_option
@records_option
@layout_option
@sample_option
@clocks_option
@stripes_option
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--all", "show_all", is_flag=True, help="List every site, not only the refused and most expensive ones.")
@click.option("--duration-us", type=click.FloatRange(min=0, min_open=True), help="How long a launch takes, for rates.")
@click.option("--warps", type=click.IntRange(1, 1 << 32), help="Warps of a launch, for rates.")
@click.option("--iterations", type=click.IntRange(0, 1 << 32), help="Of the hot loop by each warp, for rates.")
def command(
    image: Path,
    kernel: str,
    probes: str,
    records: int,
    layout: int,
    sample: Sampling | None,
    clocks: str,
    stripes: str,
    as_json: bool,
    show_all: bool,
    duration_us: float | None,
    warps: int | None,
    iterations: int | None,
) -> None:
    """Dry run: which sites of IMAGE get a probe, which are refused and why, and what it costs.

    Costs are predicted, not measured: docs/cost-model.md says what is counted and what nobody can know.
    """
    launch = _launch(duration_us, warps, iterations)
    loaded, kernels = load_selection(image, kernel)
    options = Options(records, layout, sample=sample, clocks=Clocks(clocks), stripes=Stripes(stripes))
    document = plan_document(plan(loaded, kernels, probes, options))
    for k in document["kernels"]:
        k["launch"] = None if launch is None or k["hot"] is None else asdict(launch) | asdict(volume(k, launch))
    if as_json:
        click.echo(json.dumps(document, indent=1))
    else:
        _show(document, show_all, number_of(loaded))


def _launch(duration_us: float | None, warps: int | None, iterations: int | None) -> Launch | None:
    if duration_us is None and warps is None and iterations is None:
        return None
    if duration_us is None or warps is None or iterations is None:
        given = {"--duration-us": duration_us, "--warps": warps, "--iterations": iterations}
        missing = " and ".join(name for name, value in given.items() if value is None)
        raise BadInput("XT3022", f"a rate needs {missing} too", where="xtrace plan")
    return Launch(duration_us, warps, iterations)


def _show(document: dict[str, Any], show_all: bool, numbers: dict[str, int]) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, _FILE_WIDTH)
    shown = short_names([k["demangled"] or k["name"] for k in document["kernels"]])
    for k, name in zip(document["kernels"], shown, strict=True):
        sites = [s for s in document["sites"] if s["kernel"] == k["name"]]
        total = k["placed"] + k["refused"]
        registers = k["registers"]
        derived = f" ({k['derived']} addresses derived)" if k["derived"] else ""
        console.print(f"{numbers[k['name']]}  {name}", style="bold", markup=False, soft_wrap=True)
        console.print(
            f"  {k['instructions']} instructions, {k['added_words']} probe words; "
            f"sites placed {k['placed']} of {total}{derived}; "
            f"registers {registers['before']} -> {registers['after']}, occupancy {k['occupancy']}",
            soft_wrap=True,
        )
        if k.get("sample"):
            console.print(
                f"  sampled: {k['sample']}; all other warps run a second copy of the code, {k['copied_words']} words",
                markup=False,
                soft_wrap=True,
            )
        for line in record_lines(k):
            console.print(f"  {line}", soft_wrap=True)
        if k["hot"] is not None:
            console.print(loops_table(k))
        if k["placed"]:
            console.print(sites_table(sites, show_all))
        _refusals(console, sites)
        console.print()


def _refusals(console: Console, sites: list[dict[str, Any]]) -> None:
    refused = [s for s in sites if s["status"] == "refused"]
    for reason, count in Counter(s["reason"] for s in refused).most_common():
        places = ", ".join(s["pc"] for s in refused if s["reason"] == reason)
        where = places if len(places) < 90 else places[:87] + "..."
        console.print(f"  [yellow]refused {count}[/]: {escape(reason)} (at {where})", soft_wrap=True)
