"""Traced images of older versions: patched and launched beside new ones, to compare their times. Never decoded.

What an image expects of its buffer is in its trace map: where the addresses go, how far slots are apart, how large a
header is. How records lie in a slot only a reader has to know, and no reader is needed here: that outputs are the same
bits, that guard bands are intact and that something was written is checked all the same.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from typing import Any

from xtrace.errors import BadInput, Unsupported
from xtrace.runtime.buffers import SlotLayout, TraceBuffer
from xtrace.runtime.device import Device

__all__ = ["SCHEMAS", "older_image"]

SCHEMAS = ("xtrace/map/1", "xtrace/map/2", "xtrace/map/3", "xtrace/map/4", "xtrace/map/5", "xtrace/map/6")
"""Maps with rings at a multiple of the stride, headers that do not cross 4 GiB, and the same patched words."""

_U32 = struct.Struct("<I")
_FEW = 64  # slots of kernels that are not meant to run: enough to notice that they did


def older_image(
    device: Device, image: bytes, trace_map: Mapping[str, Any], main: str, slots: int
) -> tuple[bytes, dict[str, TraceBuffer]]:
    """The image patched to write to buffers of its own, one a traced kernel; ``main`` gets ``slots`` slots.

    Raises
    ------
    Unsupported
        XT5012: a map of a version that is not known here.
    BadInput
        XT5010: the map is not the image's, or a patch does not fit it.
    """
    if trace_map.get("schema") not in SCHEMAS:
        raise Unsupported("XT5012", f"a trace map of another version: {str(trace_map.get('schema'))[:40]!r}")
    if hashlib.sha256(image).hexdigest() != str(trace_map.get("output", {}).get("sha256", "")):
        raise BadInput("XT5010", "the image is not the one that the trace map describes (sha256 differs)")
    out = bytearray(image)
    buffers: dict[str, TraceBuffer] = {}
    try:
        for entry in trace_map["kernels"]:
            if entry.get("slot") is None or not entry.get("patches"):
                continue
            name, slot = str(entry["name"]), entry["slot"]
            layout = SlotLayout(*(int(slot[k]) for k in ("stride", "ring", "header_bytes", "record")))
            if not 0 < layout.ring <= layout.stride <= 1 << 24 or not 0 < layout.header_bytes <= 1 << 12:
                raise BadInput("XT5010", f"impossible slot layout {dict(slot)}", where=name)
            buffers[name] = TraceBuffer(device, layout, slots if name == main else _FEW)
            _patch(out, entry["patches"], buffers[name].target.words(), name)
    except BaseException:
        for buffer in buffers.values():
            buffer.free()
        raise
    return bytes(out), buffers


def _patch(out: bytearray, patches: list[Mapping[str, Any]], words: Mapping[str, int], name: str) -> None:
    for patch in patches:
        at, value = int(patch["offset"]), str(patch["value"])
        if value not in words:
            raise Unsupported("XT5012", f"the older image wants a value named {value[:40]!r}", where=name)
        if not 0 <= at <= len(out) - _U32.size or _U32.unpack_from(out, at)[0] != 0:
            raise BadInput("XT5010", f"no empty word at {at:#x} to patch", where=name)
        _U32.pack_into(out, at, words[value])
