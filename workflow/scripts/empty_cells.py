"""Rows for a device that this run cannot measure: one document a cell that says why.

python -m workflow.scripts.empty_cells --workload W --device NAME --reason WHY --cells xtrace:pp proton:pp --out DIR
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from workflow.scripts.common import run
from workflow.scripts.devices import empty_folder


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="empty_cells", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--workload", required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--reason", required=True)
    parser.add_argument("--cells", nargs="+", required=True, metavar="TRACER:PROBES")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    empty_folder(given.out, given.workload, given.cells, given.device, given.reason)


if __name__ == "__main__":
    run(main)
