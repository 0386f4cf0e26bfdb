"""``xtrace plan``: a dry run."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from xtrace.image.names import short_names
from xtrace.splice import Options, plan
from xtrace.splice.report import plan_document

from ._selection import kernel_option, layout_option, load_selection, number_of, probes_option, records_option


@click.command(
    epilog="""\b
Examples:
  xtrace plan attention.cubin --probes pp
  xtrace plan fa3.cubin --kernel '*DynamicPersistent*' --probes 'op:WARPGROUP*' --json
"""
)
@click.argument("image", type=click.Path(path_type=Path))
@kernel_option
@probes_option
@records_option
@layout_option
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--all", "show_all", is_flag=True, help="List every site, not only refused ones and a summary.")
def command(image: Path, kernel: str, probes: str, records: int, layout: int, as_json: bool, show_all: bool) -> None:
    """Dry run: which sites of IMAGE get a probe, which are refused and why, and what it costs."""
    loaded, kernels = load_selection(image, kernel)
    document = plan_document(plan(loaded, kernels, probes, Options(records, layout)))
    if as_json:
        click.echo(json.dumps(document, indent=1))
    else:
        _show(document, show_all, number_of(loaded))


def _show(document: dict[str, Any], show_all: bool, numbers: dict[str, int]) -> None:
    console = Console(highlight=False)
    shown = short_names([k["demangled"] or k["name"] for k in document["kernels"]])
    for k, name in zip(document["kernels"], shown, strict=True):
        sites = [s for s in document["sites"] if s["kernel"] == k["name"]]
        total = k["placed"] + k["refused"]
        registers = k["registers"]
        console.print(f"{numbers[k['name']]}  {name}", style="bold", markup=False, soft_wrap=True)
        console.print(
            f"  {k['instructions']} instructions, {k['added_words']} probe words; "
            f"sites placed {k['placed']} of {total}; "
            f"registers {registers['before']} -> {registers['after']}, occupancy {k['occupancy']}",
            soft_wrap=True,
        )
        console.print(
            f"  {k['records']} record sites x {k['event_bytes']} B, ring {k['ring_bytes_per_warp']} B a warp; "
            f"cursor in {', '.join(k['uniform_registers']) or 'none'}",
            soft_wrap=True,
        )
        for loop in k["loops"]:
            if loop["records_per_trip"]:
                console.print(
                    f"  loop {loop['id']} at {loop['head']} (depth {loop['depth']}): "
                    f"{loop['records_per_trip']} records, at most {loop['probe_cycles_per_trip']} issue cycles a trip"
                )
        _sites_table(console, sites, show_all)
        _refusals(console, sites)
        console.print()


def _sites_table(console: Console, sites: list[dict[str, Any]], show_all: bool) -> None:
    if not show_all:
        return
    table = Table("pc", "op", "phase", "loop", "registers", "SB", "wait", "words", "cycles", box=None, pad_edge=False)
    for s in sites:
        if s["status"] == "placed":
            loop = "" if s["loop"] is None else str(s["loop"])
            row = (s["pc"], s["op"], s["phase"], loop, ", ".join(s["registers"]), str(s["scoreboard"]), s["wait"])
            table.add_row(*row, str(s["words"]), str(s["cycles"]))
    console.print(table)


def _refusals(console: Console, sites: list[dict[str, Any]]) -> None:
    refused = [s for s in sites if s["status"] == "refused"]
    for reason, count in Counter(s["reason"] for s in refused).most_common():
        places = ", ".join(s["pc"] for s in refused if s["reason"] == reason)
        where = places if len(places) < 90 else places[:87] + "..."
        console.print(f"  [yellow]refused {count}[/]: {escape(reason)} (at {where})", soft_wrap=True)
