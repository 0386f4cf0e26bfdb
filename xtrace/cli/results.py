"""``xtrace results``: overhead samples of several runs and machines, listed and put together."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from xtrace import __version__
from xtrace.cli._gate_input import read_results
from xtrace.errors import BadInput
from xtrace.files import write_atomic
from xtrace.stats.machine import is_simulated
from xtrace.stats.merge import MergedCell, merge

__all__ = ["command"]

MANIFEST = "merged.json"
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.group()
def command() -> None:
    """List overhead samples, or merge those of several machines.

    \b
    Examples:
      xtrace results list results/recorded
      xtrace results merge h200/results/overhead h100/results/overhead -o merged
      xtrace gate merged
    """


@command.command("list")
@click.argument("folders", nargs=-1, required=True, type=FOLDER, metavar="DIR...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_samples(folders: tuple[Path, ...], as_json: bool) -> None:
    """Every cell that the raw samples below DIR make, with its GPU and the number of processes."""
    cells = _cells(folders)
    if as_json:
        click.echo(json.dumps({"schema": "xtrace/results-list/1", "cells": [_entry(c) for c in cells]}, indent=1))
    else:
        _show(cells)


@command.command("merge")
@click.argument("folders", nargs=-1, required=True, type=FOLDER, metavar="DIR...")
@click.option("-o", "--out", required=True, type=click.Path(path_type=Path), help="Folder to make; must not exist.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def merge_samples(folders: tuple[Path, ...], out: Path, as_json: bool) -> None:
    """Copy the raw samples below every DIR into one new folder, if they may stand side by side.

    Samples of another GPU or driver are cells of their own. Refused: the same process of a cell twice, a cell whose
    processes timed different images or used different software, simulated samples among real ones. OUT appears whole
    or not at all; merged.json in it says which file came from where.
    """
    cells = _cells(folders)
    if out.exists() or out.is_symlink():
        raise BadInput("XT7224", "exists already", where=str(out), hint="name a new folder")
    entries = _write(cells, out)
    if as_json:
        click.echo(json.dumps(entries, indent=1))
    else:
        _show(cells)
        click.echo(f"\n{sum(len(c.documents) for c in cells)} files in {out}")


def _cells(folders: Sequence[Path]) -> list[MergedCell]:
    documents = [document for folder in folders for document in read_results(folder)[0]]
    if not documents:
        names = ", ".join(map(str, folders))
        raise BadInput("XT7221", "no raw samples (*.json of schema xtrace/overhead-raw/1) there", where=names)
    return merge(documents)


def _write(cells: Sequence[MergedCell], out: Path) -> dict[str, Any]:
    """Make the folder under another name, then rename it. Returns the manifest."""
    manifest: dict[str, Any] = {"schema": "xtrace/merged/1", "xtrace": __version__, "cells": [], "files": []}
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name[:40]}.", dir=out.parent) as made:
            fresh = Path(made) / "content"
            for cell in cells:
                manifest["cells"].append(_entry(cell))
                for document in cell.documents:
                    manifest["files"].append(_copy(cell, dict(document), fresh))
            write_atomic(fresh / MANIFEST, json.dumps(manifest, indent=1) + "\n")
            fresh.chmod(0o755)
            fresh.rename(out)
    except OSError as error:
        raise BadInput("XT7224", f"cannot be written: {error.strerror or error}", where=str(out)) from error
    return manifest


def _copy(cell: MergedCell, document: dict[str, Any], root: Path) -> dict[str, str]:
    """One document into the folder of its device; only its device's name may have become longer."""
    source = Path(document.pop("file"))
    document["cell"] = {**document["cell"], "device": cell.device}
    names = cell.names
    stem = ".".join(_slug(names[k]) for k in ("workload", "tracer", "probes"))
    shape = hashlib.sha256(f"{names['shape']}/{names['dtype']}/{names['kernel']}".encode()).hexdigest()[:8]
    path = root / (_slug(cell.device) or "no-device") / shape / f"{stem}.{document['process']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        raise BadInput("XT7224", f"two cells of {names['workload']} would have the same file name", where=str(source))
    write_atomic(path, json.dumps(document, indent=1) + "\n")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    return {"file": str(path.relative_to(root)), "from": str(source), "sha256": digest}


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-")


def _entry(cell: MergedCell) -> dict[str, Any]:
    first = next((d for d in cell.documents if d["blocks"]), cell.documents[0])
    return {
        **cell.names,
        "uuid": cell.uuid,
        "driver": cell.driver,
        "git": str(first["provenance"].get("git", "")),
        "processes": cell.processes,
        "measured": cell.measured,
        "simulated": is_simulated(first),
        "reason": str(first.get("unsupported", "")),
    }


def _show(cells: Sequence[MergedCell]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("workload", "tracer", "probes", "shape", "device", "driver", "commit", "processes"):
        table.add_column(name, overflow="fold")
    for cell in cells:
        entry = _entry(cell)
        count = str(len(cell.processes)) if cell.measured else f"not measured: {entry['reason'] or 'no samples'}"
        values = [entry[k] for k in ("workload", "tracer", "probes", "shape", "device", "driver")]
        table.add_row(*values, entry["git"][:9], count)
    Console(width=None if Console().is_terminal else 200, highlight=False, markup=False).print(table)
