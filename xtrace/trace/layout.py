"""What a trace map says about one kernel's buffer, checked before any byte is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xtrace.errors import BadInput, Unsupported

__all__ = ["HEADER_BYTES", "KernelLayout", "Site", "cta_shape", "kernel_layout"]

SCHEMA = "xtrace/map/1"
MAX_SITES = 1 << 20
MAX_SLACK_BYTES = 512
HEADER_BYTES = 32  # per slot, in the table behind the rings


@dataclass(frozen=True, slots=True)
class Site:
    """One probe site as the trace map lists it; ``pc`` is the byte offset in the original kernel."""

    id: int
    phase: str
    op: str
    pc: int


@dataclass(frozen=True)
class KernelLayout:
    """Geometry of one warp's slot, in bytes, and the sites whose records may appear in it.

    ``ring`` bytes of records from the slot's start, then some slack for a group of records that runs past
    the ring's end. The headers form a table of their own behind all slots.
    """

    name: str
    demangled: str
    stride: int
    ring: int
    sites: tuple[Site, ...]
    block: tuple[int, int, int] | None

    @property
    def capacity(self) -> int:
        """Records that a slot keeps."""
        return self.ring // 8

    @property
    def slack(self) -> int:
        """Records that may stand behind the ring's end."""
        return min(self.stride - self.ring, MAX_SLACK_BYTES) // 8


def kernel_layout(trace_map: Mapping[str, Any], kernel: str) -> KernelLayout:
    """The layout of ``kernel`` (mangled or demangled name) in a trace map.

    Raises
    ------
    BadInput
        XT8101 malformed map, XT8102 the map has no such kernel, XT8105 the kernel was not traced.
    Unsupported
        XT8103 a record size that this version does not read.
    """
    if not isinstance(trace_map, Mapping) or trace_map.get("schema") != SCHEMA:
        raise _malformed(f"no trace map of schema {SCHEMA}")
    kernels = trace_map.get("kernels")
    if not isinstance(kernels, list) or not all(isinstance(k, Mapping) for k in kernels):
        raise _malformed("'kernels' is not a list of objects")
    for key in ("name", "demangled"):
        for entry in kernels:
            if entry.get(key) == kernel and isinstance(kernel, str):
                return _layout(entry)
    names = ", ".join(str(k.get("name")) for k in kernels[:8]) or "none"
    raise BadInput("XT8102", f"the trace map has no kernel {str(kernel)[:200]}", hint=f"kernels in the map: {names}")


def cta_shape(value: object, what: str, limit: int) -> tuple[int, int, int]:
    """One to three positive sizes as ``(x, y, z)``; BadInput XT8104 if they are not."""
    sizes = [value] if isinstance(value, int) else value
    if not isinstance(sizes, Sequence) or isinstance(sizes, str | bytes) or not 1 <= len(sizes) <= 3:
        raise BadInput("XT8104", f"{what} must be one to three sizes")
    numbers = [*sizes, 1, 1][:3]
    if any(type(n) is not int or n < 1 for n in numbers):
        raise BadInput("XT8104", f"{what} must hold positive whole numbers")
    x, y, z = numbers
    if x * y * z > limit:
        raise BadInput("XT8104", f"{what} {x} x {y} x {z} is larger than {limit}")
    return x, y, z


def _layout(entry: Mapping[str, Any]) -> KernelLayout:
    name, demangled = entry.get("name"), entry.get("demangled", "")
    if not isinstance(name, str) or not isinstance(demangled, str):
        raise _malformed("a kernel's name is not text")
    slot = entry.get("slot")
    if slot is None:
        raise BadInput(
            "XT8105",
            "the map gives this kernel no trace buffer: it was not traced",
            where=name,
            hint="splice this kernel, or choose another one",
        )
    if not isinstance(slot, Mapping):
        raise _malformed(f"kernel {name}: no 'slot'")
    stride, ring = _number(slot, "stride", name), _number(slot, "ring", name)
    header_bytes = _number(slot, "header_bytes", name)
    record = _number(slot, "record", name)
    if record != 8:
        raise Unsupported("XT8103", f"records of {record} bytes", where=name, hint="this version reads 8-byte records")
    if ring < 8 or any(n % 8 for n in (stride, ring)):
        raise _malformed(f"kernel {name}: slot sizes must be positive multiples of 8")
    if ring > stride:
        raise _malformed(f"kernel {name}: the ring is larger than the stride of its slot")
    if header_bytes != HEADER_BYTES:
        raise _malformed(f"kernel {name}: headers of {header_bytes} bytes instead of {HEADER_BYTES}")
    block = entry.get("block")
    return KernelLayout(
        name=name,
        demangled=demangled or name,
        stride=stride,
        ring=ring,
        sites=_sites(entry, name),
        block=None if block is None else cta_shape(block, "the map's block", 1024),
    )


def _sites(entry: Mapping[str, Any], name: str) -> tuple[Site, ...]:
    raw = entry.get("sites")
    if not isinstance(raw, list) or len(raw) > MAX_SITES:
        raise _malformed(f"kernel {name}: 'sites' is not a list of at most {MAX_SITES}")
    sites: dict[int, Site] = {}
    for item in raw:
        if not isinstance(item, Mapping):
            raise _malformed(f"kernel {name}: a site is not an object")
        if item.get("id") is None and item.get("kind") in ("entry", "exit"):
            continue  # kept in the warp's header, not in records
        number, pc = item.get("id"), item.get("pc")
        op, phase = item.get("op"), item.get("phase")
        if type(number) is not int or not 1 <= number < 1 << 32 or number in sites:
            raise _malformed(f"kernel {name}: site ids must be distinct and between 1 and 2**32 - 1")
        if type(pc) is not int or not 0 <= pc < 1 << 31:
            raise _malformed(f"kernel {name}: site {number} has no valid 'pc'")
        if not isinstance(op, str) or not isinstance(phase, str):
            raise _malformed(f"kernel {name}: site {number} needs texts 'op' and 'phase'")
        sites[number] = Site(number, phase, op, pc)
    return tuple(sites[number] for number in sorted(sites))


def _number(slot: Mapping[str, Any], key: str, name: str) -> int:
    value = slot.get(key)
    if type(value) is not int or not 0 <= value <= 1 << 40:
        raise _malformed(f"kernel {name}: slot '{key}' is not a size in bytes")
    return value


def _malformed(what: str) -> BadInput:
    return BadInput("XT8101", f"malformed trace map: {what}", hint="use the map written together with the traced image")
