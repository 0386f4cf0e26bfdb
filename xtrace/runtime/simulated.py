"""A make-believe device: memory, a virtual clock and kernels that are Python functions.

All control flow of launching, checking and timing runs on it in the tests, failures included. It makes no claim about
the speed or the behaviour of real kernels.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from xtrace.errors import BadInput, XtraceError
from xtrace.runtime.buffers import SlotLayout
from xtrace.runtime.device import DeviceInfo, LaunchConfig, MachineState, Telemetry
from xtrace.runtime.failures import driver_error
from xtrace.runtime.headers import TABLE
from xtrace.runtime.params import PackedParams, pack

__all__ = ["Behaviour", "SimulatedDevice", "WarpTrace", "patched_words", "simulated_image", "write_trace"]

MAGIC = b"SIMULATED\0"
_PATCH_AT = len(MAGIC)  # five u32 words: buffer_lo, buffer_hi, header_lo, header_hi, slot_count
_PATCHED = struct.Struct("<QQI")
INFO = DeviceInfo(
    name="Simulated GPU",
    uuid="GPU-00000000-0000-0000-0000-000000000000",
    driver="0.0",
    cuda="13.0",
    arch="sm_90",
    multiprocessors=4,
    l2_bytes=1 << 16,
    memory_bytes=1 << 30,
    max_shared_bytes=232448,
    clock_khz=1_000_000,
)
Behaviour = Callable[["SimulatedDevice", bytes, LaunchConfig, PackedParams], float]
"""What a kernel does: may change device memory; returns its duration in ns."""


def simulated_image(kernel: str, content: str = "") -> bytes:
    """An image with one kernel; ``content`` makes images differ. Patch words at offsets 10, 14, 18, 22 and 26."""
    return MAGIC + bytes(_PATCHED.size) + json.dumps({"kernel": kernel, "content": content}).encode()


def patched_words(image: bytes) -> tuple[int, int, int]:
    """Addresses of slots and header table, and slot count, in a simulated image; zeros when unpatched."""
    address, table, slots = _PATCHED.unpack_from(image, _PATCH_AT)
    return address, table, slots


@dataclass
class WarpTrace:
    """Records of one warp: ``(clock, site)`` in order, and its header values.

    Each record is a packet of its own, with the site id for a tag, unless ``packets`` gives them: as ``(tag, clocks)``,
    or ``(tag, words, events)`` where other words than clocks are recorded.
    """

    records: Sequence[tuple[int, int]] = ()
    sm: int = 0
    t_entry_ns: int = 1_000
    t_exit_ns: int = 2_000
    clock_entry: int = 100
    clock_exit: int = 100_000
    packets: Sequence[tuple[int, Sequence[int]] | tuple[int, Sequence[int], int]] | None = None

    def packed(self) -> list[tuple[int, list[int], int]]:
        """Tag, words and number of events of each packet."""
        if self.packets is None:
            return [(site, [clock], 1) for clock, site in self.records]
        return [(p[0], list(p[1]), p[2] if len(p) == 3 else len(p[1])) for p in self.packets]


def write_trace(
    device: SimulatedDevice, address: int, table: int, slots: int, layout: SlotLayout, warps: Sequence[WarpTrace | None]
) -> None:
    """Write what traced warps would (layout of docs/decisions/0001); warps beyond ``slots`` share the last slot.

    A warp with ``t_exit_ns`` 0 never exits and leaves no header; None is one that is not sampled and leaves nothing.
    """
    for number, warp in enumerate(warps):
        if warp is None:
            continue
        slot = min(number, slots)
        offset = events = 0
        for tag, words, count in warp.packed():
            data = struct.pack(f"<{len(words) + 1}I", *(c & 0xFFFFFFFF for c in words), tag)
            size = layout.stripe or 16 * (len(words) // 4 + 1)
            place = slot * layout.stride + offset % layout.ring
            if layout.stripe is not None:
                place = offset % layout.ring * (slots + 1) + slot * layout.stripe
            device.poke(address + place, data.rjust(size, b"\xee"))
            offset, events = offset + size, events + count
        if warp.t_exit_ns:
            device.poke(table + slot * TABLE.itemsize, _table_entry(warp, offset, events))


def _table_entry(warp: WarpTrace, offset: int, events: int) -> bytes:
    low = 0xFFFFFFFF
    entry = np.zeros(1, TABLE)
    entry["timer_entry"], entry["clock_entry"] = warp.t_entry_ns & low, warp.clock_entry & low
    entry["t_exit_ns"], entry["clock_exit"] = warp.t_exit_ns, warp.clock_exit & low
    entry["events_smid"], entry["emitted_bytes"] = (events << 8 | warp.sm) & low, offset
    return entry.tobytes()


class SimulatedEvent:
    def __init__(self, device: SimulatedDevice) -> None:
        self._device = device
        self.time_ns: float | None = None

    def record(self) -> None:
        self.time_ns = self._device.now_ns

    def done(self) -> bool:
        """As if the device were always behind the host: it gets to an event when the host waits for it."""
        return self.time_ns is not None and self.time_ns <= self._device.reached_ns


@dataclass
class SimulatedKernel:
    device: SimulatedDevice
    image: bytes
    name: str

    def prepare(self, params: Sequence[tuple[str, int | float]]) -> PackedParams:
        return pack(params)

    def launch(self, config: LaunchConfig, prepared: PackedParams) -> None:
        self.device.launches.append((self.name, self.image, config))
        if config.shared > self.device.info.max_shared_bytes:
            raise driver_error(1, "CUDA_ERROR_INVALID_VALUE", "launching", self.name)
        self.device.now_ns += self.device.behaviours[self.name](self.device, self.image, config, prepared)


@dataclass
class SimulatedModule:
    device: SimulatedDevice
    image: bytes

    def kernel(self, name: str) -> SimulatedKernel:
        meta = json.loads(self.image[_PATCH_AT + _PATCHED.size :])
        if name != meta["kernel"] or name not in self.device.behaviours:
            raise driver_error(500, "CUDA_ERROR_NOT_FOUND", "looking up the kernel", name)
        return SimulatedKernel(self.device, self.image, name)

    def unload(self) -> None:
        self.device.unloads += 1


@dataclass
class SimulatedDevice:
    """See the module. ``behaviours`` maps kernel names to functions; ``hung`` makes synchronisation time out."""

    behaviours: dict[str, Behaviour] = field(default_factory=dict)
    info: DeviceInfo = INFO
    now_ns: float = 0.0
    hung: bool = False
    failed: int = 0  # a driver code to report at the next synchronisation
    readings: Sequence[Telemetry] = (Telemetry(1980, 40, 300.0, "none"),)
    states: Sequence[MachineState] = (MachineState(0, 0, (), True, 1980, 1980, 1980, True),)
    launches: list[tuple[str, bytes, LaunchConfig]] = field(default_factory=list)
    unloads: int = 0
    released: int = 0  # times that L2 let go of what it keeps
    reached_ns: float = -1.0  # where the device was when the host last waited for it
    _memory: dict[int, bytearray] = field(default_factory=dict)
    _next: int = 0x7F0000000200
    _reads: int = 0
    _states: int = 0

    def _find(self, address: int, size: int) -> tuple[bytearray, int]:
        for base, data in self._memory.items():
            if base <= address and address + size <= base + len(data):
                return data, address - base
        raise driver_error(700, "CUDA_ERROR_ILLEGAL_ADDRESS", f"accessing {size} bytes at {address:#x}")

    def poke(self, address: int, data: bytes) -> None:
        memory, at = self._find(address, len(data))
        memory[at : at + len(data)] = data

    def allocate(self, size: int) -> int:
        if size <= 0:
            raise BadInput("XT5042", f"cannot allocate {size} bytes")
        if sum(map(len, self._memory.values())) + size > self.info.memory_bytes:
            raise driver_error(2, "CUDA_ERROR_OUT_OF_MEMORY", f"allocating {size} bytes")
        address = self._next
        self._next += (size // 512 + 3) * 512
        self._memory[address] = bytearray(b"\xcd" * size)  # fresh device memory holds anything
        return address

    def free(self, address: int) -> None:
        if self._memory.pop(address, None) is None:
            raise driver_error(1, "CUDA_ERROR_INVALID_VALUE", "freeing device memory")

    def fill(self, address: int, size: int, byte: int) -> None:
        memory, at = self._find(address, size)
        memory[at : at + size] = bytes([byte]) * size
        self.now_ns += size / 1000

    def release_l2(self) -> None:
        self.released += 1

    def upload(self, address: int, data: bytes | bytearray | memoryview) -> None:
        self.poke(address, bytes(data))

    def download(self, address: int, size: int) -> bytes:
        memory, at = self._find(address, size)
        return bytes(memory[at : at + size])

    def download_rows(self, address: int, pitch: int, width: int, rows: int) -> bytes:
        return b"".join(self.download(address + i * pitch, width) for i in range(rows))

    def load(self, image: bytes) -> SimulatedModule:
        if not image.startswith(MAGIC):
            raise driver_error(200, "CUDA_ERROR_INVALID_IMAGE", f"loading an image of {len(image)} bytes")
        return SimulatedModule(self, image)

    def event(self) -> SimulatedEvent:
        return SimulatedEvent(self)

    def elapsed_ns(self, start: Any, end: Any) -> float:
        return float(end.time_ns - start.time_ns)

    def synchronize(self, timeout_s: float = 60.0) -> None:
        if self.hung:
            raise XtraceError("XT5007", f"the device did not finish within {timeout_s:.0f} s", where=self.info.name)
        if self.failed:
            raise driver_error(self.failed, "CUDA_ERROR_SIMULATED", "waiting for the device")
        self.reached_ns = self.now_ns

    def telemetry(self) -> Telemetry:
        self._reads += 1
        return self.readings[(self._reads - 1) % len(self.readings)]

    def machine(self) -> MachineState:
        self._states += 1
        return self.states[(self._states - 1) % len(self.states)]
