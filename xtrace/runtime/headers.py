"""The per-warp header: what a warp says about itself when it leaves, in the two layouts that trace maps describe.

*Embedded*: 64 bytes inside the slot (the map's slot has a ``header`` offset). *Table*: 32 bytes per warp in an array
of their own, written at exit only; entry times and clocks are low halves, completed here. Everything behind this
module sees the embedded form.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["HEADER", "TABLE", "complete"]

HEADER = np.dtype(
    [
        ("t_entry_ns", "<u8"),
        ("clock_entry", "<u8"),
        ("smid", "<u4"),
        ("virtid", "<u4"),
        ("reserved", "<u8"),
        ("t_exit_ns", "<u8"),
        ("clock_exit", "<u8"),
        ("emitted_bytes", "<u4"),
        ("exit_pc", "<u4"),
        ("pad", "<u8"),
    ]
)
"""The 64 bytes of an embedded header."""

TABLE = np.dtype(
    [
        ("timer_entry", "<u4"),
        ("clock_entry", "<u4"),
        ("smid", "<u4"),
        ("exit_pc", "<u4"),
        ("t_exit_ns", "<u8"),
        ("clock_exit", "<u4"),
        ("emitted_bytes", "<u4"),
    ]
)
"""The 32 bytes of an entry of a header table."""

_EPOCH = np.uint64(1 << 40)  # keeps completed clocks positive; only differences on one SM mean anything


def complete(table: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Embedded headers from table entries.

    The global timer's upper half at entry follows from the exit (a warp lives less than 4.29 s). SM clocks have no
    upper half at all: those of one SM are placed within 2^31 cycles of its first exit (launches of less than a second).
    """
    out = np.zeros(len(table), HEADER)
    ran = np.flatnonzero(table["t_exit_ns"])
    t = table[ran]
    exit_ns = t["t_exit_ns"]
    lived = (exit_ns.astype(np.uint32) - t["timer_entry"]).astype(np.uint64)  # modulo 2^32
    out["t_exit_ns"][ran] = exit_ns
    out["t_entry_ns"][ran] = exit_ns - lived
    clock = np.zeros(len(ran), np.uint64)
    for sm in np.unique(t["smid"]):
        mine = np.flatnonzero(t["smid"] == sm)
        first = t["clock_exit"][mine[np.argmin(exit_ns[mine])]]
        away = (t["clock_exit"][mine] - first).view(np.int32).astype(np.int64)
        clock[mine] = (np.int64(_EPOCH) + np.int64(first) + away).astype(np.uint64)
    out["clock_exit"][ran] = clock
    out["clock_entry"][ran] = clock - (t["clock_exit"] - t["clock_entry"]).astype(np.uint64)
    for name in ("smid", "emitted_bytes", "exit_pc"):
        out[name][ran] = t[name]
    return out
