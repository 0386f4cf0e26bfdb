"""Time planning, splicing and verifying on one core, against their targets.

    python workflow/scripts/benchmark.py [--runs 5] [--probes pp] [--json] [--enforce]
    python workflow/scripts/benchmark.py --image IMAGE [--kernel GLOB]

Default: every kernel of every image of the suite, and a generated kernel of more than 15,000 instructions. Kernels are
timed step by step within this process, without the disassembler. Targets on whole commands are judged by fresh
processes with nothing kept from before, so that the disassembler runs too. What counts is the median of the runs.
The order of instructions in islands is compared with all legal orders, for every shape of island of the suite.

Exit 0 whatever the times are; with --enforce 1 if a target is missed or could not be judged.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rich.console import Console
from rich.table import Table

from workflow.kernels.suite import SUITE, make_corpus, read_suite
from workflow.scripts.benchmark_islands import IslandOrders, compare_islands
from workflow.scripts.benchmark_steps import STEPS, KernelTimes, per_site, time_kernel, timed
from workflow.scripts.common import run
from xtrace.errors import BadInput, MissingTool, XtraceError
from xtrace.files import write_atomic
from xtrace.image import load
from xtrace.probe import validate

HEADLINE = "fa3_fwd_hd128_causal"  # its kernel for plain attention
LARGE = "generated"
LARGE_INSTRUCTIONS, LARGE_SITES = 14_000, 500  # a kernel counts as large from here on
BEFORE_SITES = ("decode", "analysis", "planning")


@dataclass(frozen=True)
class Command:
    """Wall times, s, of one command on one kernel."""

    verb: str
    image: str
    first: list[float]  # nothing kept from before
    again: list[float]  # with the disassembly that the command keeps


@dataclass(frozen=True)
class Target:
    title: str
    unit: str
    limit: float
    value: float | None  # None: not measured

    @property
    def verdict(self) -> str:
        return "not measured" if self.value is None else "ok" if self.value <= self.limit else "MISSED"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def suite_image(workload: str, root: Path) -> Path:
    """The image in results/corpus, or one made now in .cache/corpus."""
    for place in (root / "results" / "corpus", root / ".cache" / "corpus"):
        if (place / workload / "original.cubin").is_file():
            return place / workload / "original.cubin"
    folder = root / ".cache" / "corpus" / workload
    make_corpus(workload, folder, say=_say)
    return folder / "original.cubin"


def large_image(root: Path) -> Path:
    """The generated image, kept in .cache/benchmark under the hash of what it is made of. MissingTool XT6101."""
    try:
        version = metadata.version("triton")
    except metadata.PackageNotFoundError:
        raise MissingTool("XT6101", "Triton is not installed", hint="install the extra 'kernels'") from None
    from workflow.kernels import build, large

    made_of = Path(large.__file__).read_bytes() + Path(build.__file__).read_bytes() + version.encode()
    path = root / ".cache" / "benchmark" / f"{hashlib.sha256(made_of).hexdigest()[:16]}.cubin"
    if not path.is_file():
        _say(f"{LARGE}: compiling {large.SPEC.source}, about 10 s")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, build.build(large.SPEC).cubin)
    return path


def time_command(verb: str, name: str, image: Path, kernel: str, probes: str, runs: int) -> Command:
    """Wall times of ``xtrace VERB`` in fresh processes. BadInput XT7413 if it fails."""
    with tempfile.TemporaryDirectory(prefix="xtrace-bench-") as folder:
        rest = ["--json"] if verb == "plan" else ["-o", str(Path(folder, "traced.cubin"))]
        command = [sys.executable, "-m", "xtrace", verb, str(image), "--kernel", kernel, "--probes", probes, *rest]

        def once(no_cache: str) -> float:
            kept = {**os.environ, "XDG_CACHE_HOME": folder, "XTRACE_NO_CACHE": no_cache}
            spent, done = timed(partial(subprocess.run, command, capture_output=True, text=True, env=kept))
            if done.returncode != 0:
                what = f"ended with {done.returncode}: {done.stderr[-500:]}"
                raise BadInput("XT7413", what, where=f"xtrace {verb} {image}")
            return spent

        first = [once("1") for _ in range(runs)]
        once("0")
        return Command(verb, name, first, [once("0") for _ in range(runs)])


@contextmanager
def one_core() -> Iterator[None]:
    """Run on one core, and so do the commands that are started."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def measure(
    only: Path | None, kernel: str, probes: str, runs: int
) -> tuple[list[KernelTimes], list[Command], list[IslandOrders]]:
    """Times of one image's kernels, or of the suite's, the generated one and the commands with targets; and islands."""
    root, suite = SUITE.parents[1], read_suite()
    makers: Mapping[str, Callable[[], Path]]
    if only:
        makers = {only.name: lambda: only}
    else:
        makers = {name: partial(suite_image, name, root) for name in suite} | {LARGE: partial(large_image, root)}
    kernels: list[KernelTimes] = []
    commands: list[Command] = []
    islands: list[IslandOrders] = []
    for name, maker in makers.items():
        try:
            path = maker()
        except XtraceError as error:  # what cannot be had here must not hide the times of the others
            _say(f"{name} is left out: {error}")
            continue
        _say(f"{name}: {runs} runs")
        image = load(path)
        kernels += [time_kernel(name, image, k, probes, runs) for k in image.select(kernel)]
        if name != LARGE:
            islands.append(compare_islands(name, image, kernel, probes))
        if not only and name in (HEADLINE, LARGE):
            glob = str(suite[name]["kernel"]) if name in suite else "*"
            commands += [time_command(verb, name, path, glob, probes, runs) for verb in ("plan", "splice")]
    return kernels, commands, islands


def judge(kernels: Sequence[KernelTimes], commands: Sequence[Command]) -> list[Target]:
    """The targets of the suite, with the medians that were measured."""
    first = {(c.verb, c.image): median(c.first) for c in commands}
    if not any(k.instructions >= LARGE_INSTRUCTIONS and k.sites >= LARGE_SITES for k in kernels if k.image == LARGE):
        first.pop(("splice", LARGE), None)
    large = f"plan and splice {LARGE_INSTRUCTIONS:,} instructions with {LARGE_SITES} sites"
    return [
        Target("planning and scheduling, each site", "ms", 2.0, per_site(kernels)),
        Target(f"plan {HEADLINE}", "s", 1.5, first.get(("plan", HEADLINE))),
        Target(f"splice {HEADLINE}", "s", 2.0, first.get(("splice", HEADLINE))),
        Target(large, "s", 5.0, first.get(("splice", LARGE))),
    ]


def document(
    probes: str,
    runs: int,
    kernels: Sequence[KernelTimes],
    commands: Sequence[Command],
    islands: Sequence[IslandOrders],
    targets: Sequence[Target],
) -> dict[str, object]:
    """Everything that was measured (schema ``xtrace/benchmark/1``)."""
    return {
        "schema": "xtrace/benchmark/1",
        "probes": probes,
        "runs": runs,
        "kernels": [
            {**asdict(k), "ms_per_site": k.per_site(), "ms_per_site_all": k.per_site(BEFORE_SITES)} for k in kernels
        ],
        "ms_per_site": per_site(kernels),
        "ms_per_site_all": per_site(kernels, BEFORE_SITES),
        "commands": [asdict(c) for c in commands],
        "islands": [asdict(i) for i in islands],
        "targets": [{**asdict(t), "verdict": t.verdict} for t in targets],
    }


def _number(value: float | None, digits: int = 0) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def show(
    kernels: Sequence[KernelTimes],
    commands: Sequence[Command],
    islands: Sequence[IslandOrders],
    targets: Sequence[Target],
) -> None:
    """The same as tables."""
    console = Console(highlight=False, width=max(Console().width, 120))
    steps = Table(box=None, pad_edge=False, title="Medians, ms", title_justify="left")
    steps.add_column("kernel", no_wrap=True, min_width=max(len(k.image) for k in kernels) + 2 if kernels else 0)
    for name in ("instr.", "sites", "refused", *STEPS, "planning\na site", "with analysis\na site"):
        steps.add_column(name, justify="right")
    total = {image: sum(k.image == image for k in kernels) for image in {k.image for k in kernels}}
    number = dict.fromkeys(total, 0)
    for k in kernels:
        number[k.image] += 1
        label = k.image if total[k.image] == 1 else f"{k.image} {number[k.image]}"
        cells = [_number(None if (v := k.typical(step)) is None else 1e3 * v) for step in STEPS]
        rates = [_number(k.per_site(), 2), _number(k.per_site(BEFORE_SITES), 2)]
        steps.add_row(label, f"{k.instructions:,}", f"{k.sites}", f"{k.refused}", *cells, *rates)
    blank = [""] * (3 + len(STEPS))
    steps.add_row("median", *blank, _number(per_site(kernels), 2), _number(per_site(kernels, BEFORE_SITES), 2))
    console.print(steps)
    if commands:
        whole = Table("\ncommand", box=None, pad_edge=False, title="\nFresh processes, s", title_justify="left")
        for name in ("first time\nmedian", "\nbest", "again\nmedian", "\nbest"):
            whole.add_column(name, justify="right")
        for c in commands:
            cells = [_number(pick(times), 2) for times in (c.first, c.again) for pick in (median, min)]
            whole.add_row(f"{c.verb} {c.image}", *cells)
        console.print(whole)
    if islands:
        console.print(_islands_table(islands))
    if targets:
        goals = Table("target", box=None, pad_edge=False, title="\nTargets", title_justify="left")
        for name in ("measured", "at most"):
            goals.add_column(name, justify="right")
        goals.add_column("")
        for t in targets:
            measured = "" if t.value is None else f"{t.value:.2f} {t.unit}"
            goals.add_row(t.title, measured, f"{t.limit:.1f} {t.unit}", t.verdict)
        console.print(goals)


def _islands_table(islands: Sequence[IslandOrders]) -> Table:
    title = "\nOrder of instructions in islands, each shape once; cycles with modelled waits"
    table = Table("image", box=None, pad_edge=False, title=title, title_justify="left")
    for name in ("shapes", "compared with\nall orders", "orders", "equal to\noptimum", "worst gap,\ncycles"):
        table.add_column(name, justify="right")
    for name in ("larger ones\nproven", "shortened", "cycles\ngained"):
        table.add_column(name, justify="right")
    for i in islands:
        larger = f"{i.proven} of {i.shapes - i.compared}"
        cells = (i.shapes, i.compared, f"{i.orders:,}", i.equal, i.worst_gap, larger, i.shortened, i.gained)
        table.add_row(i.image, *map(str, cells))
    return table


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--image", type=Path, help="only this image, without targets")
    parser.add_argument("--kernel", default="*", help="of --image")
    parser.add_argument("--probes", default="pp")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--enforce", action="store_true", help="exit 1 if a target is missed or not measured")
    given = parser.parse_args(arguments)
    if not 1 <= given.runs <= 1000:
        raise BadInput("XT7416", f"1 to 1000 runs, not {given.runs}", where="--runs")
    validate(given.probes)
    with one_core():
        kernels, commands, islands = measure(given.image, given.kernel, given.probes, given.runs)
    targets = [] if given.image else judge(kernels, commands)
    if given.json:
        print(json.dumps(document(given.probes, given.runs, kernels, commands, islands, targets), indent=1))
    else:
        show(kernels, commands, islands, targets)
    return int(given.enforce and any(t.verdict != "ok" for t in targets))


if __name__ == "__main__":
    run(main)
