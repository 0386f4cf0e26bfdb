"""Register files of NVIDIA GPUs as bit sets (the numbering is fixed by docs/decisions/0001)."""

from __future__ import annotations

from xtrace.isa.model import RegisterClass, RegisterLayout

__all__ = ["make_layout"]


def make_layout(uniform_registers: int) -> RegisterLayout:
    """Register layout of a family with ``uniform_registers`` uniform registers (63 up to sm_90, 80 from sm_100).

    RZ, PT, URZ and UPT are constants, not registers: they have no bit. First bits are the same on all families.
    """
    return RegisterLayout(
        {
            "R": RegisterClass("R", 0, 255),
            "P": RegisterClass("P", 256, 7),
            "UR": RegisterClass("UR", 272, uniform_registers),
            "UP": RegisterClass("UP", 360, 7),
            "B": RegisterClass("B", 376, 16),
        }
    )
