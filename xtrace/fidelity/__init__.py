"""Preservation of an original image in another one: binary diff at five levels."""

from xtrace.fidelity.compare import KernelPreservation, compare, compare_instructions
from xtrace.fidelity.levels import LEVELS

__all__ = ["LEVELS", "KernelPreservation", "compare", "compare_instructions"]
