"""The Python API: the command line's verbs as functions.

import xtrace
image = xtrace.load("attention.cubin")
result = xtrace.splice(image, probes="pp")
assert xtrace.verify(image, result).ok
"""

from __future__ import annotations

from typing import Any

from xtrace.fidelity import KernelPreservation, compare
from xtrace.image import Image, load, parse
from xtrace.sampling import Sampling
from xtrace.splice import Options, Plan, SpliceResult, apply
from xtrace.splice import plan as _plan
from xtrace.trace import TraceTables
from xtrace.trace import decode as _decode
from xtrace.verify import Certificate
from xtrace.verify import verify as _verify

__all__ = ["diff", "load", "plan", "splice", "trace", "verify"]


def plan(
    image: Image, kernel: str = "*", probes: str = "pp", *, records: int = 2048, sample: str | None = None
) -> Plan:
    """Dry run: every site of the selected kernels, placed or refused with a reason. See :func:`xtrace.splice.plan`.

    ``sample`` is a rule such as ``"cta=8,warpgroup=1"`` (:meth:`xtrace.sampling.Sampling.parse`); None: all warps.
    """
    rule = None if sample is None else Sampling.parse(sample)
    return _plan(image, image.select(kernel), probes, Options(records, sample=rule))


def splice(
    image: Image, kernel: str = "*", probes: str = "pp", *, records: int = 2048, sample: str | None = None
) -> SpliceResult:
    """The traced image and its trace map. See :func:`xtrace.splice.apply` for the errors raised."""
    return apply(plan(image, kernel, probes, records=records, sample=sample))


def verify(original: Image, traced: SpliceResult | bytes, trace_map: dict[str, Any] | None = None) -> Certificate:
    """Check the promises on the two images alone. Without a map some are NOT-CHECKED."""
    if isinstance(traced, SpliceResult):
        return _verify(original.data, traced.data, trace_map or traced.map)
    return _verify(original.data, traced, trace_map)


def diff(
    original: Image, other: Image | SpliceResult, kernel: str = "*", trace_map: dict[str, Any] | None = None
) -> list[KernelPreservation]:
    """Preservation of each kernel of ``original`` in ``other``, at all levels."""
    if isinstance(other, SpliceResult):
        return compare(original, parse(other.data, original.name), kernel, trace_map or other.map)
    return compare(original, other, kernel, trace_map)


def trace(buffer: bytes, trace_map: dict[str, Any], kernel: str, **shape: Any) -> TraceTables:
    """Tables of events and warps from a trace buffer's bytes; ``grid`` and ``block`` as launched."""
    return _decode(buffer, trace_map, kernel, **shape)
