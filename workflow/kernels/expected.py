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
    """Records in the ring of one warp of CTA ``cta`` (linear index, x fastest), or None where trips do not tell.

    ``entry`` is the kernel's entry of a trace map (``sites`` with ``id`` and ``loop``, ``loops`` with ``id`` and
    ``head``). The natural loops of the machine code are, in address order, the source loops that were not unrolled;
    a site outside loops runs once. Sites without an id (entry and exit) write the header, not the ring. None: a loop
    that runs zero times takes some of the code around it away too.

    Raises ``BadInput`` XT7110 when the machine code has other loops than the source.
    """
    sources = spec.machine_loops(variant)
    loops: Sequence[Mapping[str, Any]] = sorted(entry["loops"], key=lambda loop: int(loop["head"]))
    if len(loops) != len(sources):
        raise BadInput(
            "XT7110", f"{len(loops)} loops in the machine code, {len(sources)} in the source", where=spec.entry
        )
    trips = {m["id"]: s.trips(shape, variant.constants, cta) for m, s in zip(loops, sources, strict=True)}
    if 0 in trips.values():
        return None
    return sum(trips.get(site["loop"], 1) for site in entry["sites"] if site["id"] is not None)
