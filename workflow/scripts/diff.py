"""Preservation of one pair of images as JSON; a pair that could not be built becomes a document that says why.

python -m workflow.scripts.diff --original A.cubin --other B.cubin --out C.json
python -m workflow.scripts.diff --baseline results/baselines/TRACER/WORKLOAD/GROUP --out C.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workflow.scripts.common import read_json, run, write_json, xtrace

SCHEMA = "xtrace/preservation/1"


def compare(original: Path, other: Path) -> list[dict[str, Any]]:
    """Kernels as ``xtrace diff --json`` gives them. The trace map beside ``other`` is used if it fits."""
    kernels: list[dict[str, Any]] = json.loads(xtrace("diff", original, other, "--json"))["kernels"]
    return kernels


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="diff", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--original", type=Path)
    parser.add_argument("--other", type=Path)
    parser.add_argument("--baseline", type=Path, help="folder with result.json of a baseline tracer")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    document: dict[str, Any] = {"schema": SCHEMA, "status": "ok", "reason": "", "kernels": []}
    if given.baseline is None:
        document["kernels"] = compare(given.original, given.other)
    else:
        result = read_json(given.baseline / "result.json")
        document |= {"status": result["status"], "reason": result["reason"], "sites": result["site_counts"]}
        if result["status"] == "ok":
            files = result["files"]
            document["kernels"] = compare(given.baseline / files["original"], given.baseline / files["instrumented"])
    write_json(given.out, document)


if __name__ == "__main__":
    run(main)
