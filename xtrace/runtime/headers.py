"""The header that a warp leaves when it exits: 32 bytes in a table, low halves of entry time and clocks only.

:func:`complete` gives full values for the checks of this room. The decoder (:mod:`xtrace.trace`) has its own,
for launches of any length.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from xtrace.trace.packets import lift
from xtrace.trace.tags import QUAD

__all__ = ["FULL", "TABLE", "complete"]

TABLE = np.dtype(
    [
        ("timer_entry", "<u4"),
        ("clock_entry", "<u4"),
        ("events_smid", "<u4"),  # events emitted modulo 2^24, shifted by 8, and the SM in the low 8 bits
        ("exit_pc", "<u4"),
        ("t_exit_ns", "<u8"),
        ("clock_exit", "<u4"),
        ("emitted_bytes", "<u4"),
    ]
)
"""An entry of the header table (docs/decisions/0001)."""

FULL = np.dtype(
    [
        ("ran", "?"),
        ("t_entry_ns", "<u8"),
        ("t_exit_ns", "<u8"),
        ("clock_entry", "<u8"),
        ("clock_exit", "<u8"),
        ("smid", "<u4"),
        ("emitted_bytes", "<u4"),
        ("events", "<u8"),
        ("exit_pc", "<u4"),
    ]
)

_EPOCH = 1 << 40  # keeps completed clocks positive; only differences on one SM mean anything


def complete(table: npt.NDArray[Any], stripe: int | None = None) -> npt.NDArray[Any]:
    """Full headers from table entries; ``stripe``: bytes of every packet, if they have one size.

    The global timer's upper half at entry follows from the exit (a warp lives less than 4.29 s). SM clocks have no
    upper half at all: those of one SM are placed within 2^31 cycles of its first exit (launches of less than a second).
    """
    out = np.zeros(len(table), FULL)
    each = 1 if stripe is None else stripe // QUAD
    ran = np.flatnonzero(table["t_exit_ns"])
    t = table[ran]
    exit_ns = t["t_exit_ns"]
    lived = (exit_ns.astype(np.uint32) - t["timer_entry"]).astype(np.uint64)  # modulo 2^32
    out["ran"][ran] = True
    out["t_exit_ns"][ran] = exit_ns
    out["t_entry_ns"][ran] = exit_ns - lived
    clock = np.zeros(len(ran), np.uint64)
    sms = t["events_smid"] & 0xFF
    for sm in np.unique(sms):
        mine = np.flatnonzero(sms == sm)
        first = t["clock_exit"][mine[np.argmin(exit_ns[mine])]]
        away = (t["clock_exit"][mine] - first).view(np.int32).astype(np.int64)
        clock[mine] = (_EPOCH + np.int64(first) + away).astype(np.uint64)
    out["clock_exit"][ran] = clock
    out["clock_entry"][ran] = clock - (t["clock_exit"] - t["clock_entry"]).astype(np.uint64)
    out["smid"][ran] = sms
    out["events"][ran] = lift(t["events_smid"] >> 8, t["emitted_bytes"] // QUAD, each)
    for name in ("emitted_bytes", "exit_pc"):
        out[name][ran] = t[name]
    return out
