"""``xtrace verify``: check, independently of the splicer, that nothing but probes was added."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from xtrace.errors import BadInput
from xtrace.files import write_atomic
from xtrace.image import load
from xtrace.image.names import demangle, short_names
from xtrace.verify import Certificate, Status, verify
from xtrace.verify.certificate import Witness

__all__ = ["command"]

_MAX_MAP = 256 << 20  # bytes
_MEANING = {
    "instructions": "all original instructions there, in order, bit for bit",
    "targets": "branches, tables, symbols, lines name what they named",
    "liveness": "probes write only what is dead, on every path",
    "hazards": "stalls and scoreboards safe, the kernel's untouched",
    "effects": "probes only compute and store into their own slot",
    "resources": "register count honest, occupancy unchanged",
    "wellformed": "sound ELF file, nothing changed without a reason",
}
_STYLE = {Status.PASS: "green", Status.FAIL: "bold red", Status.NOT_CHECKED: "yellow"}
EPILOG = """\b
Exit code: 0 all promises hold, 1 one is broken or could not be checked, 2 an input is unusable.
"""


@click.command(epilog=EPILOG)
@click.argument("image", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--map", "map_path", type=click.Path(path_type=Path), help="Trace map of OUT. Default: OUT.map.json.")
@click.option("--certificate", type=click.Path(path_type=Path), help="Write the certificate to this file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
@click.pass_context
def command(
    context: click.Context, image: Path, out: Path, map_path: Path | None, certificate: Path | None, as_json: bool
) -> int:
    """Check that OUT is IMAGE plus probes that keep every promise.

    Works on the two files alone, with code that shares nothing with the splicer but the readers and the instruction
    set tables. Without a trace map, what only the map tells is NOT-CHECKED.
    """
    original, traced = load(image), load(out)
    where = map_path or _beside(out)
    document = None if where is None else _read_map(where)
    verdict = verify(original.data, traced.data, document, original_name=str(image), traced_name=str(out))
    if certificate is not None:
        write_atomic(certificate, verdict.to_json())
    if as_json:
        click.echo(verdict.to_json(), nl=False)
    else:
        _print(verdict, image, out, where)
    return 0 if verdict.ok else 1


def _beside(out: Path) -> Path | None:
    """The map that the splicer writes next to a traced image."""
    candidates = (out.with_name(out.name + ".map.json"), out.with_suffix(".map.json"))
    return next((path for path in candidates if path.is_file()), None)


def _read_map(path: Path) -> dict[str, Any]:
    """Raises ``BadInput`` XT4002 when the file cannot be read or is not a JSON object."""
    try:
        if path.stat().st_size > _MAX_MAP:
            raise BadInput("XT4002", "trace map is too large", where=str(path))
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise BadInput("XT4002", f"cannot read the trace map: {error.strerror or error}", where=str(path)) from error
    except (ValueError, RecursionError) as error:
        raise BadInput("XT4002", f"trace map is not JSON: {error}", where=str(path)) from error
    if not isinstance(document, dict):
        raise BadInput("XT4002", "trace map is not a JSON object", where=str(path))
    return document


def _print(verdict: Certificate, image: Path, out: Path, map_path: Path | None) -> None:
    console = Console(highlight=False)
    title = f"{out.name} against {image.name}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for promise, status in verdict.promises.items():
        count = verdict.failure_counts.get(promise, 0)
        note = _MEANING.get(promise, "") if not count else f"{count} violation{'s' * (count != 1)}"
        table.add_row(promise, f"[{_STYLE[Status(status)]}]{status}[/]", escape(note))
    console.print(table)
    kernels = [str(k["name"]) for k in verdict.kernels]
    shown = short_names([demangle(name) for name in kernels])
    names = {name: f"kernel {n}, {text}" for n, (name, text) in enumerate(zip(kernels, shown, strict=True), 1)}
    for promise, status in verdict.promises.items():
        if status != Status.PASS and (witness := verdict.first(promise)) is not None:
            _print_witness(console, promise, witness, names)
    t = verdict.totals
    console.print(
        f"{len(verdict.kernels)} kernel{'s' * (len(verdict.kernels) != 1)}: {t['original_instructions']} original "
        f"instructions, {t['identical_words']} identical, {t['retargeted_words']} with a moved code address, "
        f"{t['probe_words']} probe words, {t['kernel_control_fields_changed']} kernel control fields changed"
        + (f", {t['copied_words']} words of an untouched second copy" if t["copied_words"] else "")
    )
    if map_path is None:
        console.print("no trace map: what only the map tells was not checked (--map)")


def _print_witness(console: Console, promise: str, witness: Witness, names: dict[str, str]) -> None:
    place = f" at {witness.side} pc {witness.pc:#x}" if witness.pc is not None else ""
    console.print(f"[bold]{promise}[/]{place}: {escape(witness.why)}", soft_wrap=True)
    if witness.instruction:
        console.print(f"    {witness.instruction}", markup=False, soft_wrap=True)
    if witness.kernel:
        name = names.get(witness.kernel) or short_names([demangle(witness.kernel)])[0]
        console.print(f"    in {name}", markup=False, soft_wrap=True)
