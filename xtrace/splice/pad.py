"""The pad control: a traced image whose probes are NOPs.

It has the size, the addresses and the register count of the traced image, and every kernel word of it, but inserts
nothing except instructions that do nothing. What it costs is what moving and padding the code costs; an arm of its own
in a measurement, it tells the effect of the layout from that of the probes (the flag LAYOUT_SHIFT).
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from xtrace.errors import BadInput
from xtrace.image import Image, parse
from xtrace.isa.model import Control
from xtrace.isa.nvidia import control, encode

from .apply import SpliceResult

__all__ = ["inserted_words", "pad"]

_WORD = 16
_TRACE_KEYS = ("sites", "patches", "packets", "probe_registers")  # what a map says about a trace
_NOP = control.replace(encode.nop().word, Control(1, False, None, None, 0, 0))  # one cycle, waits for nothing


def inserted_words(image: Image, trace_map: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """``(kernel, file offset)`` of every word that the map says was inserted into ``image``.

    Raises
    ------
    BadInput
        XT3050: the map belongs to another image, or an island of it lies outside its kernel.
    """
    if trace_map.get("output", {}).get("sha256") != image.sha256:
        raise BadInput("XT3050", "the trace map belongs to another image", where=image.name, hint="pass OUT.map.json")
    for entry in trace_map["kernels"]:
        kernel = image.kernel(entry["name"])
        before = 0
        for island in sorted(entry["islands"], key=lambda x: int(x["pc"])):
            first = int(island["pc"]) + before * _WORD
            words = int(island["words"])
            if first % _WORD or words < 0 or first < 0 or first + words * _WORD > len(kernel.text):
                raise BadInput("XT3050", f"an island at {first:#x} lies outside the kernel", where=kernel.name)
            yield from ((kernel.name, kernel.offset + first + k * _WORD) for k in range(words))
            before += words


def pad(traced: bytes, trace_map: Mapping[str, Any], name: str = "traced image") -> SpliceResult:
    """The pad image of a traced image, and its map: the same islands, but no site, no slot and nothing to patch.

    Raises the errors of :func:`inserted_words` and those of :func:`xtrace.image.parse`.
    """
    image = parse(traced, name)
    out = bytearray(traced)
    nop = _NOP.to_bytes(_WORD, "little")
    for _, at in inserted_words(image, trace_map):
        out[at : at + _WORD] = nop
    data = bytes(out)
    padded = copy.deepcopy(dict(trace_map))
    padded["output"] = {"sha256": hashlib.sha256(data).hexdigest()}
    padded["probes"] = f"pad of {trace_map.get('probes', '')}"
    for entry in padded["kernels"]:
        entry |= {"slot": None} | {key: [] for key in _TRACE_KEYS if key in entry}
        entry.pop("sample", None)  # the branch of the decision is a NOP, too: every warp runs the padded code
        for island in entry["islands"]:
            island["kind"] = "pad"
    return SpliceResult(data, padded)
