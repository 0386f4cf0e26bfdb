"""How many records every warp of a CTA must leave behind, from loop trip counts alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workflow.kernels.spec import KernelSpec, Shape, Variant
from xtrace.errors import BadInput

__all__ = ["records_per_warp"]


def records_per_warp(
    spec: KernelSpec, variant: Variant, shape: Shape, cta: int, entry: Mapping[str, Any]
) -> int | None:
    """Records of one warp of CTA ``cta`` (linear index, x fastest), or None where trip counts do not tell.

    ``entry`` is the kernel's entry of a trace map (``sites`` with ``id``, ``loop``, ``guard``; ``loops`` with ``id``,
    ``head``). The natural loops of the machine code are, in address order, the source loops that were not unrolled.
    A site outside loops runs once. None: a loop that runs zero times takes the code around it away too, and a guarded
    site depends on data.

    Raises ``BadInput`` XT7110 when the machine code has other loops than the source.
    """
    sources = spec.machine_loops(variant)
    loops: Sequence[Mapping[str, Any]] = sorted(entry["loops"], key=lambda loop: int(loop["head"]))
    if len(loops) != len(sources):
        raise BadInput(
            "XT7110", f"{len(loops)} loops in the machine code, {len(sources)} in the source", where=spec.entry
        )
    trips = {m["id"]: s.trips(shape, variant.constants, cta) for m, s in zip(loops, sources, strict=True)}
    if 0 in trips.values() or any(site.get("guard") for site in entry["sites"]):
        return None
    return sum(trips[site["loop"]] if site.get("loop") in trips else 1 for site in entry["sites"])
