"""Build the (original, instrumented) pair of one baseline tracer for one workload.

``result.json`` is written in every case, and the exit status is then 0: ``unsupported`` and ``failed`` are facts about
the tool, which tables show with their reason. A bad request gives 2 and writes nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from baselines.api import Workload, create, tracers, write_result
from baselines.sites import load_groups
from xtrace.errors import XtraceError


@click.command(help=__doc__)
@click.option("--tracer", required=True, type=click.Choice(tracers()))
@click.option("--workload-dir", required=True, type=click.Path(path_type=Path), help="results/corpus/<workload>")
@click.option("--probes", required=True, help="Site group of configs/matched_sites.yaml, e.g. sche, matrix, waits, pp.")
@click.option("--out", "out_dir", required=True, type=click.Path(path_type=Path))
@click.option("--capacity", type=click.IntRange(1, 1 << 24), help="PTX-probe: events per warp that its buffer holds.")
def main(tracer: str, workload_dir: Path, probes: str, out_dir: Path, capacity: int | None) -> None:
    try:
        groups = load_groups()
        if probes not in groups:
            raise click.BadParameter(f"{probes!r} is not one of {', '.join(groups)}", param_hint="--probes")
        result = create(tracer, capacity).build(Workload.open(workload_dir), probes, out_dir)
        path = write_result(result, out_dir)
    except XtraceError as error:
        click.echo(str(error), err=True)
        sys.exit(error.exit_code)
    shown = f"{result.counts.sass} sites in SASS" if result.status == "ok" else result.reason
    click.echo(f"{path}: {result.tracer} {result.workload} {result.probes}: {result.status}, {shown}")


if __name__ == "__main__":
    main()
