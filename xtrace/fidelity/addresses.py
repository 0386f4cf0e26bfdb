"""The old-to-new address map of a traced image, read from its trace map."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xtrace.errors import BadInput
from xtrace.isa.model import Instruction

if TYPE_CHECKING:
    from xtrace.image import Image

__all__ = ["AddressMap", "address_maps", "belongs", "read_map"]

SCHEMAS = tuple(f"xtrace/map/{n}" for n in range(1, 7))  # what this module reads of them is the same
MAX_MAP_BYTES = 1 << 28


def read_map(path: str | Path) -> dict[str, Any]:
    """A trace map from its JSON file; BadInput XT4203 if that is not what it holds."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_MAP_BYTES + 1)
    except OSError as error:
        raise BadInput("XT4203", f"cannot read the trace map: {error.strerror}", where=str(path)) from error
    if len(data) > MAX_MAP_BYTES:
        raise BadInput("XT4203", f"a trace map of more than {MAX_MAP_BYTES >> 20} MiB", where=str(path))
    try:
        loaded = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadInput("XT4203", "the trace map is not JSON", where=str(path)) from error
    if not isinstance(loaded, dict):
        raise BadInput("XT4203", "the trace map is not a JSON object", where=str(path))
    return loaded


class AddressMap:
    """Where each original instruction of one kernel stands in the traced image.

    Parameters
    ----------
    islands
        ``(pc, words)`` of the inserted code, sorted by ``pc``; each stands before the original
        instruction at ``pc``.
    word_bytes
        Size of an instruction word.
    sites
        Number of probe sites that record an event; where none does, of entry and exit sites.
    """

    def __init__(self, islands: Sequence[tuple[int, int]], *, word_bytes: int = 16, sites: int | None = None) -> None:
        self._pcs = [pc for pc, _ in islands]
        self._grown = [0, *accumulate(words * word_bytes for _, words in islands)]
        self.sites = sites

    def new_pc(self, old: int) -> int:
        """New offset of the original instruction at ``old``."""
        return old + self._grown[bisect_right(self._pcs, old)]

    def pairs(self, a: Sequence[Instruction], b: Sequence[Instruction]) -> list[tuple[int, int]]:
        """Index pairs of the original ``a`` and the traced ``b``; BadInput XT4205 if the code is too short."""
        index_of = {ins.pc: k for k, ins in enumerate(b)}
        result = []
        for i, ins in enumerate(a):
            j = index_of.get(self.new_pc(ins.pc))
            if j is None:
                raise BadInput(
                    "XT4205",
                    f"the map sends instruction {ins.pc:#x} to {self.new_pc(ins.pc):#x}, where no instruction is",
                    hint="the map does not belong to this image",
                )
            result.append((i, j))
        return result


def belongs(trace_map: object, original: Image, other: Image) -> bool:
    """Whether the map's hashes name exactly these two images."""
    if not isinstance(trace_map, Mapping) or trace_map.get("schema") not in SCHEMAS:
        return False
    source, output = trace_map.get("input"), trace_map.get("output")
    if not isinstance(source, Mapping) or not isinstance(output, Mapping):
        return False
    return bool(source.get("sha256") == original.sha256 and output.get("sha256") == other.sha256)


def address_maps(trace_map: Mapping[str, Any], original: Image, other: Image) -> dict[str, AddressMap]:
    """Address map per kernel name.

    Raises
    ------
    BadInput
        XT4203 malformed, XT4204 belongs to other files.
    """
    if not isinstance(trace_map, Mapping) or trace_map.get("schema") not in SCHEMAS:
        raise _malformed(f"no trace map of schema {SCHEMAS[0]}")
    if not belongs(trace_map, original, other):
        raise BadInput(
            "XT4204",
            "the map was written for other files",
            where=f"{original.name}, {other.name}",
            hint="give the map that was written together with the traced image",
        )
    kernels = trace_map.get("kernels")
    if not isinstance(kernels, list):
        raise _malformed("'kernels' is not a list")
    result = {}
    for entry in kernels:
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
            raise _malformed("a kernel without a name")
        sites = entry.get("sites", [])
        result[entry["name"]] = AddressMap(_islands(entry), sites=_site_count(sites))
    return result


def _islands(entry: Mapping[str, Any]) -> list[tuple[int, int]]:
    raw = entry.get("islands")
    if not isinstance(raw, list):
        raise _malformed(f"kernel {entry['name']}: 'islands' is not a list")
    islands: list[tuple[int, int]] = []
    for item in raw:
        pc, words = (item.get("pc"), item.get("words")) if isinstance(item, Mapping) else (None, None)
        if type(pc) is not int or type(words) is not int or not (0 <= pc < 1 << 40 and 0 < words < 1 << 24):
            raise _malformed(f"kernel {entry['name']}: an island needs 'pc' and a positive 'words'")
        if islands and pc <= islands[-1][0]:
            raise _malformed(f"kernel {entry['name']}: islands are not sorted by pc")
        islands.append((pc, words))
    return _with_copy(entry, islands)


def _with_copy(entry: Mapping[str, Any], islands: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """A second copy of the code stands behind the entry's island."""
    if (copy := entry.get("copy")) is None:
        return islands
    words = copy.get("words") if isinstance(copy, Mapping) else None
    if type(words) is not int or not 0 < words < 1 << 24 or not islands or islands[0][0] != 0:
        raise _malformed(f"kernel {entry['name']}: a copy needs 'words', and an island at the entry")
    return [(0, islands[0][1] + words), *islands[1:]]


def _malformed(what: str) -> BadInput:
    return BadInput("XT4203", f"malformed trace map: {what}", hint="write it again with `xtrace splice`")


def _site_count(sites: object) -> int | None:
    """Entry and exit are part of every traced image; they count only where they are all there is."""
    if not isinstance(sites, list):
        return None
    events = sum(1 for site in sites if isinstance(site, dict) and site.get("id") is not None)
    return events or len(sites)
