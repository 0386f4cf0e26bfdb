"""Run a kernel of a cubin directly: load, bind parameters, and, if it is traced, allocate and patch in its buffer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xtrace.errors import BadInput
from xtrace.runtime.buffers import SlotLayout, TraceBuffer, TraceBytes
from xtrace.runtime.device import Device, LaunchConfig
from xtrace.runtime.patching import kernel_entry, patch_image
from xtrace.runtime.timing import Arm
from xtrace.sampling import Sampling

__all__ = ["DirectArm", "Parameters", "SampledArm", "TracedArm", "bind", "run_traced"]

Parameters = Sequence[tuple[str, int | float]]
"""``(type, value)`` in kernel order; types as in :mod:`xtrace.runtime.params`."""


class DirectArm:
    """One loaded copy of an image; ``launch(i)`` runs its kernel on parameter set ``i`` modulo their number."""

    def __init__(
        self, device: Device, image: bytes, kernel: str, config: LaunchConfig, parameter_sets: Sequence[Parameters]
    ) -> None:
        if not parameter_sets:
            raise BadInput("XT5041", "no parameters given", where=kernel)
        self._module = device.load(image)
        self._kernel = self._module.kernel(kernel)
        self._config = config
        self._prepared = [self._kernel.prepare(p) for p in parameter_sets]

    def launch(self, index: int) -> None:
        self._kernel.launch(self._config, self._prepared[index % len(self._prepared)])

    def close(self) -> None:
        """Unload the image."""
        self._module.unload()


@dataclass
class TracedArm:
    """A traced kernel and the buffer that it writes to."""

    arm: DirectArm
    buffer: TraceBuffer
    kernel: str
    trace_map: Mapping[str, Any]

    @classmethod
    def load(
        cls,
        device: Device,
        image: bytes,
        trace_map: Mapping[str, Any],
        kernel: str,
        config: LaunchConfig,
        parameter_sets: Sequence[Parameters],
        slots: int | None = None,
    ) -> TracedArm:
        """Allocate a buffer of ``slots`` slots (default: one for every warp of the launch), patch, and load."""
        entry = kernel_entry(trace_map, kernel)
        buffer = TraceBuffer(device, SlotLayout.of(entry["slot"]), slots or config.warps)
        try:
            patched = patch_image(image, trace_map, {kernel: buffer.target})
            arm = DirectArm(device, patched, str(entry["name"]), config, parameter_sets)
        except BaseException:
            buffer.free()
            raise
        return cls(arm, buffer, str(entry["name"]), trace_map)

    def launch(self, index: int) -> None:
        self.arm.launch(index)

    def close(self) -> None:
        self.arm.close()
        self.buffer.free()


class SampledArm:
    """Every n-th launch is traced, all others are those of the original kernel and cost nothing.

    Launches are counted from 0, from when this was made. Read the traced arm's buffer, and clear it, between two traced
    launches: they write to the same slots.
    """

    def __init__(self, original: Arm, traced: Arm, rule: Sampling) -> None:
        self._original = original
        self._traced = traced
        self._rule = rule
        self.launches = 0

    @property
    def next_is_traced(self) -> bool:
        return self._rule.takes_launch(self.launches)

    def launch(self, index: int) -> None:
        arm = self._traced if self.next_is_traced else self._original
        self.launches += 1
        arm.launch(index)


def bind(layout: Sequence[Mapping[str, Any]], values: Mapping[str, int | float]) -> list[tuple[str, int | float]]:
    """A parameter list from a ``meta.json`` parameter layout and values by name; scratch pointers default to null.

    Raises ``BadInput`` XT5041 for a parameter without a value or a value without a parameter.
    """
    out: list[tuple[str, int | float]] = []
    for parameter in layout:
        name = str(parameter["name"])
        if name not in values and parameter.get("role") != "scratch":
            raise BadInput("XT5041", f"no value for kernel parameter {name!r}")
        out.append((str(parameter["type"]), values.get(name, 0)))
    unused = set(values) - {str(p["name"]) for p in layout}
    if unused:
        raise BadInput("XT5041", f"the kernel has no parameter {', '.join(sorted(unused))}")
    return out


def run_traced(
    device: Device,
    image: bytes,
    trace_map: Mapping[str, Any],
    kernel: str,
    config: LaunchConfig,
    parameters: Parameters,
    *,
    slots: int | None = None,
    timeout_s: float = 60.0,
) -> TraceBytes:
    """Launch a traced kernel once and read its trace."""
    arm = TracedArm.load(device, image, trace_map, kernel, config, [parameters], slots)
    try:
        arm.launch(0)
        device.synchronize(timeout_s)
        return arm.buffer.read()
    finally:
        arm.close()
