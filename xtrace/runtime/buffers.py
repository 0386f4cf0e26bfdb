"""The trace buffer in device memory: allocation between guard bands, zeroing, and a read-back that copies only what
was written. Layout: docs/decisions/0001 (a ring of packets per warp, and a table of headers)."""

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
from xtrace.runtime.headers import TABLE, complete
from xtrace.runtime.patching import BufferTarget
from xtrace.trace.layout import STRIPES
from xtrace.trace.packets import by_slot
from xtrace.trace.tags import QUAD

__all__ = ["HeaderSummary", "SlotLayout", "TraceBuffer", "TraceBytes"]

GUARD_BYTES = 1 << 20
GUARD_PATTERN = 0xA5
MAX_HOST_BYTES = 16 << 30
_ROWS_AT_ONCE = 4096
_SLACK = 512  # bytes that the last packet of a lap may run past the ring, at most
_MIN_RING = 32
_KEPT = 8  # the table of headers is kept in L2 if it takes at most one part in so many


@dataclass(frozen=True)
class SlotLayout:
    """Byte layout of a slot, the ``slot`` object of a trace map. Headers stand in a table of their own.

    ``record`` is the size of one event's clock; what a packet adds to its clocks is in :mod:`xtrace.trace.packets`.
    """

    stride: int
    ring: int
    header_bytes: int = TABLE.itemsize
    record: int = 4
    stripe: int | None = None  # bytes of every packet, if the slots interleave packet by packet

    @classmethod
    def of(cls, slot: Mapping[str, Any]) -> SlotLayout:
        """Checked layout; ``BadInput`` XT5010 if a part is missing or the parts do not fit into the stride."""
        try:
            stride, ring, header, record = (int(slot[k]) for k in ("stride", "ring", "header_bytes", "record"))
            layout = cls(stride, ring, header, record, None if slot.get("stripe") is None else int(slot["stripe"]))
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput("XT5010", f"no slot layout: {error!r}", where="trace map") from error
        fits = _MIN_RING <= layout.ring <= layout.stride and layout.stride % QUAD == 0
        if not fits or layout.ring & (layout.ring - 1) or layout.header_bytes != TABLE.itemsize or layout.record != 4:
            raise BadInput("XT5010", f"impossible slot layout {dict(slot)}", where="trace map")
        if layout.stripe is not None and (layout.stripe not in STRIPES or layout.stride != layout.ring):
            raise BadInput("XT5010", f"impossible stripes {dict(slot)}", where="trace map")
        return layout

    def document(self) -> dict[str, int]:
        """The ``slot`` object of a trace map."""
        parts = {"stride": self.stride, "ring": self.ring, "record": self.record, "header_bytes": self.header_bytes}
        return parts if self.stripe is None else {**parts, "stripe": self.stripe}

    @property
    def slack(self) -> int:
        """Bytes behind the ring that packets may fill; none where no warp can emit more than its ring holds."""
        return min(_SLACK, self.stride - self.ring)


@dataclass(frozen=True)
class TraceBytes:
    """What a launch wrote, in the form that ``xtrace.trace.decode`` takes: slots, then the table of headers.

    ``slot`` is the layout of ``data``; where no ring overflowed the slots are cut to the longest one used. The last
    slot is the spill-over slot, of which only the header is copied: ``spilled`` says that warps beyond the buffer ran.
    """

    data: bytes
    slot: SlotLayout
    slots: int
    spilled: bool

    @property
    def _split(self) -> int:
        return (self.slots + 1) * self.slot.stride

    def rows(self) -> npt.NDArray[np.uint8]:
        """The slots (without the spill-over slot) as a two-dimensional byte array."""
        return by_slot(np.frombuffer(self.data, np.uint8, self._split), self.slots + 1, self.slot.stripe)[:-1]

    def headers(self) -> npt.NDArray[Any]:
        """Completed headers of the slots (:data:`xtrace.runtime.headers.FULL`)."""
        return complete(np.frombuffer(self.data, TABLE, offset=self._split)[:-1], self.slot.stripe)

    def first(self, slots: int) -> TraceBytes:
        """The leading slots only."""
        n = max(0, min(slots, self.slots))
        entry, size = self.slot.header_bytes, self.slot.stripe or self.slot.stride
        # Slots of every stripe, or all of them where there are none.
        rings = np.frombuffer(self.data, np.uint8, self._split).reshape(-1, self.slots + 1, size)
        slots_part = rings[:, [*range(n), self.slots]].tobytes()
        table_part = self.data[self._split : self._split + n * entry] + self.data[-entry:]
        return TraceBytes(slots_part + table_part, self.slot, n, self.spilled)

    def map_for(self, trace_map: Mapping[str, Any], kernel: str, block: Sequence[int] | None = None) -> dict[str, Any]:
        """A copy of the trace map in which ``kernel`` has this layout, as ``xtrace.trace.decode`` needs it.

        ``block``, the CTA's size in threads, lets the decoder split slot numbers into CTA and warp.
        """
        out: dict[str, Any] = copy.deepcopy(dict(trace_map))
        for entry in out["kernels"]:
            if kernel in (entry.get("name"), entry.get("demangled")):
                entry["slot"] = self.slot.document()
                if block is not None:
                    entry["block"] = list(block)
        return out


@dataclass(frozen=True)
class HeaderSummary:
    """Warps that exited, records that later ones overwrote (at least; a header does not tell how they were packed),
    and whether warps beyond the buffer ran."""

    warps: int
    overwritten: int
    spilled: bool


class TraceBuffer:
    """``slots`` slots and the spill-over slot, and as many headers, each region aligned and between guard bands.

    Use as a context manager, or call :meth:`free`.
    """

    def __init__(self, device: Device, slot: SlotLayout, slots: int) -> None:
        if not 0 < slots < 1 << 31:
            raise BadInput("XT5011", f"a trace buffer of {slots} slots", hint="one slot per warp of the launch")
        self._device = device
        self.slot = slot
        self.slots = slots
        self._raw: list[int] = []
        self._guards: list[tuple[int, int]] = []
        self._regions: list[tuple[int, int]] = []
        size = (slots + 1) * slot.header_bytes
        self.kept = size <= device.info.l2_bytes // _KEPT  # whether L2 is asked to keep headers (where an image can)
        self.address = self._region((slots + 1) * slot.stride, slot.stride)
        # Aligned to a power of two of at least its size, the table cannot cross a 4 GiB boundary.
        self.table = self._region(size, 1 << (size - 1).bit_length())
        self.zero()

    def _region(self, size: int, alignment: int) -> int:
        """Aligned memory between guard bands."""
        try:
            self._raw.append(self._device.allocate(size + 2 * GUARD_BYTES + alignment))
        except XtraceError:
            self.free()
            raise
        address = -(-(self._raw[-1] + GUARD_BYTES) // alignment) * alignment
        self._regions.append((address, size))
        for guard in ((address - GUARD_BYTES, GUARD_BYTES), (address + size, GUARD_BYTES)):
            self._guards.append(guard)
            self._device.fill(*guard, GUARD_PATTERN)
        return address

    @property
    def target(self) -> BufferTarget:
        return BufferTarget(self.address, self.slots, self.table, self.kept)

    def zero(self) -> None:
        """Clear everything; needed before every launch whose trace will be read."""
        for address, size in self._regions:
            self._device.fill(address, size, 0)

    def guards_intact(self) -> bool:
        """Whether nothing wrote outside the two regions (as far as the guard bands reach)."""
        pattern = bytes([GUARD_PATTERN])
        return all(self._device.download(address, size) == pattern * size for address, size in self._guards)

    def untouched(self) -> bool:
        """Whether no warp has reported: what an original or unpatched kernel must leave behind."""
        return not any(self._table())

    def summary(self) -> HeaderSummary:
        """What the headers alone tell, without copying any ring."""
        table = np.frombuffer(self._table(), TABLE)
        over = table["emitted_bytes"][: self.slots].astype(np.int64) - self.slot.ring
        return HeaderSummary(
            warps=int(np.count_nonzero(table["t_exit_ns"][: self.slots])),
            overwritten=int(np.maximum(over, 0).sum()) // QUAD,
            spilled=bool(table["t_exit_ns"][self.slots] != 0),
        )

    def _table(self) -> bytes:
        return self._device.download(self.table, (self.slots + 1) * self.slot.header_bytes)

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
        raw = self._table()
        table = np.frombuffer(raw, TABLE)
        used = table["emitted_bytes"][: self.slots].astype(np.int64)
        # A warp that never exited left no header, but perhaps packets: the first one shows it.
        between, width = (s.stride, QUAD) if s.stripe is None else (s.stripe, s.stripe)
        first = self._device.download_rows(self.address, between, width, self.slots)
        started = np.frombuffer(first, np.uint8).reshape(-1, width).any(axis=1)
        used[started & (table["t_exit_ns"][: self.slots] == 0)] = s.ring
        wrapped = bool((used > s.ring).any())
        longest = int(used.max(initial=0))
        ring = s.ring if wrapped else min(s.ring, max(64, 1 << max(longest - 1, 0).bit_length()))
        small = SlotLayout(ring + s.slack, ring, stripe=s.stripe)
        size = small.stride * (self.slots + 1)
        if size > MAX_HOST_BYTES:
            raise XtraceError(
                "XT5011",
                f"the trace has {size >> 30} GiB, more than can be read back",
                hint="trace fewer warps: pass a smaller slot count, or use a smaller shape",
            )
        spilled = bool(table["t_exit_ns"][self.slots] != 0)
        if s.stripe is not None:  # the first rounds of all slots stand together
            return TraceBytes(self._device.download(self.address, size) + raw, small, self.slots, spilled)
        rows = np.zeros((self.slots + 1, small.stride), np.uint8)
        for low in range(0, self.slots, _ROWS_AT_ONCE):
            n = min(_ROWS_AT_ONCE, self.slots - low)
            width = small.stride if wrapped else int(used[low : low + n].max(initial=0))
            if width:
                part = self._device.download_rows(self.address + low * s.stride, s.stride, width, n)
                rows[low : low + n, :width] = np.frombuffer(part, np.uint8).reshape(n, width)
        return TraceBytes(rows.tobytes() + raw, small, self.slots, spilled)

    def free(self) -> None:
        if self._raw and self.kept:
            self._device.release_l2()
        while self._raw:
            self._device.free(self._raw.pop())

    def __enter__(self) -> TraceBuffer:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        if value is None:
            self.free()
        else:  # after a failed launch the driver refuses every call: keep the first error
            with contextlib.suppress(XtraceError):
                self.free()
