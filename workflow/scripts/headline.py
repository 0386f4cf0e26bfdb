"""Print the headline numbers of the report as text: ``python -m workflow.scripts.headline results``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from workflow.scripts.common import run
from workflow.scripts.report_data import load
from workflow.scripts.report_tiles import tiles

SHOWN = ("certificates", "preservation", "coverage", "overhead")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="headline", description=__doc__.split("\n", 1)[0])
    parser.add_argument("results", type=Path)
    tables, errors = load(parser.parse_args(arguments).results, SHOWN)
    for tile in tiles(tables):
        print(f"{tile['value']:>20}  {tile['label']}")
    for error in errors.values():
        print(f"not available: {error}")
    return 1 if errors else 0


if __name__ == "__main__":
    run(main)
