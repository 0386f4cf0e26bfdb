"""Registers, shared memory and machine code of an image, read through :mod:`xtrace.image`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from xtrace import image

__all__ = ["KernelFacts", "facts", "same_code"]


@dataclass(frozen=True)
class KernelFacts:
    name: str
    registers: int
    static_shared: int
    text: bytes


def facts(path: Path, kernel: str | None = None) -> KernelFacts:
    """Facts of ``kernel``, or of the first kernel. Raises xtrace.errors.BadInput for what is not a cubin."""
    loaded = image.load(path)
    found = loaded.kernel(kernel) if kernel else loaded.kernels[0]
    return KernelFacts(found.name, found.registers, found.shared_static, found.text)


def same_code(one: Path, other: Path) -> bool:
    """Do the two images hold the same machine code for their first kernels?"""
    return facts(one).text == facts(other).text
