#!/usr/bin/env python3
"""Make the corpus folder of one workload.

It gets original.cubin and meta.json and, for kernels compiled here, kernel.ptx and kernel.ttgir.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from workflow.kernels.suite import SUITE, make_corpus
from workflow.scripts.common import run


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workload", nargs="?", help="name from the suite")
    parser.add_argument("--workload", dest="named", metavar="NAME", help="the same as an option")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--variant", default="default", help="tile sizes and pipeline depth, see the kernel's source")
    parser.add_argument("--suite", type=Path, default=SUITE)
    parser.add_argument("--arch", default="sm_90a")
    args = parser.parse_args(arguments)
    name = args.named or args.workload
    if not name:
        parser.error("a workload is needed")
    make_corpus(
        name, args.out, args.variant, lambda line: print(line, file=sys.stderr, flush=True), args.suite, args.arch
    )


if __name__ == "__main__":
    run(main)
