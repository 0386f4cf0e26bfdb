"""What the rest of Xtrace needs from a GPU: one small interface, two implementations.

:mod:`xtrace.runtime.cuda` drives a real device, :mod:`xtrace.runtime.simulated` a make-believe one on which all control
flow of launching, checking and timing is tested. Addresses are plain integers, sizes are bytes, times nanoseconds.
All work goes to one stream, the default stream of the process's primary context, so that it is ordered with PyTorch's.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from xtrace.errors import BadInput, MissingTool

__all__ = [
    "Device",
    "DeviceInfo",
    "Event",
    "Kernel",
    "LaunchConfig",
    "MachineState",
    "Module",
    "Telemetry",
    "open_device",
]


@dataclass(frozen=True)
class DeviceInfo:
    """Identity and limits of a device; ``uuid`` names it across processes (``GPU-...``)."""

    name: str
    uuid: str
    driver: str
    cuda: str
    arch: str  # e.g. "sm_90"
    multiprocessors: int
    l2_bytes: int
    memory_bytes: int
    max_shared_bytes: int  # per block, with opt-in
    clock_khz: int  # highest SM clock the device announces; 0 = unknown

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Telemetry:
    """One reading of the device's state; ``None`` where the machine does not tell."""

    sm_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    throttle: str = "unknown"  # names of active reasons joined by '|', "none", or "unknown"


@dataclass(frozen=True)
class MachineState:
    """What could make a measurement worthless or hard to repeat; ``None`` where the machine does not tell."""

    other_processes: int | None = None  # with a compute context on the device, ours not counted
    ecc_errors: int | None = None  # uncorrected, since the driver was loaded
    xids: tuple[int, ...] | None = None  # the driver's error numbers since the previous reading
    persistence: bool | None = None
    application_mhz: int | None = None  # SM clock that the operator asked for, and the device's own default
    default_application_mhz: int | None = None
    max_mhz: int | None = None
    clocks_restricted: bool | None = None  # only the administrator may set clocks


@dataclass(frozen=True)
class LaunchConfig:
    """Grid and block sizes in CTAs and threads, dynamic shared memory in bytes, optional cluster sizes in CTAs."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int = 0
    cluster: tuple[int, int, int] | None = None

    def __post_init__(self) -> None:
        sizes = (*self.grid, *self.block, *(self.cluster or ()))
        if any(not isinstance(n, int) or not 1 <= n < 1 << 31 for n in sizes) or not 0 <= self.shared < 1 << 20:
            raise BadInput(
                "XT5040",
                f"launch sizes out of range: grid {self.grid}, block {self.block}, shared {self.shared}, "
                f"cluster {self.cluster}",
                hint="all sizes are positive integers",
            )

    @property
    def ctas(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def warps_per_cta(self) -> int:
        return -(-self.block[0] * self.block[1] * self.block[2] // 32)

    @property
    def warps(self) -> int:
        """Warps of the whole launch: the number of trace slots it needs."""
        return self.ctas * self.warps_per_cta


class Event(Protocol):
    """A point in the stream."""

    def record(self) -> None: ...

    def done(self) -> bool: ...


class Kernel(Protocol):
    """A function of a loaded module."""

    name: str

    def prepare(self, params: Sequence[tuple[str, int | float]]) -> Any:
        """Pack a parameter list once, so that a launch costs little host time.

        Parameters are ``(type, value)`` with types ``ptr, i8, i16, i32, i64, u8, u16, u32, u64, f32, f64``.
        """
        ...

    def launch(self, config: LaunchConfig, prepared: Any) -> None:
        """Enqueue one launch; errors of the launch itself surface at the next synchronisation."""
        ...


class Module(Protocol):
    """A loaded image."""

    def kernel(self, name: str) -> Kernel: ...

    def unload(self) -> None: ...


class Device(Protocol):
    """One GPU with its primary context current in this thread."""

    info: DeviceInfo

    def allocate(self, size: int) -> int: ...

    def free(self, address: int) -> None: ...

    def fill(self, address: int, size: int, byte: int) -> None:
        """Set memory, in stream order, without waiting."""
        ...

    def release_l2(self) -> None:
        """Lines that L2 was asked to keep longest are like all others from now on."""
        ...

    def upload(self, address: int, data: bytes | bytearray | memoryview) -> None: ...

    def download(self, address: int, size: int) -> bytes: ...

    def download_rows(self, address: int, pitch: int, width: int, rows: int) -> bytes:
        """``rows`` pieces of ``width`` bytes, ``pitch`` bytes apart, joined."""
        ...

    def load(self, image: bytes) -> Module: ...

    def event(self) -> Event: ...

    def elapsed_ns(self, start: Event, end: Event) -> float: ...

    def synchronize(self, timeout_s: float = 60.0) -> None:
        """Wait for all enqueued work; ``XT5007`` when it takes longer than ``timeout_s``."""
        ...

    def telemetry(self) -> Telemetry: ...

    def machine(self) -> MachineState: ...


def open_device(ordinal: int = 0) -> Device:
    """The real device ``ordinal`` of this machine; with ``XTRACE_DEVICE=simulated`` a make-believe one.

    Raises ``MissingTool`` XT5001 (no driver or no cuda-bindings) or XT5002 (no such GPU).
    """
    if os.environ.get("XTRACE_DEVICE") == "simulated":
        from xtrace.runtime.simulated_machine import SimulatedMachine

        return SimulatedMachine.open(ordinal)
    try:
        from xtrace.runtime.cuda import CudaDevice
    except ImportError as error:
        raise MissingTool(
            "XT5001", f"the Python package cuda-bindings cannot be imported: {error}", hint="pip install 'xtrace[gpu]'"
        ) from error
    return CudaDevice(ordinal)
