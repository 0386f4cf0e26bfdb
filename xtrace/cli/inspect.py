"""``xtrace inspect``: what is in an image, and what room it leaves for probes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from xtrace.analysis import KernelAnalysis, analyse_all
from xtrace.errors import MissingTool
from xtrace.image import Image, Kernel, load
from xtrace.image.names import short_names

from ._selection import number_of

__all__ = ["command"]


@click.command()
@click.argument("image", type=click.Path(path_type=Path))
@click.option("--kernel", default="*", show_default=True, help="Shell glob on mangled or demangled names.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
def command(image: Path, kernel: str, as_json: bool) -> None:
    """Show the kernels of IMAGE: sizes, registers, threads, loops and what is free for probes.

    IMAGE is a cubin; take one out of a library with `xtrace extract`. Without a disassembler everything but loops and
    free resources is still shown, with the reason.
    """
    source = load(image)
    kernels = source.select(kernel)
    analyses, reason = _analyses(source, kernels)
    rows = [_row(source, k, analyses.get(k.name)) for k in kernels]
    if as_json:
        document = {
            "image": source.name,
            "sha256": source.sha256,
            "arch": source.arch,
            "flavour": source.flavour,
            "bytes": len(source.data),
            "not_analysed": reason,
            "kernels": rows,
        }
        click.echo(json.dumps(document, indent=2))
    else:
        _print(source, rows, reason)


def _analyses(source: Image, kernels: list[Kernel]) -> tuple[dict[str, KernelAnalysis], str | None]:
    try:
        return dict(zip((k.name for k in kernels), analyse_all(source, kernels), strict=True)), None
    except MissingTool as error:
        return {}, str(error)


def _row(source: Image, kernel: Kernel, analysis: KernelAnalysis | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": kernel.name,
        "demangled": kernel.demangled,
        "code_bytes": len(kernel.text),
        "instructions": kernel.instructions,
        "registers": kernel.registers,
        "required_threads": list(kernel.required_threads) if kernel.required_threads else None,
        "max_threads": kernel.max_threads,
        "shared_static": kernel.shared_static,
        "barriers": kernel.barriers,
        "param_base": kernel.param_base,
        "param_size": kernel.param_size,
        "functions": [{"name": n, "offset": o, "bytes": s} for n, o, s in kernel.functions],
        "text_relocations": kernel.has_text_relocations,
        "loops": None,
        "free": None,
    }
    if analysis is not None:
        row["loops"] = _loops(analysis)
        row["free"] = {
            "registers_without_occupancy_loss": analysis.register_slack - kernel.registers,
            "uniform_registers": [f"UR{n}" for n in analysis.free_uniform],
            "registers_move_between_warps": analysis.moves_registers,
        }
    return row


def _loops(analysis: KernelAnalysis) -> list[dict[str, Any]]:
    loops = []
    for loop in analysis.loops:
        indices = [i for number in loop.blocks for i in analysis.cfg.blocks[number].indices]
        head = analysis.cfg.blocks[loop.head].indices[0]
        loops.append(
            {
                "id": loop.id,
                "head": analysis.instructions[head].pc,
                "depth": loop.depth,
                "parent": loop.parent,
                "blocks": len(loop.blocks),
                "instructions": len(indices),
                "matrix": sum("matrix" in analysis.instructions[i].tags for i in indices),
            }
        )
    return loops


def _print(source: Image, rows: list[dict[str, Any]], reason: str | None) -> None:
    console = Console(highlight=False)
    names = {"abi7": "ELF of ptxas 12 and older", "abi8": "ELF of ptxas 13"}
    console.print(
        f"[bold]{escape(source.name)}[/bold]  {source.arch}, {names[source.flavour]}, {len(source.data):,} bytes, "
        f"{len(source.kernels)} kernel{'s' if len(source.kernels) != 1 else ''}"
    )
    table = Table(box=box.SIMPLE, pad_edge=False, padding=(0, 1))  # fits 80 columns, also where it is piped
    table.add_column("#", justify="right")
    for heading in ("instr.", "regs", "threads", "shared", "bars", "loops", "free R", "free UR"):
        table.add_column(heading, justify="right", no_wrap=True)
    numbers = number_of(source)
    for row in rows:
        loops, free = row["loops"], row["free"]
        table.add_row(
            str(numbers[row["name"]]),
            f"{row['instructions']:,}",
            str(row["registers"]),
            _threads(row),
            f"{row['shared_static']:,}",
            str(row["barriers"]),
            "?" if loops is None else f"{len(loops)} ({max((x['depth'] for x in loops), default=0)})",
            "?" if free is None else _free(free),
            "?" if free is None else str(len(free["uniform_registers"])),
        )
    console.print(table)
    shown = short_names([row["demangled"] for row in rows])
    for row, name in zip(rows, shown, strict=True):
        console.print(f"{numbers[row['name']]:3d}  {name}", markup=False, soft_wrap=True)
    if shown != [row["demangled"] for row in rows]:
        console.print("names are shortened; --json has them in full")
    for row in rows:
        if row["text_relocations"]:
            console.print(f"kernel {numbers[row['name']]}: its code has relocations and cannot be moved")
    if reason:
        console.print(f"loops and free resources are not known: {escape(reason)}", style="yellow")
    else:
        console.print("bars: barriers; loops: count (depth); free R: registers to spare at unchanged occupancy;")
        console.print("free UR: uniform registers that the kernel never names")


def _threads(row: dict[str, Any]) -> str:
    if row["required_threads"]:
        x, y, z = row["required_threads"]
        return f"{x}x{y}x{z}" if y * z > 1 else str(x)
    return f"<= {row['max_threads']}" if row["max_threads"] else "any"


def _free(free: dict[str, Any]) -> str:
    return "moved" if free["registers_move_between_warps"] else f"+{free['registers_without_occupancy_loss']}"
