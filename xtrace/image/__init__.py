"""Bytes <-> kernels: reading linked GPU images, writing them with grown code, fatbins inside libraries."""

from xtrace.image.cubin import Image, Kernel, load, parse
from xtrace.image.info import InfoRecord

__all__ = ["Image", "InfoRecord", "Kernel", "load", "parse"]
