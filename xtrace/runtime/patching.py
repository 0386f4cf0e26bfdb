"""Put the trace buffer's address and size into a traced image. Pure: bytes and a trace map in, bytes out."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from xtrace.errors import BadInput
from xtrace.trace.layout import SCHEMAS

__all__ = ["BufferTarget", "kernel_entry", "patch_image"]

_U32 = struct.Struct("<I")
_STRIPES_ONLY = "stripe_slots"  # in no other image
_OPTIONAL = "header_policy"
_KEEP_IN_L2 = 0x14F00000  # upper half of a descriptor: what createpolicy.fractional.L2::evict_last makes of 1.0 (sm_90)


@dataclass(frozen=True)
class BufferTarget:
    """Where a kernel's warps write: device addresses of slot 0 and of the header table, and the number of slots.

    The spill-over slot behind them (and its header) is not counted. ``keep``: ask L2 to keep lines of the table
    longest, for tables that leave room for the kernel's data.
    """

    address: int
    slots: int
    table: int
    keep: bool = False

    def words(self) -> dict[str, int]:
        """Value of every kind of patch. A stripe has a packet of each slot, the spill-over slot included."""
        return {
            "buffer_lo": self.address & 0xFFFFFFFF,
            "buffer_hi": self.address >> 32,
            "header_lo": self.table & 0xFFFFFFFF,
            "header_hi": self.table >> 32,
            "slot_count": self.slots,
            "stripe_slots": self.slots + 1,
            "header_policy": _KEEP_IN_L2 if self.keep else 0,
        }


def kernel_entry(trace_map: Mapping[str, Any], kernel: str) -> Mapping[str, Any]:
    """The map's entry of ``kernel`` (mangled or demangled name); ``BadInput`` XT5010 when there is none."""
    schema = trace_map.get("schema")
    if schema not in SCHEMAS:
        old = schema == "xtrace/map/1"
        hint = "splice the kernel again with this version" if old else "pass OUT.map.json"
        what = "a trace map of an older version" if old else "not a trace map"
        raise BadInput("XT5010", f"{what}: schema is {schema!r}", hint=hint)
    for entry in trace_map.get("kernels", ()):
        if kernel in (entry.get("name"), entry.get("demangled")):
            found: Mapping[str, Any] = entry
            return found
    names = ", ".join(str(e.get("name")) for e in trace_map.get("kernels", ()))
    raise BadInput("XT5010", f"the trace map has no kernel {kernel!r}", hint=f"it has: {names[:300]}")


def patch_image(image: bytes, trace_map: Mapping[str, Any], targets: Mapping[str, BufferTarget]) -> bytes:
    """A copy of ``image`` whose kernels named in ``targets`` write to these buffers.

    Kernels of the map that are not in ``targets`` stay unpatched and write nothing.

    Raises
    ------
    BadInput
        XT5010: the image is not the one that the map describes, it is patched already, or a patch lies outside it.
        XT5011: an address that is not a multiple of the slot stride, a slot count that cannot be, or a header table
        that crosses a 4 GiB boundary (probe code adds to the low half of its address only).
    """
    wanted = str(trace_map.get("output", {}).get("sha256", ""))
    if hashlib.sha256(image).hexdigest() != wanted:
        raise BadInput(
            "XT5010",
            "the image is not the one that the trace map describes (sha256 differs)",
            hint="pass the unpatched output of xtrace splice and the map written beside it",
        )
    out = bytearray(image)
    for name, target in targets.items():
        entry = kernel_entry(trace_map, name)
        if entry.get("slot") is None:
            raise BadInput("XT5010", "this kernel was not traced", where=name, hint="splice it, or choose another")
        _check_target(target, entry["slot"], name)
        words = target.words()
        if entry["slot"].get("stripe") is None:
            del words[_STRIPES_ONLY]
        missing = set(words) - {_OPTIONAL}
        if not entry["packets"]:  # then there is no ring
            missing -= {"buffer_lo", "buffer_hi"}
        for patch in entry["patches"]:
            offset, value = int(patch["offset"]), str(patch["value"])
            if value not in words:
                raise BadInput("XT5010", f"unknown patch value {value!r}", where=name)
            if not 0 <= offset <= len(out) - _U32.size:
                raise BadInput("XT5010", f"patch offset {offset:#x} lies outside the image", where=name)
            if _U32.unpack_from(out, offset)[0] != 0:
                raise BadInput(
                    "XT5010", f"the word at {offset:#x} is not zero", where=name, hint="is it patched twice?"
                )
            _U32.pack_into(out, offset, words[value])
            missing.discard(value)
        if missing:
            raise BadInput("XT5010", f"the trace map has no patch for {', '.join(sorted(missing))}", where=name)
    return bytes(out)


def _check_target(target: BufferTarget, slot: Mapping[str, Any], name: str) -> None:
    stride = int(slot["stride"])
    if stride <= 0:
        raise BadInput("XT5010", f"slot stride {stride} in the trace map", where=name)
    if target.address <= 0 or target.address >> 64 or target.address % stride:
        raise BadInput(
            "XT5011", f"buffer address {target.address:#x} is not a multiple of the slot stride {stride}", where=name
        )
    if not 0 < target.slots < 1 << 31 or (target.address + (target.slots + 1) * stride) >> 64:
        raise BadInput("XT5011", f"slot count {target.slots} is out of range", where=name)
    size = int(slot["header_bytes"])
    last = target.table + (target.slots + 1) * size - 1
    if target.table <= 0 or size <= 0 or target.table % size or target.table >> 32 != last >> 32:
        raise BadInput(
            "XT5011", f"the header table at {target.table:#x} is misaligned or crosses a 4 GiB boundary", where=name
        )
