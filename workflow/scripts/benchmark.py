"""Time `plan` and `splice` end to end, as a user's shell would, against their targets.

    python workflow/scripts/benchmark.py [--image IMAGE --kernel GLOB] [--runs 5]

Default: the FlashAttention-3 kernel that plain attention runs. Each run is a fresh process pinned to one core. The best
run counts: it is the one that other programs disturbed least. Exit 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from workflow.kernels.suite import SUITE, make_corpus, read_suite
from workflow.scripts.common import run
from xtrace.errors import BadInput

WORKLOAD = "fa3_fwd_hd128_causal"
TARGETS = {"plan": 1.5, "splice": 2.0}  # seconds


def seconds(command: Sequence[str], runs: int) -> list[float]:
    """Wall time of every run. BadInput XT7413 if the command fails."""
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        times.append(time.perf_counter() - begin)
        if done.returncode != 0:
            raise BadInput(
                "XT7413", f"ended with {done.returncode}: {done.stderr[-500:]}", where=" ".join(command[2:4])
            )
    return times


def default_image(root: Path) -> Path:
    """The image in results/corpus, or one made now in .cache/corpus."""
    for place in (root / "results" / "corpus", root / ".cache" / "corpus"):
        if (place / WORKLOAD / "original.cubin").is_file():
            return place / WORKLOAD / "original.cubin"
    folder = root / ".cache" / "corpus" / WORKLOAD
    make_corpus(WORKLOAD, folder)
    return folder / "original.cubin"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--image", type=Path)
    parser.add_argument("--kernel", help="default: the kernel that the suite names")
    parser.add_argument("--probes", default="pp")
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args(arguments)
    image = given.image or default_image(SUITE.parents[1])
    kernel = given.kernel or ("*" if given.image else str(read_suite()[WORKLOAD]["kernel"]))
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one core, inherited by the commands
    missed = False
    print(f"{image.parent.name}/{image.name}, kernel {kernel}, probes {given.probes}, {given.runs} runs on one core")
    with tempfile.TemporaryDirectory(prefix="xtrace-bench-") as folder:
        common = [str(image), "--kernel", kernel, "--probes", given.probes]
        commands = {"plan": [*common, "--json"], "splice": [*common, "-o", str(Path(folder, "traced.cubin"))]}
        for verb, rest in commands.items():
            times = seconds([sys.executable, "-m", "xtrace", verb, *rest], given.runs)
            best, worst, target = min(times), max(times), TARGETS[verb]
            verdict = "ok" if best < target else "MISSED"
            missed |= best >= target
            print(f"{verb:7s} best {best:.2f} s, worst {worst:.2f} s, target < {target} s: {verdict}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    run(main)
