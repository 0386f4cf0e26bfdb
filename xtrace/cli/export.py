"""``xtrace export``: a trace for other viewers and for data frames."""

from __future__ import annotations

from pathlib import Path

import click

from xtrace.errors import BadInput
from xtrace.files import write_atomic
from xtrace.trace import load
from xtrace.trace.export import FORMATS, TABLES, export, only_ctas
from xtrace.trace.terminal import sampled

__all__ = ["command"]

MAX_CTAS = 1 << 20


def _numbers(ctx: click.Context, param: click.Parameter, value: str | None) -> list[int] | None:
    """``3``, ``0-7`` or ``0,2,4-6``."""
    if value is None:
        return None
    result: list[int] = []
    for part in value.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()) or len(low) > 9 or len(high) > 9:
            raise click.BadParameter(f"{value!r} is not a list of numbers such as 0,2,4-6", ctx, param)
        stop = int(high if dash else low) + 1
        if stop - int(low) + len(result) > MAX_CTAS:
            raise click.BadParameter(f"more than {MAX_CTAS} CTAs", ctx, param)
        result += range(int(low), stop)
    return result


@click.command()
@click.argument("trace", type=click.Path(path_type=Path))
@click.option("--format", "kind", type=click.Choice(list(FORMATS)), default="perfetto", show_default=True)
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="File to write.")
@click.option("--launch", type=int, help="Number of one launch. Default: all.")
@click.option("--cta", "ctas", callback=_numbers, help="Only these CTAs, e.g. 0,2,4-6.")
@click.option(
    "--table", type=click.Choice(TABLES), default="spans", show_default=True, help="Which table (csv and parquet)."
)
def command(trace: Path, kind: str, output: Path, launch: int | None, ctas: list[int] | None, table: str) -> None:
    """Convert TRACE: perfetto (ui.perfetto.dev), chrome (JSON), parquet or csv."""
    loaded = load(trace)
    launches = list(loaded.launches)
    if launch is not None:
        if not 0 <= launch < len(launches):
            raise BadInput("XT7802", f"there is no launch {launch}", where=str(trace), hint=f"0 to {len(launches) - 1}")
        launches = [launches[launch]]
    if ctas is not None:
        launches = [only_ctas(t, ctas) for t in launches]
    data = export(launches, kind, table)
    write_atomic(output, data)
    click.echo(f"wrote {output} ({len(data):,} bytes)", err=True)
    for number, tables in enumerate(launches):
        if note := sampled(tables.summary):
            click.echo(f"launch {number}: {note}", err=True)
        for warning in tables.summary["warnings"]:
            click.echo(f"warning: launch {number}: {warning}", err=True)
