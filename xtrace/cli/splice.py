"""``xtrace splice``: write the traced image and its map."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from xtrace.errors import BadInput
from xtrace.files import write_atomic
from xtrace.image.names import short_names
from xtrace.sampling import Sampling
from xtrace.splice import Clocks, Form, Options, Stripes, apply, plan

from ._selection import (
    clocks_option,
    kernel_option,
    layout_option,
    load_selection,
    number_of,
    probes_option,
    records_option,
    sample_option,
    stripes_option,
)


@click.command(
    epilog="""\b
Examples:
  xtrace splice attention.cubin --probes pp -o traced.cubin
  xtrace splice attention.cubin --probes pp --sample cta=8 -o sampled.cubin
  xtrace splice fa3.cubin --kernel '*' --probes sche -o fa3.traced.cubin --json
"""
)
@click.argument("image", type=click.Path(path_type=Path))
@kernel_option
@probes_option
@records_option
@layout_option
@sample_option
@clocks_option
@stripes_option
@click.option(
    "--form",
    type=click.Choice([form.name.lower() for form in Form]),
    default=Form.SCHEDULED.name.lower(),
    show_default=True,
    help="For experiments: leave out optimisations of the probes, to measure what each is worth.",
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Traced image; OUTPUT.map.json is written beside it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a summary as one JSON document.")
def command(
    image: Path,
    kernel: str,
    probes: str,
    records: int,
    layout: int,
    form: str,
    sample: Sampling | None,
    clocks: str,
    stripes: str,
    output: Path,
    as_json: bool,
) -> None:
    """Write a copy of IMAGE with probes in it, and its trace map."""
    if output.exists() and image.exists() and output.samefile(image):
        raise BadInput("XT3040", "the output would overwrite the input", where=str(output), hint="choose another -o")
    loaded, kernels = load_selection(image, kernel)
    options = Options(records, layout, Form[form.upper()], sample, Clocks(clocks), Stripes(stripes))
    result = apply(plan(loaded, kernels, probes, options))
    map_path = output.with_name(output.name + ".map.json")
    write_atomic(map_path, json.dumps(result.map, indent=1) + "\n")
    write_atomic(output, result.data)
    summary = {
        "output": str(output),
        "map": str(map_path),
        "bytes": len(result.data),
        "kernels": [
            {
                "name": k["name"],
                "placed": _placed(k),
                "refused": len(k["refused"]),
                "instructions": k["instructions"],
                **({"sample": k["sample"]["rule"]} if "sample" in k else {}),
            }
            for k in result.map["kernels"]
        ],
    }
    if as_json:
        click.echo(json.dumps(summary, indent=1))
        return
    console = Console(highlight=False)
    numbers = number_of(loaded)
    shown = short_names([k["demangled"] or k["name"] for k in result.map["kernels"]])
    for k, name in zip(result.map["kernels"], shown, strict=True):
        placed, refused = _placed(k), len(k["refused"])
        words = k["instructions"]["after"] - k["instructions"]["before"]
        note = f", {refused} refused (see `xtrace plan`)" if refused else ""
        if "sample" in k:
            note += f", sampled {k['sample']['rule']}"
        line = f"{numbers[k['name']]}  {name}: {placed} sites placed{note}, {words} words added"
        console.print(line, markup=False, soft_wrap=True)
    done = f"wrote {output} and {map_path.name}; check it with: xtrace verify {image} {output}"
    console.print(done, markup=False, soft_wrap=True)


def _placed(kernel: dict[str, Any]) -> int:
    """Sites that a trace shows: not those of registers that addresses are derived from, but derived addresses."""
    recorded = [site for site in kernel["sites"] if site["probe"] != "value"]
    return len(recorded) + len(kernel.get("derived", ()))
