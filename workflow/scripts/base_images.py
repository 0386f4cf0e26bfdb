"""Traced images of an older revision, for a comparison in the same processes.

    python -m workflow.scripts.base_images --revision REV --corpus DIR --out DIR --cells W:PROBES ...

The revision's `xtrace` package is taken out of the repository and run by this interpreter on the images of this run.
An image that the older revision cannot make leaves a file with the reason, and its cells are measured without it.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

from workflow.scripts.common import run
from workflow.scripts.config import probe_specs
from xtrace.errors import BadInput
from xtrace.files import write_atomic
from xtrace.sampling import probe_set, sampling

__all__ = ["main", "resolve", "unpack"]

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 600


def resolve(revision: str, root: Path = ROOT) -> str:
    """Full hash of a revision of this repository. BadInput XT7415 if there is none, or no repository."""
    if not re.fullmatch(r"[A-Za-z0-9][\w./@^~{}+-]{0,200}", revision):
        raise BadInput("XT7415", f"{revision!r} names no revision", where="base", hint="give a tag, branch or commit")
    command = ["git", "-C", str(root), "rev-parse", "--verify", "--quiet", "--end-of-options", revision + "^{commit}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except OSError as error:
        raise BadInput("XT7415", "git cannot be run", where="base", hint="install git") from error
    if done.returncode or not (found := done.stdout.strip()):
        raise BadInput(
            "XT7415",
            f"{revision!r} is not a revision of {root}",
            where="base",
            hint="give a tag, branch or commit; a shallow clone has only its newest",
        )
    return found


def unpack(revision: str, folder: Path, root: Path = ROOT) -> Path:
    """The package `xtrace` as it was, below ``folder``; what to put on the module path."""
    command = ["git", "-C", str(root), "archive", "--format=tar", revision, "xtrace"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=TIMEOUT_S)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip()
        raise BadInput("XT7415", f"{revision} has no package xtrace: {reason}", where="base")
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def old_xtrace(source: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the older ``xtrace``: only its own package is on the path in front of the installed ones (`-P`: not ours)."""
    command = [sys.executable, "-P", "-m", "xtrace", *arguments]
    environment = os.environ | {"PYTHONPATH": str(source.resolve())}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S, env=environment)


def splice(source: Path, original: Path, spec: str, image: Path, sample: str = "") -> str:
    """Splice one image with the older code; returns why that is impossible, or nothing."""
    image.parent.mkdir(parents=True, exist_ok=True)
    options = ["--probes", spec, *(["--sample", sample] if sample else [])]
    done = old_xtrace(source, "splice", str(original), "--kernel", "*", *options, "-o", str(image))
    if done.returncode == 0:
        return ""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    reason = lines[-1] if lines else f"it ended with {done.returncode}"
    write_atomic(image.with_suffix(".failed.txt"), reason + "\n")
    return reason


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="base_images", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--revision", required=True)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cells", nargs="+", required=True, metavar="WORKLOAD:PROBES")
    parser.add_argument("--matched-sites", type=Path, default=ROOT / "configs" / "matched_sites.yaml")
    given = parser.parse_args(arguments)
    specs = probe_specs(given.matched_sites)
    cells = [cell.partition(":")[::2] for cell in given.cells]
    if unknown := [probes for _, probes in cells if probe_set(probes) not in specs]:
        raise BadInput("XT7415", f"{unknown[0]!r} is no probe set", where="--cells", hint=f"known: {', '.join(specs)}")
    source = unpack(resolve(given.revision), given.out / "source")
    for workload, probes in cells:
        image = given.out / "traced" / workload / f"{probes}.cubin"
        rule = sampling(probes)
        original = given.corpus / workload / "original.cubin"
        reason = splice(source, original, specs[probe_set(probes)], image, str(rule or ""))
        print(f"{workload} {probes}: {reason or 'spliced'}", flush=True)


if __name__ == "__main__":
    run(main)
