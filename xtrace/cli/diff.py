"""``xtrace diff``: how much of a kernel another image of it preserves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

from xtrace.fidelity import LEVELS, KernelPreservation, compare
from xtrace.fidelity.addresses import belongs, read_map
from xtrace.image import Image, load
from xtrace.image.names import demangle, short_names

from ._selection import number_of

__all__ = ["command"]

_HEADINGS = {"strict": "strict", "relocated": "reloc.", "operands": "oper.", "form": "form", "opcode": "opcode"}
EPILOG = """\b
Shares are of the original's instructions, in order; trailing padding is not counted:
  strict     all bits equal
  relocated  equal but for the code-address bits, and these lead to the same instruction
  operands   guard, opcode and operands equal (scheduling fields may differ)
  form       as operands, with the numbers of registers and predicates blanked
  opcode     opcode and its modifiers equal
Without an address map, instructions are paired by a longest common subsequence.
"""


@click.command(epilog=EPILOG)
@click.argument("image", type=click.Path(path_type=Path))
@click.argument("other", type=click.Path(path_type=Path))
@click.option("--kernel", default="*", show_default=True, help="Shell glob on mangled or demangled names.")
@click.option(
    "--map",
    "map_path",
    type=click.Path(path_type=Path),
    help="Trace map of OTHER. Default: OTHER.map.json, if it is there and its hashes fit.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
def command(image: Path, other: Path, kernel: str, map_path: Path | None, as_json: bool) -> None:
    """Measure how much of IMAGE's kernels OTHER preserves, at five levels."""
    original, changed = load(image), load(other)
    trace_map = read_map(map_path) if map_path else _map_beside(other, original, changed)
    results = compare(original, changed, kernel, trace_map)
    if as_json:
        click.echo(json.dumps({"kernels": [r.as_dict() for r in results]}, indent=2))
    else:
        _print(results, image, other, number_of(original))


def _map_beside(other: Path, original: Image, changed: Image) -> dict[str, Any] | None:
    for candidate in (other.with_name(other.name + ".map.json"), other.with_suffix(".map.json")):
        if candidate.is_file():
            trace_map = read_map(candidate)
            if belongs(trace_map, original, changed):
                return trace_map
            click.echo(f"note: {candidate} was written for other files and is not used", err=True)
    return None


def _print(results: list[KernelPreservation], image: Path, other: Path, numbers: dict[str, int]) -> None:
    console = Console(highlight=False)
    table = Table(
        title=f"{image.name} preserved in {other.name}", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for heading in ("", "instr.", "new", *(_HEADINGS[level] for level in LEVELS), "blocks", "control"):
        table.add_column(heading, justify="right", no_wrap=True)
    for r in results:
        table.add_row(
            f"{numbers[r.name]}",
            f"{r.instructions}",
            f"+{r.inserted}",
            *(_percent(getattr(r, level)) for level in LEVELS),
            f"{r.changed_blocks}/{r.blocks}",
            f"{r.control_fields_changed}",
        )
    console.print(table)
    console.print("Levels in per cent of the original's instructions; blocks: changed/all; control: edited fields.")
    for r, name in zip(results, short_names([demangle(r.name) for r in results]), strict=True):
        console.print(f"{numbers[r.name]:3d}  {name}", markup=False, soft_wrap=True)
    if all(r.method == "map" for r in results):
        console.print("paired by the address map, one to one")
    else:
        console.print("paired by longest common subsequence (no address map): shares are lower bounds")


def _percent(share: float) -> str:
    """Two decimals, and 100 only for what is whole."""
    text = "100" if share == 1.0 else f"{100 * share:.2f}"
    return "<100" if text == "100.00" else text
