"""The trace buffer in device memory: allocation between guard bands, zeroing, and a read-back that copies only what
was written. Layout: docs/decisions/0001 (one slot per warp, a ring of records, a header)."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from xtrace.errors import BadInput, XtraceError
from xtrace.runtime.device import Device
from xtrace.runtime.patching import BufferTarget

__all__ = ["HEADER", "SlotLayout", "TraceBuffer", "TraceBytes"]

GUARD_BYTES = 1 << 20
GUARD_PATTERN = 0xA5
MAX_HOST_BYTES = 16 << 30
_ROWS_AT_ONCE = 4096
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
"""The 64 bytes of a slot's header."""


@dataclass(frozen=True)
class SlotLayout:
    """Byte layout of a slot, the ``slot`` object of a trace map."""

    stride: int
    ring: int
    header: int
    record: int = 8
    header_bytes: int = 64

    @classmethod
    def of(cls, slot: Mapping[str, Any]) -> SlotLayout:
        """Checked layout; ``BadInput`` XT5010 if the parts do not fit into the stride."""
        layout = cls(
            **{k: int(slot[k]) for k in ("stride", "ring", "header")}, **{k: int(slot[k]) for k in slot if k in _REST}
        )
        fits = 0 < layout.ring <= layout.header and layout.header + layout.header_bytes <= layout.stride
        if not fits or layout.record != 8 or layout.header_bytes < HEADER.itemsize or layout.ring % 8:
            raise BadInput("XT5010", f"impossible slot layout {dict(slot)}", where="trace map")
        return layout


_REST = ("record", "header_bytes")


@dataclass(frozen=True)
class TraceBytes:
    """What a launch wrote: a buffer image with the same structure but smaller slots.

    ``slot`` is the layout of ``data``; where no ring overflowed the ring is cut to the longest one used.
    ``data`` ends with the spill-over slot, of which only the header is copied: ``spilled`` says that warps beyond the
    buffer's slots ran.
    """

    data: bytes
    slot: SlotLayout
    slots: int
    spilled: bool

    def rows(self) -> npt.NDArray[np.uint8]:
        """The slots (without the spill-over slot) as a two-dimensional byte array."""
        return np.frombuffer(self.data, np.uint8).reshape(self.slots + 1, self.slot.stride)[:-1]

    def headers(self) -> npt.NDArray[Any]:
        """The headers as a structured array (:data:`HEADER`)."""
        at = self.slot.header
        part: npt.NDArray[Any] = np.ascontiguousarray(self.rows()[:, at : at + HEADER.itemsize])
        return part.view(HEADER).reshape(self.slots)

    def first(self, slots: int) -> TraceBytes:
        """The leading slots only."""
        n = max(0, min(slots, self.slots))
        size = self.slot.stride
        return TraceBytes(self.data[: n * size] + self.data[-size:], self.slot, n, self.spilled)

    def map_for(self, trace_map: Mapping[str, Any], kernel: str, block: Sequence[int] | None = None) -> dict[str, Any]:
        """A copy of the trace map in which ``kernel`` has this layout, as ``xtrace.trace.decode`` needs it.

        ``block``, the CTA's size in threads, lets the decoder split slot numbers into CTA and warp.
        """
        out: dict[str, Any] = copy.deepcopy(dict(trace_map))
        for entry in out["kernels"]:
            if kernel in (entry.get("name"), entry.get("demangled")):
                entry["slot"] = {
                    "stride": self.slot.stride,
                    "ring": self.slot.ring,
                    "record": self.slot.record,
                    "header": self.slot.header,
                    "header_bytes": self.slot.header_bytes,
                }
                if block is not None:
                    entry["block"] = list(block)
        return out


class TraceBuffer:
    """``slots`` slots and the spill-over slot in device memory, aligned to the stride, between two guard bands.

    Use as a context manager, or call :meth:`free`.
    """

    def __init__(self, device: Device, slot: SlotLayout, slots: int) -> None:
        if not 0 < slots < 1 << 31:
            raise BadInput("XT5011", f"a trace buffer of {slots} slots", hint="one slot per warp of the launch")
        self._device = device
        self.slot = slot
        self.slots = slots
        self.size = (slots + 1) * slot.stride
        self._raw = device.allocate(self.size + 2 * GUARD_BYTES + slot.stride)
        self.address = -(-(self._raw + GUARD_BYTES) // slot.stride) * slot.stride
        self._guards = (
            (self.address - GUARD_BYTES, GUARD_BYTES),
            (self.address + self.size, GUARD_BYTES),
        )
        for address, size in self._guards:
            device.fill(address, size, GUARD_PATTERN)
        self.zero()

    @property
    def target(self) -> BufferTarget:
        return BufferTarget(self.address, self.slots)

    def zero(self) -> None:
        """Clear all slots; needed before every launch whose trace will be read."""
        self._device.fill(self.address, self.size, 0)

    def guards_intact(self) -> bool:
        """Whether nothing wrote outside the buffer's slots (as far as the guard bands reach)."""
        pattern = bytes([GUARD_PATTERN])
        return all(self._device.download(address, size) == pattern * size for address, size in self._guards)

    def untouched(self) -> bool:
        """Whether no warp has reported: what an original or unpatched kernel must leave behind."""
        return not self._headers()["t_entry_ns"].any()

    def _headers(self) -> npt.NDArray[Any]:
        s = self.slot
        raw = self._device.download_rows(self.address + s.header, s.stride, HEADER.itemsize, self.slots + 1)
        return np.frombuffer(raw, HEADER)

    def read(self) -> TraceBytes:
        """Copy back headers first, then of each ring only as much as its warp used.

        Call after the launch was synchronised. Raises ``XtraceError`` XT5012 if a guard band was overwritten.
        """
        if not self.guards_intact():
            raise XtraceError(
                "XT5012",
                "memory beside the trace buffer was overwritten",
                hint="the traced kernel writes outside its slots: do not trust this run, and report it",
            )
        s = self.slot
        headers = self._headers()
        used = headers["emitted_bytes"][: self.slots].astype(np.int64)
        # A warp that never reached its exit has no count: take its whole ring.
        used[(headers["t_entry_ns"][: self.slots] != 0) & (headers["t_exit_ns"][: self.slots] == 0)] = s.ring
        wrapped = bool((used > s.ring).any())
        longest = int(used.max(initial=0))
        ring = s.ring if wrapped else min(s.ring, max(64, 1 << max(longest - 1, 0).bit_length()))
        header = ring + (s.header - s.ring)
        small = SlotLayout(stride=header + s.header_bytes, ring=ring, header=header, header_bytes=s.header_bytes)
        if small.stride * self.slots > MAX_HOST_BYTES:
            raise XtraceError(
                "XT5011",
                f"the trace has {small.stride * self.slots >> 30} GiB, more than can be read back",
                hint="trace fewer warps: pass a smaller slot count, or use a smaller shape",
            )
        rows = np.zeros((self.slots + 1, small.stride), np.uint8)
        rows[:, header : header + HEADER.itemsize] = headers.view(np.uint8).reshape(self.slots + 1, -1)
        limit = header if wrapped else ring
        for low in range(0, self.slots, _ROWS_AT_ONCE):
            n = min(_ROWS_AT_ONCE, self.slots - low)
            width = min(limit, int(used[low : low + n].max(initial=0)) if not wrapped else limit)
            if width:
                part = self._device.download_rows(self.address + low * s.stride, s.stride, width, n)
                rows[low : low + n, :width] = np.frombuffer(part, np.uint8).reshape(n, width)
        return TraceBytes(rows.tobytes(), small, self.slots, bool(headers["t_entry_ns"][self.slots] != 0))

    def free(self) -> None:
        if self._raw:
            self._device.free(self._raw)
            self._raw = 0

    def __enter__(self) -> TraceBuffer:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        if value is None:
            self.free()
        else:  # after a failed launch the driver refuses every call: keep the first error
            with contextlib.suppress(XtraceError):
                self.free()
