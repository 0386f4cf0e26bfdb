"""What a workload's kernel is: signature, compile-time constants, grid, arguments and loop trip counts.

Everything here is plain data and arithmetic on shapes. Neither Triton nor torch is imported, so that a
launcher, a counter of expected records or a report can read a description on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod

__all__ = ["Argument", "KernelSpec", "Loop", "Shape", "Variant", "cdiv"]

Shape = Mapping[str, int]
"""Named problem sizes, e.g. ``{"batch": 4, "seqlen": 4096, "heads": 16, "head_dim": 128}``."""

ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "i32": 4}


def cdiv(a: int, b: int) -> int:
    """Quotient rounded up."""
    return -(-a // b)


@dataclass(frozen=True)
class Argument:
    """One run-time parameter of a kernel, in kernel order.

    Parameters
    ----------
    name
        Name in the kernel's source.
    type
        Triton type: ``*bf16``, ``*i32``, ``i32``, ``fp32``.
    value
        For scalars: gives the value for a shape.
    dims
        For pointers: the extents of the buffer, row-major, for a shape.
    output
        The kernel writes the whole buffer (and does not read it).
    aligned
        The kernel is compiled under the promise that the value (a pointer's address, an integer) is a
        multiple of 16.
    """

    name: str
    type: str
    value: Callable[[Shape], int | float] | None = None
    dims: Callable[[Shape], tuple[int, ...]] | None = None
    output: bool = False
    aligned: bool = False

    @property
    def is_pointer(self) -> bool:
        return self.type.startswith("*")

    @property
    def element(self) -> str:
        """Element type of a pointer."""
        return self.type.removeprefix("*")

    def buffer_bytes(self, shape: Shape) -> int:
        """Size of a pointer's buffer."""
        return prod(self.dims(shape)) * ELEMENT_BYTES[self.element] if self.dims else 0

    @property
    def size(self) -> int:
        """Bytes in the parameter block; parameters are aligned to their size."""
        return 8 if self.is_pointer or self.type.endswith("64") else 4


@dataclass(frozen=True)
class Loop:
    """One loop of the source.

    ``trips(shape, constants, cta)`` is the number of times its body runs in the CTA with linear index
    ``cta`` (x fastest). Every warp of the CTA runs it equally often. ``unrolled(constants)``: there is no such loop in
    the machine code, because it always has one trip or is compiled out.
    """

    name: str
    marker: str  # text of the source line that opens the loop, so that its line number can be found
    trips: Callable[[Shape, Mapping[str, int], int], int]
    unrolled: Callable[[Mapping[str, int]], bool] = lambda constants: False


@dataclass(frozen=True)
class Variant:
    """Compile-time choices: tile sizes and friends, warps per CTA, depth of the software pipeline."""

    constants: Mapping[str, int]
    num_warps: int
    num_stages: int
    maxnreg: int | None = None


@dataclass(frozen=True)
class KernelSpec:
    """A kernel of the suite. See the modules beside this one for instances."""

    name: str  # workload name
    entry: str  # name of the Triton function and of the kernel in the image
    module: str  # module that holds it
    arguments: tuple[Argument, ...]
    variants: Mapping[str, Variant]  # "default" is the one the suite uses
    grid: Callable[[Shape, Mapping[str, int]], tuple[int, int, int]]
    loops: tuple[Loop, ...]
    work: Callable[[Shape], tuple[str, float]]  # ("flop" | "byte", amount) of one launch
    expect: tuple[str, ...] = field(default=())  # opcodes that the machine code must contain

    @property
    def source(self) -> str:
        """Path of the source inside the repository; also the name that line tables carry."""
        return self.module.replace(".", "/") + ".py"

    def machine_loops(self, variant: Variant) -> tuple[Loop, ...]:
        """Source loops that are loops in the machine code too, in address order; one natural loop each."""
        return tuple(loop for loop in self.loops if not loop.unrolled(variant.constants))

    def trips(self, shape: Shape, variant: Variant, cta: int) -> dict[str, int]:
        """Trip count of every source loop in one CTA. ``shape`` as :func:`workflow.kernels.cases.resolve` gives it."""
        return {loop.name: loop.trips(shape, variant.constants, cta) for loop in self.loops}
