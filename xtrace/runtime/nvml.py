"""Read-only telemetry of an NVIDIA GPU through the driver's management library.

The library comes with every driver, so ctypes is enough and no package is needed. Only query functions are called:
Xtrace never changes a setting of the device. Everything degrades to "unknown" where the library is missing or refuses.
"""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path

from xtrace.runtime.device import Telemetry

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


class Nvml:
    """Telemetry of the device with this UUID; all readings are ``None``/unknown if the library is not usable."""

    def __init__(self, uuid: str, library: str = "libnvidia-ml.so.1") -> None:
        self._lib: ctypes.CDLL | None = None
        self._handle = ctypes.c_void_p()
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
