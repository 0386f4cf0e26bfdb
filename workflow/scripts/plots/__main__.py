"""Draw one figure: ``python -m workflow.scripts.plots FIGURE --table T.csv --out STEM`` writes STEM.svg and STEM.png.

A table that is missing or broken is an error. A table without rows gives a figure that says so.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from workflow.scripts.common import read_table, run
from workflow.scripts.plots import coverage, overhead, preservation, timeline
from workflow.scripts.plots.style import save, setup


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="plots", description=__doc__.split("\n", 1)[0])
    parser.add_argument("figure", choices=["preservation", "overhead", "coverage", "timeline"])
    parser.add_argument("--table", type=Path, required=True, help="for timeline: the trace file")
    parser.add_argument("--out", type=Path, required=True, help="path without suffix")
    parser.add_argument("--probes", default="pp", help="probe set of the preservation figure")
    given = parser.parse_args(arguments)
    if given.figure == "timeline":
        timeline.draw(given.table, given.out, given.out.name.removeprefix("timeline-"))
        return
    setup()
    if given.figure == "preservation":
        figure = preservation.draw(read_table(given.table, preservation.COLUMNS), given.probes)
    elif given.figure == "overhead":
        figure = overhead.draw(read_table(given.table, overhead.COLUMNS))
    else:
        figure = coverage.draw(read_table(given.table, coverage.COLUMNS))
    save(figure, given.out)


if __name__ == "__main__":
    run(main)
