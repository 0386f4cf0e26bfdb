"""Cycles between a result and its use."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from xtrace.isa.model import Instruction
from xtrace.isa.nvidia.decode import NvidiaIsa


@pytest.mark.parametrize(
    ("producer", "consumer", "cycles"),
    [
        ("CS2R.32 R4, SR_CLOCKLO", "LEA R5, R4, 0x3, 0x6", 6),
        ("CS2R.32 R4, SR_CLOCKLO", "STG.E [UR4], R4", 8),
        ("IADD3 R4, R5, R6, R7", "MUFU.EX2 R8, R4", 6),
        ("IADD3 R4, R5, R6, R7", "HMMA.16816.F32 R8, R4, R12, R8", 7),
        ("IADD3 R4, R5, R6, R7", "HGMMA.64x64x16.F32 R24, R4, gdesc[UR8], R24", 8),
        ("IADD3 R4, R5, R6, R7", "R2UR UR4, R4", 6),
        ("FFMA R4, R5, R6, R7", "FFMA R8, R4, R4, R4", 4),
        ("IMAD R4, R5, R6, R7", "IADD3 R8, R4, R4, R4", 5),
        ("DADD R4, R6, R8", "DADD R6, R4, R4", 12),
        ("HMMA.16816.F32 R4, R8, R12, R4", "STG.E [UR4], R4", 27),
        ("UIADD3 UR4, UR5, 0x1, URZ", "UIADD3 UR6, UR4, 0x1, URZ", 4),
        ("UIADD3 UR4, UR5, 0x1, URZ", "STG.E [UR4], R4", 12),
        ("UIADD3 UR4, UR5, 0x1, URZ", "UMOV UR6, UR4", 7),
        ("UIADD3 UR8, UR5, 0x1, URZ", "UTMALDG.2D [UR8], [UR4]", 9),
        ("ULDC UR4, c[0x0][0x210]", "MOV R1, UR4", 5),
        ("R2UR UR4, R5", "UIADD3 UR6, UR4, 0x1, URZ", 13),
        ("R2UR UR4, R5", "STG.E [UR4], R4", 15),
        ("ISETP.NE.AND P0, PT, R4, RZ, PT", "SEL R4, R5, R6, P0", 5),
        ("ISETP.NE.AND P0, PT, R4, RZ, PT", "@P0 MOV R4, R5", 13),
        ("ISETP.NE.AND P0, PT, R4, RZ, PT", "@P0 SEL R4, R5, R6, P0", 13),
        ("ISETP.NE.AND P0, PT, R4, RZ, PT", "VOTE.ANY R4, PT, P0", 13),
        ("ELECT P0, URZ, PT", "@P0 STG.E [UR4], R4", 13),
        ("R2UR.OR P0, UR4, R5", "SEL R4, R5, R6, P0", 13),
        ("UISETP.NE.AND UP0, UPT, UR4, URZ, UPT", "USEL UR4, UR5, UR6, UP0", 4),
        ("UISETP.NE.AND UP0, UPT, UR4, URZ, UPT", "@UP0 UIADD3 UR4, UR5, 0x1, URZ", 11),
        ("UISETP.NE.AND UP0, UPT, UR4, URZ, UPT", "PLOP3.LUT P0, PT, PT, PT, UP0, 0x80, 0x0", 6),
        ("UISETP.NE.AND UP0, UPT, UR4, URZ, UPT", "HGMMA.64x64x16.F32 R24, gdesc[UR8], R24, UP0", 11),
    ],
)
def test_distances_are_those_of_the_table(
    hopper: NvidiaIsa, read: Callable[..., Instruction], producer: str, consumer: str, cycles: int
) -> None:
    assert hopper.required_distance(read(producer), read(consumer)) == cycles


@pytest.mark.parametrize(
    ("producer", "consumer"),
    [
        ("IADD3 R4, R5, R6, R7", "IADD3 R8, R5, R6, R7"),  # independent
        ("LDG.E R4, desc[UR4][R6.64]", "IADD3 R8, R4, R6, R7"),  # a scoreboard's business
        ("IADD3 R4, R5, R6, R7", "@!PT IADD3 R8, R4, R6, R7"),  # never happens
        ("HGMMA.64x64x16.F32 R24, gdesc[UR8], RZ", "MOV R1, R24"),  # the group wait's business
    ],
)
def test_no_distance(hopper: NvidiaIsa, read: Callable[..., Instruction], producer: str, consumer: str) -> None:
    assert hopper.required_distance(read(producer), read(consumer)) == 0


def test_unknown_users_get_the_largest_value(hopper: NvidiaIsa, read: Callable[..., Instruction]) -> None:
    assert hopper.required_distance(read("IADD3 R4, R5, R6, R7"), read("FROBNICATE R4")) >= 8
    assert hopper.required_distance(read("ISETP.NE.AND P0, PT, R4, RZ, PT"), read("FROBNICATE R4")) == 13
