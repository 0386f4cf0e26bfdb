"""The pad control: a traced image whose probes are NOPs, all of them or only the stores.

It has the size, the addresses and the register count of the traced image, and every kernel word of it, but inserts
nothing except instructions that do nothing (and, in a sampled kernel, the branch over its copy). What it costs is what
moving and padding the code costs; an arm of its own in a measurement, it tells the effect of the layout from that of
the probes (the flag LAYOUT_SHIFT). NOPs that take as long as what they stand for show what its stalls are worth, and
NOPs for the stores alone what memory is.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any

from xtrace.errors import BadInput
from xtrace.image import Image, parse
from xtrace.isa.model import Control
from xtrace.isa.nvidia import control, encode

from .apply import SpliceResult

__all__ = ["Padding", "inserted_islands", "pad"]

_WORD = 16
_TRACE_KEYS = ("sites", "patches", "packets", "probe_registers")  # what a map says about a trace
_STG = 0x986  # low twelve bits of a store
_WAY_OVER = 0x7947  # low sixteen bits of a branch that all take: over the copy of a sampled kernel
_STORED_KEYS = ("slot", "sites", "patches", "packets")  # what a map says about what is stored


class Padding(Enum):
    """What becomes of an inserted word."""

    NOPS = "a NOP of one cycle that waits for nothing"
    STALLS = "a NOP that takes as many cycles, and waits for nothing"
    UNSTORED = "what it is; a store a NOP that takes as many cycles, and no word of its island waits for it"


def _claim(word: int) -> int:
    """The scoreboard that a store claims, as a mask."""
    read_sb = control.decode(word).read_sb if word & 0xFFF == _STG else None
    return 0 if read_sb is None else 1 << read_sb


def _padded(word: int, padding: Padding, claimed: int) -> int:
    """``claimed``: scoreboards that stores of the island have claimed so far, this one among them."""
    own = control.decode(word)
    if word & 0xFFFF == _WAY_OVER:
        return word
    match padding:
        case Padding.NOPS:
            kept = Control(1, False, None, None, 0, 0)
        case Padding.STALLS:
            kept = Control(own.stall, own.yields, None, None, 0, 0)
        case Padding.UNSTORED:
            own = replace(own, wait_mask=own.wait_mask & ~claimed)
            if word & 0xFFF != _STG:
                return control.replace(word, own)
            kept = replace(own, write_sb=None, read_sb=None, reuse=0)
    return control.replace(encode.nop().word, kept)


def inserted_islands(image: Image, trace_map: Mapping[str, Any]) -> Iterator[tuple[str, int, range]]:
    """``(kernel, pc of the site in the original, file offsets of its words)`` of all that the map says was inserted.

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
            start = kernel.offset + first
            yield kernel.name, int(island["pc"]), range(start, start + words * _WORD, _WORD)
            before += words
            if not island["pc"] and entry.get("copy"):
                before += int(entry["copy"]["words"])  # it stands behind the entry's island


def pad(
    traced: bytes, trace_map: Mapping[str, Any], name: str = "traced image", padding: Padding = Padding.NOPS
) -> SpliceResult:
    """The pad image of a traced image, and its map: the same islands, but no site, no slot and nothing to patch.

    Raises the errors of :func:`inserted_islands` and those of :func:`xtrace.image.parse`.
    """
    image = parse(traced, name)
    out = bytearray(traced)
    for _, _, island in inserted_islands(image, trace_map):
        claimed = 0
        for at in island:
            word = int.from_bytes(traced[at : at + _WORD], "little")
            claimed |= _claim(word)
            out[at : at + _WORD] = _padded(word, padding, claimed).to_bytes(_WORD, "little")
    data = bytes(out)
    padded = copy.deepcopy(dict(trace_map))
    padded["output"] = {"sha256": hashlib.sha256(data).hexdigest()}
    padded["probes"] = f"pad of {trace_map.get('probes', '')}"
    for entry in padded["kernels"]:
        gone = _STORED_KEYS if padding is Padding.UNSTORED else _TRACE_KEYS
        entry |= {"slot": None} | {key: [] for key in gone if key in entry and key != "slot"}
        if padding is not Padding.UNSTORED:
            entry.pop("sample", None)  # the decision's branch is a NOP: every warp runs the padded code
        for listed in entry["islands"]:
            listed["kind"] = "pad"
    return SpliceResult(data, padded)
