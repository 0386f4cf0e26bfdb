"""Verify one traced image: the certificate is written whether or not every promise holds.

    python -m workflow.scripts.verify --original A.cubin --traced B.cubin --out B.cubin.certificate.json

Exit 0 in both cases, because a workflow deletes the outputs of a rule that fails and the witness would be lost. The
rule ``enforce`` (workflow/scripts/certificate_table.py --enforce) makes a broken promise fail the run.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from workflow.scripts.common import run, xtrace
from xtrace.files import write_atomic


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="verify", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--original", type=Path, required=True)
    parser.add_argument("--traced", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    write_atomic(given.out, xtrace("verify", given.original, given.traced, "--json", codes=(0, 1)))


if __name__ == "__main__":
    run(main)
