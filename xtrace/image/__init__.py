"""Bytes <-> kernels: reading linked GPU images, writing them with grown code, fatbins inside libraries."""

from xtrace.image.cubin import Image, Kernel, load, parse
from xtrace.image.info import InfoRecord
from xtrace.image.writer import CodeEdit, rewrite

__all__ = ["CodeEdit", "Image", "InfoRecord", "Kernel", "load", "parse", "rewrite"]
