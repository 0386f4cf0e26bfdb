"""The verdict document for a terminal: one line a cell with its interval drawn to scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

__all__ = ["STYLES", "interval_text", "print_report", "summary_line"]

STYLES = {"PASS": "green", "FAIL": "bold red", "INCONCLUSIVE": "yellow", "INVALID-ENV": "magenta"}
WIDTH = 24  # characters of an interval's drawing
DRAWING_FROM = 110  # columns of the terminal


def print_report(report: Mapping[str, Any], explain: bool, console: Console | None = None) -> None:
    """Write the table, what needs attention, and the verdict; with ``explain`` the evidence of every cell."""
    console = console or Console(highlight=False)
    cells: Sequence[Mapping[str, Any]] = report["cells"]
    console.print(_table(cells, str(report.get("source", "")), console.width >= DRAWING_FROM))
    for cell in cells:
        if explain or cell["verdict"] != "PASS" or cell["flags"]:
            _print_cell(console, cell, explain)
    _print_changes(console, report["changes"])
    _print_rest(console, report)
    console.print(f"[{STYLES[report['verdict']]}]{summary_line(report)}[/]", soft_wrap=True)


def _table(cells: Sequence[Mapping[str, Any]], source: str, drawing: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=f"Gate over {escape(source)}", title_justify="left", padding=(0, 1, 0, 0))
    table.add_column("cell", overflow="fold", min_width=20)
    for title in ("overhead %", "95 % interval", "budget"):
        table.add_column(title, no_wrap=True, justify="right")
    if drawing:
        table.add_column("0 .. budget (|)", no_wrap=True)
    table.add_column("n", no_wrap=True, justify="right")
    table.add_column("verdict", no_wrap=True)
    several = len({c["tracer"] for c in cells}) > 1
    for cell in cells:
        overhead = cell["overhead"] or {}
        name = " ".join(str(cell[key]) for key in ("workload", "tracer", "probes") if several or key != "tracer")
        row = [escape(name), _figure(overhead.get("percent")), interval_text(overhead), _budget(cell)]
        row += [escape(_draw(overhead, cell.get("budget")))] if drawing else []
        row += [str(overhead.get("processes", "-")), f"[{STYLES[cell['verdict']]}]{cell['verdict']}[/]"]
        table.add_row(*row)
    return table


def summary_line(report: Mapping[str, Any]) -> str:
    counts = ", ".join(f"{n} {verdict}" for verdict, n in report["counts"].items() if n)
    return f"{report['verdict']}: {counts}"


def interval_text(overhead: Mapping[str, Any]) -> str:
    """``+1.23 to +4.56``; a side without a bound is said in words."""
    if not overhead or overhead.get("low") is None or overhead.get("high") is None:
        return "none"
    return f"{overhead['low']:+.2f} to {overhead['high']:+.2f}"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:+.2f}"


def _budget(cell: Mapping[str, Any]) -> str:
    return f"{cell['budget']:g} %" if cell.get("budget") is not None else "-"


def _draw(overhead: Mapping[str, Any], budget: float | None) -> str:
    """The interval on a scale from zero to one and a half budgets: ``-`` interval, ``o`` estimate, ``|`` budget."""
    low, high, middle = (overhead.get(key) for key in ("low", "high", "percent"))
    if budget is None or low is None or high is None or middle is None:
        return ""
    position = {name: _place(value, budget) for name, value in (("low", low), ("high", high), ("middle", middle))}
    line = [" "] * WIDTH
    line[position["low"] : position["high"] + 1] = "-" * (position["high"] - position["low"] + 1)
    line[_place(budget, budget)] = "|"
    line[position["middle"]] = "o"
    if middle < 0:
        line[0] = "<"
    if middle > 1.5 * budget:
        line[-1] = ">"
    return "".join(line)


def _place(value: float, budget: float) -> int:
    return max(0, min(WIDTH - 1, round(value / (1.5 * budget) * (WIDTH - 1))))


def _print_cell(console: Console, cell: Mapping[str, Any], explain: bool) -> None:
    name = escape(f"{cell['workload']} {cell['probes']}")
    flags = "".join(f" [cyan]{flag}[/]" for flag in cell["flags"])
    console.print(f"[bold]{name}[/] [{STYLES[cell['verdict']]}]{cell['verdict']}[/]{flags}", soft_wrap=True)
    for reason in cell["reasons"]:
        console.print(f"    {reason}", markup=False, soft_wrap=True)
    if cell["extension_due"]:
        target = cell["declared"]["extended"]
        console.print(f"    extension due: measure up to {target} processes, then decide again", soft_wrap=True)
    if not explain or not cell["overhead"]:
        return
    overhead = cell["overhead"]
    opinions = cell["opinions"]
    student = interval_text({"low": overhead["t_low"], "high": overhead["t_high"]})
    exact = interval_text({"low": overhead["exact_low"], "high": overhead["exact_high"]})
    lines = [
        f"budget {cell['budget']:g} % from {cell['budget_source']}"
        + (f" ({cell['budget_why']})" if cell.get("budget_why") else ""),
        f"Student's t: {student} % -> {opinions['t']}; exact signed-rank: {exact} % -> {opinions['signed_rank']}",
        "process replicates, %: " + " ".join(_figure(r) for r in sorted(overhead["replicates"])),
        f"{cell['blocks']} blocks, {cell['voided']} voided; original {cell['original_ns'] or 0:,.0f} ns, "
        f"probes add {cell['extra_ns'] or 0:,.0f} ns a launch",
    ]
    for key, title in (("control", "A/A' control"), ("pad", "pad control")):
        if cell.get(key):
            lines.append(f"{title}: {_figure(cell[key]['percent'])} % ({interval_text(cell[key])})")
    for line in lines:
        console.print(f"    {line}", markup=False, soft_wrap=True)


def _print_changes(console: Console, changes: Sequence[Mapping[str, Any]]) -> None:
    if not changes:
        return
    table = Table(box=box.SIMPLE_HEAD, title="Against the older version, same processes", title_justify="left")
    for title in ("kernel", "probes", "old %", "new %", "change", "95 % interval", "verdict"):
        table.add_column(title)
    for row in changes:
        table.add_row(
            escape(str(row["workload"])),
            escape(str(row["probes"])),
            _figure((row["old"] or {}).get("percent")),
            _figure((row["new"] or {}).get("percent")),
            _figure(row["change"]["percent"]),
            interval_text(row["change"]),
            f"[{STYLES[row['verdict']]}]{row['verdict']}[/]",
        )
    console.print(table)


def _print_rest(console: Console, report: Mapping[str, Any]) -> None:
    if report["above_budget"]:
        names = "; ".join(report["above_budget"])
        console.print(f"above their budget (Holm, family-wise 5 %): {escape(names)}", soft_wrap=True)
    for suite in report["suites"]:
        left = f", without {', '.join(suite['left_out'])}" if suite["left_out"] else ""
        console.print(
            f"geometric mean, {suite['tracer']} {suite['probes']}: {_figure(suite['percent'])} % "
            f"({interval_text(suite)}) over {len(suite['cells'])} kernels{left}",
            markup=False,
            soft_wrap=True,
        )
    if report["reported"]:
        console.print(f"{len(report['reported'])} cells of other tracers are reported, not gated", soft_wrap=True)
