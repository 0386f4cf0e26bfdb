"""Draw one figure: ``python -m workflow.scripts.plots FIGURE --table T.csv --out STEM``.

Writes STEM.svg and STEM.png, and with ``--more FOLDER`` the second page and those after it as FOLDER/2.svg and so on.
A table that is missing or broken is an error. A table without rows gives a figure that says so.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from workflow.scripts.common import read_table, run
from workflow.scripts.plots import (
    ablation,
    architecture,
    coverage,
    distributions,
    dose,
    overhead,
    prediction,
    preservation,
    timeline,
    trend,
)
from workflow.scripts.plots.style import save, setup

# figure -> (columns of its table, pages from the table)
FIGURES: dict[str, tuple[Sequence[str], Callable[[pd.DataFrame], list[Figure]]]] = {
    "overhead": (overhead.COLUMNS, overhead.draw),
    "trend": (trend.COLUMNS, trend.draw),
    "ablation": (ablation.COLUMNS, ablation.draw),
    "prediction": (prediction.COLUMNS, prediction.draw),
    "architectures": (architecture.COLUMNS, architecture.draw),
}
SPREADS = {
    "blocks": (distributions.BLOCKS, distributions.ecdf),
    "replicates": (distributions.REPLICATES, distributions.strip),
}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="plots", description=__doc__.split("\n", 1)[0])
    parser.add_argument("figure", choices=["preservation", "coverage", "dose", "timeline", *FIGURES, *SPREADS])
    parser.add_argument("--table", type=Path, required=True, help="for timeline: the trace file")
    parser.add_argument("--out", type=Path, required=True, help="path without suffix")
    parser.add_argument("--more", type=Path, help="folder for pages after the first; made anew")
    parser.add_argument("--probes", default="pp", help="probe set of the preservation figure")
    parser.add_argument("--cells", type=Path, help="overhead table: what blocks and replicates should hold")
    parser.add_argument("--fit", type=Path, help="table of fitted lines, for the dose figure")
    parser.add_argument("--refusals", type=Path, help="table of refused sites, for the coverage figure")
    given = parser.parse_args(arguments)
    if given.figure == "timeline":
        timeline.draw(given.table, given.out, given.out.name.removeprefix("timeline-"))
        return
    setup()
    if given.figure == "preservation":
        pages = preservation.draw(read_table(given.table, preservation.COLUMNS), given.probes)
    elif given.figure == "coverage":
        refusals = None if given.refusals is None else read_table(given.refusals, coverage.REFUSALS)
        pages = coverage.draw(read_table(given.table, coverage.COLUMNS), refusals)
    elif given.figure == "dose":
        pages = dose.draw(read_table(given.table, dose.COLUMNS), read_table(given.fit, dose.FIT_COLUMNS))
    elif given.figure in SPREADS:
        columns, spread = SPREADS[given.figure]
        cells = None if given.cells is None else read_table(given.cells, overhead.COLUMNS)
        pages = spread(read_table(given.table, columns), cells)
    else:
        columns, draw = FIGURES[given.figure]
        pages = draw(read_table(given.table, columns))
    save(pages, given.out, given.more)


if __name__ == "__main__":
    run(main)
