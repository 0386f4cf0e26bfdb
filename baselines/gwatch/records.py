"""What a G-Watch image left in its buffer (warp-level records, layout as the wheel documents it).

A warp owns one block: a header, then a run of 32-bit words, each a clock value above ``id_bits`` bits that hold the
site's number (from 1). A zero word was never written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from xtrace.errors import BadInput

__all__ = ["WarpRecords", "read_records"]


@dataclass(frozen=True)
class WarpRecords:
    """Counts over all warps. ``stray``: words whose site number no site has; ``full``: warps that used their whole
    block (there is no bounds check: later records went into the next warp's block)."""

    per_site: Mapping[int, int]
    stray: int
    full: int
    silent: int  # warps without any record
    backwards: int  # warps in which the clock of a record is behind that of the one before

    @property
    def total(self) -> int:
        return sum(self.per_site.values())


def read_records(data: bytes, record: Mapping[str, Any], warps: int) -> WarpRecords:
    """``record``: the entry of that name in ``result.json``.

    Raises ``BadInput`` XT7363 when ``data`` is not ``warps`` blocks long.
    """
    block, header, bits = int(record["block_bytes"]), int(record["header_bytes"]), int(record["id_bits"])
    if len(data) < warps * block or record["bytes"] != 4:
        raise BadInput("XT7363", f"{len(data)} bytes are not {warps} blocks of {block}")
    words = np.frombuffer(data, "<u4", warps * block // 4).reshape(warps, block // 4)[:, header // 4 :]
    words = words[:, : int(record["capacity"])]
    ids = words & ((1 << bits) - 1)
    sites = [int(n) for n in record["pcs"]]
    known = (words != 0) & np.isin(ids, sites)
    counts = np.bincount(ids[known], minlength=max(sites, default=0) + 1)
    # Clocks wrap: the difference of neighbours is taken modulo the field, above the site bits.
    clock = words & np.uint32(~((1 << bits) - 1) & 0xFFFFFFFF)
    step = (clock[:, 1:] - clock[:, :-1]).view(np.int32)
    back = (step < 0) & known[:, 1:] & known[:, :-1]
    return WarpRecords(
        per_site={n: int(counts[n]) for n in sites},
        stray=int(np.count_nonzero((words != 0) & ~known)),
        full=int(np.count_nonzero((words != 0).all(axis=1))),
        silent=int(np.count_nonzero(~known.any(axis=1))),
        backwards=int(np.count_nonzero(back.any(axis=1))),
    )
