"""``xtrace extract``: images out of shared libraries, programs and fatbins."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from xtrace.errors import BadInput, XtraceError
from xtrace.files import write_atomic
from xtrace.image import Kernel, parse
from xtrace.image.fatbin import Bytes, Entry, open_library, payload, scan
from xtrace.image.names import short_names

__all__ = ["command"]

SHOWN_KERNELS = 4  # per image, in the table; --json has all of them


@click.command()
@click.argument("library", type=click.Path(path_type=Path))
@click.option("--arch", help="Only this architecture, e.g. sm_90a (PTX entries: compute_90).")
@click.option("--kernel", "pattern", metavar="REGEX", help="Only images with a kernel whose name matches.")
@click.option("--list", "list_only", is_flag=True, help="List the entries, write nothing.")
@click.option("-o", "--output", "folder", type=click.Path(path_type=Path), help="Folder for the images.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
def command(
    library: Path, arch: str | None, pattern: str | None, list_only: bool, folder: Path | None, as_json: bool
) -> None:
    """Take the GPU images out of LIBRARY (shared library, program or fatbin file).

    Images are written as fat<N>_<entry>.<arch>.cubin; N counts the containers of the file. PTX entries are listed only.
    """
    if folder is None and not list_only:
        raise click.UsageError("give a folder with -o, or --list")
    wanted = _compile(pattern)
    images: list[dict[str, Any]] = []
    seen: set[str] = set()
    try:
        with open_library(library) as data:
            for entry in (entry for fatbin in scan(data) for entry in fatbin.entries):
                seen.add(entry.arch)
                if arch and entry.arch != arch:
                    continue
                images += _entry(data, entry, library, wanted, None if list_only else folder)
    except XtraceError:
        _take_back(images)
        raise
    if not images:
        raise _nothing(library, arch, pattern, seen)
    if as_json:
        click.echo(json.dumps({"library": str(library), "images": images}, indent=2))
    else:
        _print(images, library, wanted)


def _compile(pattern: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(pattern) if pattern is not None else None
    except (re.error, RecursionError, OverflowError) as error:
        raise BadInput(
            "XT7010", f"not a regular expression: {error}", where="--kernel", hint="e.g. 'Flash.*128'"
        ) from error


def _entry(
    data: Bytes, entry: Entry, library: Path, wanted: re.Pattern[str] | None, folder: Path | None
) -> Iterator[dict[str, Any]]:
    """The row of one entry, none if the pattern leaves it out; writes the image when a folder is given."""
    row: dict[str, Any] = {
        "fat": entry.fat,
        "entry": entry.index,
        "arch": entry.arch,
        "kind": entry.kind,
        "compression": entry.compression,
        "bytes": entry.unpacked if entry.compression != "none" else entry.stored,
        "path": None,
        "note": None,
        "kernels": [],
    }
    if entry.kind == "elf":
        where = f"{library}: fatbin {entry.fat} entry {entry.index}"
        content = payload(data, entry, str(library))
        row["bytes"] = len(content)
        try:
            image = parse(content, where)
        except XtraceError as error:  # relocatable objects and images without kernels are listed, not written
            row["note"] = error.what
        else:
            kernels = image.kernels
            if image.sm != entry.sm:
                what = f"listed as {entry.arch}, but the image is for {image.arch}"
                raise BadInput("XT1209", what, where=image.arch_place, hint="the library is damaged: build it again")
            if wanted and not any(_matches(k, wanted) for k in kernels):
                return
            row["kernels"] = [_kernel(k) for k in kernels]
            if folder is not None:
                row["path"] = str(_write(folder, entry, content))
    if wanted and not row["kernels"]:
        return
    yield row


def _take_back(images: list[dict[str, Any]]) -> None:
    """Half a library's images are no result: remove what this run wrote."""
    for row in images:
        if row["path"]:
            with contextlib.suppress(OSError):
                Path(row["path"]).unlink()


def _write(folder: Path, entry: Entry, content: bytes) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"cannot make the folder: {error.strerror or error}"
        raise BadInput("XT7002", what, where=str(folder), hint="name a folder that can be written") from error
    return write_atomic(folder / f"fat{entry.fat}_{entry.index}.{entry.arch}.cubin", content)


def _matches(kernel: Kernel, wanted: re.Pattern[str]) -> bool:
    return bool(wanted.search(kernel.name) or wanted.search(kernel.demangled))


def _kernel(kernel: Kernel) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "demangled": kernel.demangled,
        "instructions": kernel.instructions,
        "registers": kernel.registers,
    }


def _nothing(library: Path, arch: str | None, pattern: str | None, seen: set[str]) -> BadInput:
    if not seen:
        hint = "is it a library with CUDA code? A bare cubin needs no extraction"
        return BadInput("XT1207", "no GPU image in this file", where=str(library), hint=hint)
    filters = " and ".join(f for f in (arch and f"--arch {arch}", pattern and f"--kernel {pattern}") if f)
    hint = f"architectures in this file: {', '.join(sorted(seen))}"
    return BadInput("XT1208", f"no image matches {filters}", where=str(library), hint=hint)


def _print(images: list[dict[str, Any]], library: Path, wanted: re.Pattern[str] | None) -> None:
    console = Console(highlight=False)
    table = Table(title=f"{escape(library.name)}: {len(images)} entries", title_justify="left")
    for heading in ("fat", "entry"):
        table.add_column(heading, justify="right")
    table.add_column("arch", no_wrap=True)
    table.add_column("stored")
    table.add_column("bytes", justify="right")
    table.add_column("kernels (instructions, registers)", overflow="fold")
    for row in images:
        table.add_row(
            str(row["fat"]),
            str(row["entry"]),
            escape(row["arch"]),
            row["compression"] if row["kind"] == "elf" else f"{escape(row['kind'])}, {row['compression']}",
            f"{row['bytes']:,}",
            escape(_kernels_text(row, wanted)),
        )
    console.print(table)
    written = [row["path"] for row in images if row["path"]]
    if written:
        console.print(f"{len(written)} images written to {escape(str(Path(written[0]).parent))}")


def _kernels_text(row: dict[str, Any], wanted: re.Pattern[str] | None) -> str:
    if row["note"]:
        return str(row["note"])
    kernels = row["kernels"]
    if wanted:
        kernels = [k for k in kernels if wanted.search(k["name"]) or wanted.search(k["demangled"])]
    shown = kernels[:SHOWN_KERNELS]
    names = short_names([k["demangled"] for k in shown])
    lines = [f"{k['instructions']}, {k['registers']}: {name}" for k, name in zip(shown, names, strict=True)]
    if len(kernels) > SHOWN_KERNELS:
        lines.append(f"and {len(kernels) - SHOWN_KERNELS} more")
    return "\n".join(lines)
