"""``xtrace show``: a trace as tables and a timeline in the terminal."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import click
import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table

from xtrace.errors import BadInput
from xtrace.image.names import short_name
from xtrace.trace import TraceTables, addresses_per_site, counts_per_site, load, phase_times
from xtrace.trace.terminal import cta_timeline, sampled
from xtrace.trace.timeline import plot_cta

__all__ = ["command"]


def _window(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[float, float] | None:
    """``FROM:TO`` in microseconds."""
    if value is None:
        return None
    low, _, high = value.partition(":")
    try:
        window = float(low), float(high)
    except ValueError:
        window = (math.nan, math.nan)
    if not all(map(math.isfinite, window)):
        raise click.BadParameter(f"{value!r} is not FROM:TO in microseconds, e.g. 12.5:20", ctx, param)
    return window


@click.command()
@click.argument("trace", type=click.Path(path_type=Path))
@click.option("--launch", default=0, show_default=True, help="Number of the launch to show.")
@click.option("--cta", type=int, help="CTA of the timeline. Default: the first with the most records.")
@click.option("--window", callback=_window, help="Part of the timeline, FROM:TO in microseconds after the CTA's entry.")
@click.option("--plot", type=click.Path(path_type=Path), help="Write the timeline as a picture (.svg, .png, .pdf).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
def command(
    trace: Path, launch: int, cta: int | None, window: tuple[float, float] | None, plot: Path | None, as_json: bool
) -> None:
    """Show TRACE: what was recorded, where the time went, and how one CTA ran.

    Exit code 1 when the trace is incomplete (records lost, warps unfinished, clocks running backwards).
    """
    loaded = load(trace)
    if not 0 <= launch < len(loaded.launches):
        raise BadInput(
            "XT7802", f"there is no launch {launch}", where=str(trace), hint=f"0 to {len(loaded.launches) - 1}"
        )
    tables = loaded.launches[launch]
    if cta is not None and not (tables.warps["cta"] == cta).any():
        ctas = tables.warps["cta"]
        raise BadInput(
            "XT7803", f"CTA {cta} left no trace", where=str(trace), hint=f"CTAs {ctas.min()} to {ctas.max()} did"
        )
    times = phase_times(tables)
    sites = counts_per_site(tables)
    addresses = addresses_per_site(tables)
    if plot is not None:
        plot_cta(tables, plot, cta=cta, window_us=window)
    if as_json:
        document = {
            "launches": len(loaded.launches),
            "launch": launch,
            "summary": tables.summary,
            "provenance": loaded.provenance,
            "phases": _records(times),
            "sites": _records(sites),
            "addresses": _records(addresses),
        }
        click.echo(json.dumps(document, indent=2))
    else:
        _print(tables, times, sites, addresses, len(loaded.launches), launch, cta, window)
    if not tables.summary["complete"]:
        raise click.exceptions.Exit(1)


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return json.loads(frame.to_json(orient="records"))  # type: ignore[no-any-return]


def _print(
    tables: TraceTables,
    times: pd.DataFrame,
    sites: pd.DataFrame,
    addresses: pd.DataFrame,
    launches: int,
    launch: int,
    cta: int | None,
    window: tuple[float, float] | None,
) -> None:
    s = tables.summary
    console = Console(highlight=False)

    def say(text: str, style: str = "") -> None:
        console.print(text, markup=False, style=style, soft_wrap=True)

    say(short_name(str(s["demangled"] or tables.kernel), 120), style="bold")
    say(
        f"launch {launch} of {launches}: {s['ctas_ran']:,} CTAs, {s['warps_ran']:,} warps on {s['sms']} SMs, "
        f"{s['duration_ns'] / 1000:,.1f} µs"
    )
    say(f"records: {s['written']:,} written + {s['dropped']:,} dropped = {s['emitted']:,} emitted")
    say(
        f"time: global timer steps {s['time_step_ns']:.0f} ns, error below {s['time_error_ns']:.0f} ns, "
        f"clock {1000 / s['ns_per_cycle'] if s['ns_per_cycle'] else 0:.0f} MHz ({s['time_method']})"
    )
    if note := sampled(s):
        say(note)
    for warning in s["warnings"]:
        say(f"warning: {warning}", style="yellow")
    _phase_table(console, times)
    if len(sites):
        _site_table(console, sites)
    if len(addresses):
        _address_table(console, addresses)
    shown, lines = cta_timeline(tables, console.width, cta, window)
    say(f"\nCTA {shown}, time after its entry")
    for line in lines:
        console.print(line, soft_wrap=False)


def _phase_table(console: Console, times: pd.DataFrame) -> None:
    table = Table(title="time per phase", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("role")
    table.add_column("phase")
    for heading in ("share", "count", "mean ns", "median ns", "p95 ns"):
        table.add_column(heading, justify="right")
    previous = None
    for row in times.to_dict("records"):
        role = str(row["role"])
        if previous is not None and role != previous:
            table.add_section()
        table.add_row(
            role if role != previous else "",
            str(row["phase"]),
            f"{100 * row['share']:.1f} %",
            f"{row['spans']:,}",
            f"{row['mean_ns']:,.0f}",
            f"{row['median_ns']:,.0f}",
            f"{row['p95_ns']:,.0f}",
        )
        previous = role
    console.print(table)


def _site_table(console: Console, sites: pd.DataFrame, limit: int = 40) -> None:
    table = Table(title="records per site", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("site", justify="right")
    table.add_column("pc", justify="right")
    table.add_column("instruction")
    table.add_column("phase it begins")
    table.add_column("records", justify="right")
    table.add_column("warps", justify="right")
    for row in sites.head(limit).to_dict("records"):
        place = f"{int(row['pc']):#x}" if int(row["pc"]) >= 0 else "?"
        table.add_row(
            f"{row['site']}", place, str(row["op"]), str(row["phase"]), f"{row['records']:,}", f"{row['warps']:,}"
        )
    console.print(table)
    if len(sites) > limit:
        console.print(f"… and {len(sites) - limit} more sites (all with --json)", markup=False)


def _address_table(console: Console, addresses: pd.DataFrame, limit: int = 40) -> None:
    table = Table(title="addresses per site", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("site", justify="right")
    table.add_column("instruction")
    for heading in ("records", "accesses", "lowest address", "highest address"):
        table.add_column(heading, justify="right")
    for row in addresses.head(limit).to_dict("records"):
        ends = (f"{row['lowest']:#x}", f"{row['highest']:#x}") if row["made"] else ("", "")
        table.add_row(f"{row['site']}", str(row["op"]), f"{row['records']:,}", f"{row['made']:,}", *ends)
    console.print(table)
    if len(addresses) > limit:
        console.print(f"… and {len(addresses) - limit} more sites (all with --json)", markup=False)
