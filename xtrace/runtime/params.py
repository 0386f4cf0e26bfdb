"""Kernel parameter lists: typed values packed into the array of pointers that a launch takes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from xtrace.errors import BadInput

__all__ = ["TYPES", "PackedParams", "pack", "scalar_type"]

TYPES: dict[str, Any] = {
    "ptr": ctypes.c_uint64,
    "i1": ctypes.c_int8,
    "i8": ctypes.c_int8,
    "i16": ctypes.c_int16,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "u1": ctypes.c_uint8,
    "u8": ctypes.c_uint8,
    "u16": ctypes.c_uint16,
    "u32": ctypes.c_uint32,
    "u64": ctypes.c_uint64,
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
}
_ALIASES = {"fp32": "f32", "fp64": "f64", "pointer": "ptr", "nvTmaDesc": "ptr"}


def scalar_type(name: str) -> str:
    """The packing type of a Triton signature type: ``*bf16`` is ``ptr``, ``fp32`` is ``f32``.

    Raises ``BadInput`` XT5041 for a type that cannot be a kernel parameter.
    """
    if name.startswith("*"):
        return "ptr"
    short = _ALIASES.get(name, name)
    if short not in TYPES:
        raise BadInput("XT5041", f"unknown parameter type {name!r}", hint=f"one of *T, {', '.join(TYPES)}")
    return short


class PackedParams:
    """Values in stable memory and the ``void*[]`` over them; keep the object alive until the launch was enqueued."""

    def __init__(self, params: Sequence[tuple[str, int | float]]) -> None:
        self.params = tuple(params)
        self._values = [_value(kind, value, i) for i, (kind, value) in enumerate(params)]
        self._array = (ctypes.c_void_p * max(len(self._values), 1))(*(ctypes.addressof(v) for v in self._values))

    @property
    def address(self) -> int:
        """Address of the pointer array, what ``cuLaunchKernel`` takes as ``kernelParams``."""
        return ctypes.addressof(self._array)


def _value(kind: str, value: int | float, index: int) -> Any:
    ctype = TYPES[scalar_type(kind)]
    if ctype in (ctypes.c_float, ctypes.c_double):
        return ctype(float(value))
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadInput("XT5041", f"parameter {index} of type {kind} got {value!r}", hint="an integer is needed")
    packed = ctype(value)
    if packed.value != value:
        raise BadInput("XT5041", f"parameter {index}: {value} does not fit {kind}")
    return packed


def pack(params: Sequence[tuple[str, int | float]]) -> PackedParams:
    """Pack a parameter list; raises ``BadInput`` XT5041 when a value does not fit its type."""
    return PackedParams(params)
