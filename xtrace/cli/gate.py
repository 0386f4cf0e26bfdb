"""``xtrace gate``: decide from overhead samples whether tracing stays within its budgets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from xtrace.cli._gate_files import junit, markdown
from xtrace.cli._gate_input import printable, read_budgets, read_results
from xtrace.cli._gate_text import print_report
from xtrace.errors import BadInput, XtraceError
from xtrace.files import write_atomic
from xtrace.stats.budgets import Budgets
from xtrace.stats.rule import Rule
from xtrace.stats.verdicts import Selection, gate_report

__all__ = ["BAD_INPUT", "EXIT_CODES", "command"]

EXIT_CODES = {"PASS": 0, "FAIL": 1, "INCONCLUSIVE": 2, "INVALID-ENV": 3}
BAD_INPUT = 4  # 2, the code of bad input everywhere else, means INCONCLUSIVE here
DEFAULT_BUDGETS = Path("configs/budgets.yaml")
EPILOG = """\b
Exit code: 0 PASS, 1 FAIL, 2 INCONCLUSIVE, 3 INVALID-ENV (the machine was not fit to be
timed), 4 the request or its input is at fault. With several cells the worst verdict
counts: FAIL, then INVALID-ENV, then INCONCLUSIVE, then PASS.
\b
Examples:
  xtrace gate results/overhead/raw
  xtrace gate results/overhead/raw --kernel 'softmax*' --budget 2 --explain
  xtrace gate results/overhead/raw --out gate.json --markdown gate.md --junit gate.xml
  xtrace gate gate.json --markdown gate.md
"""


class GateCommand(click.Command):
    """Ends with :data:`BAD_INPUT` where other subcommands end with 2."""

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        with _own_exit_code():
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        with _own_exit_code():
            return super().invoke(ctx)


@contextmanager
def _own_exit_code() -> Iterator[None]:
    try:
        yield
    except (click.exceptions.Exit, click.Abort, BrokenPipeError):
        raise
    except Exception as error:
        if isinstance(error, XtraceError):
            known = error
        elif isinstance(error, click.ClickException):
            known = BadInput(
                "XT7000", error.format_message().rstrip("."), where="xtrace gate", hint="see xtrace gate --help"
            )
        elif isinstance(error, OSError):
            known = BadInput("XT6001", error.strerror or str(error), where=str(error.filename or ""))
        else:
            known = XtraceError(
                "XT0001", f"internal error: {type(error).__name__}: {error}"[:500], hint="a bug in xtrace"
            )
        known.exit_code = BAD_INPUT
        raise known from error


@click.command(cls=GateCommand, epilog=EPILOG)
@click.argument("results", type=click.Path(path_type=Path))
@click.option("--budgets", "budgets_path", type=click.Path(path_type=Path), help="Default: configs/budgets.yaml.")
@click.option(
    "--budget",
    type=click.FloatRange(0, 1000, min_open=True),
    help="One budget for all cells, in percent, whatever the file says.",
)
@click.option("--tracer", help="Gate the cells of this tracer (glob). Default: xtrace. Others are reported.")
@click.option("--kernel", help="Look only at these workloads or kernels (glob).")
@click.option("--expect", multiple=True, metavar="WORKLOAD:TRACER:PROBES", help="This cell must be there.")
@click.option(
    "--inconclusive",
    type=click.Choice(["report", "pass", "fail"]),
    default="report",
    show_default=True,
    help="Exit code of INCONCLUSIVE: 2, 0 or 1. The verdict shown stays INCONCLUSIVE.",
)
@click.option("--explain", is_flag=True, help="Show both intervals, replicates, controls of every cell.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as one JSON document and nothing else.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the JSON verdict to this file.")
@click.option("--markdown", "markdown_path", type=click.Path(path_type=Path), help="Write a pull request summary.")
@click.option("--junit", "junit_path", type=click.Path(path_type=Path), help="Write JUnit XML.")
def command(
    results: Path,
    budgets_path: Path | None,
    budget: float | None,
    tracer: str | None,
    kernel: str | None,
    expect: tuple[str, ...],
    inconclusive: str,
    explain: bool,
    as_json: bool,
    out: Path | None,
    markdown_path: Path | None,
    junit_path: Path | None,
) -> int:
    """Decide for every cell of RESULTS whether tracing stays within its budget.

    RESULTS is a folder of raw overhead samples, searched through, or a verdict written by --out, which is shown again
    and not decided anew. Each process replicate counts once; a cell passes when the whole 95 % interval of its overhead
    is below the budget and fails when it is above. What is open after the declared number of processes gets one
    extension (see docs/decisions/0003-gate-rule.md).
    """
    documents, report = read_results(results)
    if report is None:
        budgets = _budgets(budgets_path, budget, documents)
        selection = Selection(tracer or "xtrace", kernel or "*", tuple(_expected(cell) for cell in expect))
        report = gate_report(documents, budgets, selection, str(results))
    elif any((budgets_path, budget, tracer, kernel, expect)):
        raise BadInput(
            "XT7213",
            "a verdict is shown again, not decided anew",
            where=str(results),
            hint="to use --budgets, --budget, --tracer, --kernel or --expect, name the folder of raw samples",
        )
    text = json.dumps(report, indent=1, allow_nan=False) + "\n"
    if out is not None:
        write_atomic(out, text)
    shown = printable(report)
    if markdown_path is not None:
        write_atomic(markdown_path, markdown(shown))
    if junit_path is not None:
        write_atomic(junit_path, junit(shown))
    if as_json:
        click.echo(text, nl=False)
    else:
        print_report(shown, explain)
    if report["verdict"] == "INCONCLUSIVE" and inconclusive != "report":
        return EXIT_CODES["PASS" if inconclusive == "pass" else "FAIL"]
    return EXIT_CODES[report["verdict"]]


def _budgets(path: Path | None, percent: float | None, documents: list[dict[str, Any]]) -> Budgets:
    if path is None and DEFAULT_BUDGETS.is_file():
        path = DEFAULT_BUDGETS
    if path is None and percent is None:
        raise BadInput("XT7213", f"there is no {DEFAULT_BUDGETS} here", hint="give --budgets FILE or --budget PERCENT")
    budgets = read_budgets(path, documents) if path is not None else Budgets(Rule(), ())
    return budgets if percent is None else budgets.override(percent)


def _expected(cell: str) -> tuple[str, str, str]:
    parts = cell.split(":")
    if len(parts) != 3 or not all(parts):
        raise BadInput("XT7213", f"{cell!r} is not WORKLOAD:TRACER:PROBES", where="--expect")
    return parts[0], parts[1], parts[2]
