"""Read-only telemetry of an NVIDIA GPU through the driver's management library.

The library comes with every driver, so ctypes is enough and no package is needed. Only query functions are called:
Xtrace never changes a setting of the device. Everything degrades to "unknown" where the library is missing or refuses.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

from xtrace.runtime.device import MachineState, Telemetry

__all__ = ["Nvml", "driver_version", "throttle_names"]

_SM_CLOCK = 1  # NVML_CLOCK_SM
_TEMPERATURE_GPU = 0
_REASONS = {  # bits of nvmlClocksThrottleReasons; the idle bit (1) says nothing about the clock under load
    0x2: "applications-clocks",
    0x4: "sw-power-cap",
    0x8: "hw-slowdown",
    0x10: "sync-boost",
    0x20: "sw-thermal",
    0x40: "hw-thermal",
    0x80: "hw-power-brake",
    0x100: "display-clocks",
}


def throttle_names(bits: int) -> str:
    """Active throttle reasons joined by ``|``; ``"none"`` when there is none (idleness is not a reason)."""
    return "|".join(name for bit, name in _REASONS.items() if bits & bit) or "none"


def driver_version() -> str:
    """Version of the loaded kernel driver, ``""`` if there is none."""
    with contextlib.suppress(OSError):
        words = Path("/proc/driver/nvidia/version").read_text(errors="replace").split()
        return next((w for w in words if w[:1].isdigit() and "." in w), "")
    return ""


class _Process(ctypes.Structure):  # nvmlProcessInfo_v2_t
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class _Event(ctypes.Structure):  # nvmlEventData_t
    _fields_ = (
        ("device", ctypes.c_void_p),
        ("kind", ctypes.c_ulonglong),
        ("data", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


_MAX_PROCESSES = 256
_XID = 8  # nvmlEventTypeXidCriticalError
_UNCORRECTED, _VOLATILE = 1, 0
_APPLICATION_CLOCKS = 0  # NVML_RESTRICTED_API_SET_APPLICATION_CLOCKS


def others(pids: list[int], own: int) -> int | None:
    """How many of the processes on the device are not this one, which holds a context itself.

    In a container the library may give the pids of another namespace: then exactly one of them, unknown which, is
    ours. None if not even ours is listed: the list is hidden from us.
    """
    if not pids:
        return None
    return len([p for p in pids if p != own]) if own in pids else len(pids) - 1


class Nvml:
    """Telemetry of the device with this UUID; all readings are ``None``/unknown if the library is not usable."""

    def __init__(self, uuid: str, library: str = "libnvidia-ml.so.1") -> None:
        self._lib: ctypes.CDLL | None = None
        self._handle = ctypes.c_void_p()
        self._events: ctypes.c_void_p | None = None
        with contextlib.suppress(OSError, AttributeError):
            lib = ctypes.CDLL(library)
            if lib.nvmlInit_v2() == 0:
                found = lib.nvmlDeviceGetHandleByUUID(ctypes.c_char_p(uuid.encode()), ctypes.byref(self._handle))
                self._lib = lib if found == 0 else None

    @property
    def available(self) -> bool:
        return self._lib is not None

    def _number(self, function: str, kind: type[ctypes.c_uint] | type[ctypes.c_ulonglong], *before: int) -> int | None:
        if self._lib is None:
            return None
        value = kind()
        try:
            code = getattr(self._lib, function)(self._handle, *before, ctypes.byref(value))
        except AttributeError:  # an old library without this query
            return None
        return int(value.value) if code == 0 else None

    def read(self) -> Telemetry:
        """SM clock, temperature, power and throttle reasons, now. Takes some tens of microseconds."""
        power = self._number("nvmlDeviceGetPowerUsage", ctypes.c_uint)
        bits = self._number("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong)
        return Telemetry(
            sm_clock_mhz=self._number("nvmlDeviceGetClockInfo", ctypes.c_uint, _SM_CLOCK),
            temperature_c=self._number("nvmlDeviceGetTemperature", ctypes.c_uint, _TEMPERATURE_GPU),
            power_w=None if power is None else power / 1000.0,
            throttle="unknown" if bits is None else throttle_names(bits),
        )

    def machine(self) -> MachineState:
        """Other processes, errors and clock policy, now. Call it while this process holds a context."""
        persistence = self._number("nvmlDeviceGetPersistenceMode", ctypes.c_uint)
        restricted = self._number("nvmlDeviceGetAPIRestriction", ctypes.c_uint, _APPLICATION_CLOCKS)
        return MachineState(
            other_processes=others(self._pids(), os.getpid()),
            ecc_errors=self._number("nvmlDeviceGetTotalEccErrors", ctypes.c_ulonglong, _UNCORRECTED, _VOLATILE),
            xids=self._xids(),
            persistence=None if persistence is None else bool(persistence),
            application_mhz=self._number("nvmlDeviceGetApplicationsClock", ctypes.c_uint, _SM_CLOCK),
            default_application_mhz=self._number("nvmlDeviceGetDefaultApplicationsClock", ctypes.c_uint, _SM_CLOCK),
            max_mhz=self._number("nvmlDeviceGetMaxClockInfo", ctypes.c_uint, _SM_CLOCK),
            clocks_restricted=None if restricted is None else bool(restricted),
        )

    def _pids(self) -> list[int]:
        if self._lib is None:
            return []
        count = ctypes.c_uint(_MAX_PROCESSES)
        found = (_Process * _MAX_PROCESSES)()
        with contextlib.suppress(AttributeError):
            if self._lib.nvmlDeviceGetComputeRunningProcesses_v3(self._handle, ctypes.byref(count), found) == 0:
                return [int(p.pid) for p in found[: count.value]]
        return []

    def _xids(self) -> tuple[int, ...] | None:
        """Errors that the driver reported since the first call, which starts the watch; each is told once."""
        if self._lib is None:
            return None
        try:
            if self._events is None:
                events = ctypes.c_void_p()
                if self._lib.nvmlEventSetCreate(ctypes.byref(events)):
                    return None
                if self._lib.nvmlDeviceRegisterEvents(self._handle, ctypes.c_ulonglong(_XID), events):
                    return None
                self._events = events
            seen: list[int] = []
            event = _Event()
            while len(seen) < _MAX_PROCESSES:
                if self._lib.nvmlEventSetWait_v2(self._events, ctypes.byref(event), 0):
                    break
                seen.append(int(event.data))
            return tuple(seen)
        except AttributeError:
            return None
