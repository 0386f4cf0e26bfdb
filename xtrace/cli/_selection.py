"""Options that several subcommands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from xtrace.image import Image, Kernel, load
from xtrace.sampling import Sampling
from xtrace.splice import Clocks, Stripes

__all__ = [
    "clocks_option",
    "kernel_option",
    "layout_option",
    "load_selection",
    "number_of",
    "probes_option",
    "records_option",
    "sample_option",
    "stripes_option",
]

kernel_option = click.option(
    "--kernel",
    "kernel",
    default="*",
    show_default=True,
    metavar="GLOB",
    help="Kernels to take, by mangled or demangled name.",
)
probes_option = click.option(
    "--probes",
    required=True,
    metavar="SPEC",
    help="What to trace: a trace set (sche, pp, mem) or selectors (entry, exit, op:GLOB, after:op:GLOB, pc:0xN, "
    "block, loop), separated by commas.",
)
records_option: Callable[[Any], Any] = click.option(
    "--records",
    type=int,
    default=2048,
    show_default=True,
    metavar="N",
    help="Each warp's ring keeps at least this many of its newest events.",
)
layout_option: Callable[[Any], Any] = click.option(
    "--layout",
    type=int,
    default=0,
    show_default=True,
    metavar="N",
    help="Choose among equivalent images (0 to 11); which one is fastest only a measurement can tell.",
)


def _choice(flag: str, values: type[Clocks | Stripes], text: str) -> Callable[[Any], Any]:
    choices = [value.value for value in values]
    return click.option(flag, type=click.Choice(choices), default=values.AUTO.value, show_default=True, help=text)


clocks_option = _choice(
    "--clocks",
    Clocks,
    "Clocks of packets: full (32 bits), short (16 bits between the first and the last, where that makes a packet "
    "smaller), or short only in kernels without tensor-core instructions, where that saves memory traffic.",
)
stripes_option = _choice(
    "--stripes",
    Stripes,
    "Let the packets of all warps interleave in memory; auto: in kernels without tensor-core instructions whose "
    "packets can have one size.",
)


def _rule(ctx: click.Context, param: click.Parameter, value: str | None) -> Sampling | None:
    return None if value is None else Sampling.parse(value)


sample_option: Callable[[Any], Any] = click.option(
    "--sample",
    callback=_rule,
    metavar="RULE",
    help="Trace some warps only; all others run an untouched copy of the kernel. cta=N or cta=N/OFFSET (every N-th "
    "CTA), warp=LIST, warpgroup=LIST, or several of them: cta=8,warp=0,4-7.",
)


def load_selection(path: Path, glob: str) -> tuple[Image, list[Kernel]]:
    """The image and its chosen kernels.

    Raises
    ------
    BadInput
        Not an image, or no kernel matches.
    """
    image = load(path)
    return image, list(image.select(glob))


def number_of(image: Image) -> dict[str, int]:
    """Numbers by which every subcommand calls the kernels of an image: 1 is the first in the file."""
    return {kernel.name: number for number, kernel in enumerate(image.kernels, 1)}
