"""Registers that instructions read and write, from their text."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from xtrace.isa.model import Instruction, RegisterLayout
from xtrace.isa.nvidia.decode import NvidiaIsa


def bits(layout: RegisterLayout, names: str) -> int:
    """``"R4:2 UR6 P0"`` -> bit set."""
    result = 0
    for name in names.split():
        register, _, width = name.partition(":")
        file = register.rstrip("0123456789")
        result |= layout[file].bit(int(register[len(file) :]), int(width or 1))
    return result


CASES = [
    # text, reads, writes
    ("IADD3 R1, R2, -R3, R4", "R2 R3 R4", "R1"),
    ("IADD3 R0, P1, P2, R5, UR7, RZ", "R5 UR7", "R0 P1 P2"),
    ("IADD3.X R6, R7, UR8, RZ, P1, !P2", "R7 UR8 P1 P2", "R6"),
    ("LEA.HI.X R6, R7.reuse, UR8, R9, 0x2, P3", "R7 UR8 R9 P3", "R6"),
    ("IMAD.WIDE.U32 R2, R5, 0x4, R8", "R5 R8:2", "R2:2"),
    ("IMAD.HI.U32 R3, R3, R5, R2", "R3 R5 R2:2", "R3"),
    ("SHF.R.U64 R3, R4, 0x3, R5", "R4 R5", "R3"),
    ("SHF.L.U64.HI R3, R4, 0x3, R5", "R4 R5", "R3"),
    ("LOP3.LUT P0, RZ, R4, 0x1, RZ, 0xc0, !PT", "R4", "P0"),
    ("LOP3.LUT R1, R4, UR5, ~R6, 0xf8, !PT", "R4 UR5 R6", "R1"),
    ("ISETP.GE.U32.AND P0, PT, R4, c[0x0][0x210], P1", "R4 P1", "P0"),
    ("ISETP.NE.AND.EX P0, P2, R4, UR5, !P1, P3", "R4 UR5 P1 P3", "P0 P2"),
    ("FSETP.GT.AND P1, PT, |R8|.reuse, 8.50705917302346158658e+37, PT", "R8", "P1"),
    ("PLOP3.LUT P0, PT, P1, P2, !P3, 0x80, 0x0", "P1 P2 P3", "P0"),
    ("FSEL R1, R2, -INF , !P4", "R2 P4", "R1"),
    ("HFMA2.MMA R2, -RZ, R3.H0_H0, 1.875, 0", "R3", "R2"),
    ("PRMT R2, R3, 0x7610, R2", "R2 R3", "R2"),
    ("MOV R4, c[0x0][R1+0x10]", "R1", "R4"),
    ("LDC.64 R4, c[0x0][R8]", "R8", "R4:2"),
    ("ULDC.64 UR4, c[0x0][UR6+0x10]", "UR6", "UR4:2"),
    ("CS2R R4, SR_CLOCKLO", "", "R4:2"),
    ("CS2R.32 R4, SR_CLOCKLO", "", "R4"),
    ("S2UR UR4, SR_CTAID.X", "", "UR4"),
    ("P2R R6, PR, RZ, 0x5", "P0 P2", "R6"),
    ("R2P PR, R6, 0x3", "R6 P0 P1", "P0 P1"),
    ("DFMA R4, R6, -R8, R10", "R6:2 R8:2 R10:2", "R4:2"),
    ("DSETP.GEU.AND P0, PT, |R6|, R8, PT", "R6:2 R8:2", "P0"),
    ("F2F.F64.F32 R4, R9", "R9", "R4:2"),
    ("F2F.F32.F64 R9, R4", "R4:2", "R9"),
    ("F2I.S64.F64.TRUNC R4, R6", "R6:2", "R4:2"),
    ("I2F.F64.S64 R4, R6", "R6:2", "R4:2"),
    ("I2F.RP R4, R6", "R6", "R4"),
    ("MUFU.RCP64H R5, R7", "R7", "R5"),
    ("SHFL.IDX P0, R3, R4, R5, 0x1f", "R4 R5", "P0 R3"),
    ("VOTE.ANY R0, PT, !P1", "P1", "R0"),
    ("VOTEU.ANY UR4, UPT, PT", "", "UR4"),
    ("VOTEU.ALL UP1, P3", "P3", "UP1"),
    ("ELECT P0, URZ, PT", "", "P0"),
    ("R2UR.OR P0, UR4, R5", "R5", "P0 UR4"),
    ("R2UR UR4, R5", "R5", "UR4"),
    ("LDG.E.64 R4, desc[UR6][R8.64+0x10]", "UR6:2 R8:2", "R4:2"),
    ("LDG.E.128.CONSTANT R4, [R8.64+UR10+-0x10]", "R8:2 UR10:2", "R4:4"),
    ("LDG.E R0, [R2]", "R2:2", "R0"),
    ("STG.E.128 desc[UR6][R8.64], R12", "UR6:2 R8:2 R12:4", ""),
    ("STG.E.64 [UR4+0x18], R6", "UR4:2 R6:2", ""),
    ("LDS.U.128 R4, [R2.X8+UR3+0x10]", "R2 UR3", "R4:4"),
    ("LDL.LU.64 R4, [R1+0x10]", "R1", "R4:2"),
    ("LDSM.16.MT88.2 R4, [R9+UR5]", "R9 UR5", "R4:2"),
    ("STSM.16.M88.4 [R9], R12", "R9 R12:4", ""),
    ("ATOMG.E.CAS.64.STRONG.GPU PT, R10, desc[UR4][R6.64], R8, R12", "UR4:2 R6:2 R8:2 R12:2", "R10:2"),
    ("ATOMG.E.ADD.F32x4.FTZ.RN.STRONG.GPU PT, R24, desc[UR10][R4.64], R28", "UR10:2 R4:2 R28:4", "R24:4"),
    ("REDG.E.ADD.F16x8.RN.STRONG.GPU desc[UR6][R10.64], R4", "UR6:2 R10:2 R4:4", ""),
    ("LDGSTS.E.BYPASS.128 [R23+0x40], desc[UR6][R14.64], !P0", "R23 UR6:2 R14:2 P0", "P0"),
    ("HMMA.16816.F32.BF16 R4, R8, R12, R4", "R8:4 R12:2 R4:4", "R4:4"),
    ("HMMA.16816.F16 R4, R8, R12, RZ", "R8:4 R12:2", "R4:2"),
    ("HMMA.1688.F32.TF32 R4, R8, R12, R16", "R8:4 R12:2 R16:4", "R4:4"),
    ("IMMA.16832.S8.S8 R4, R8.ROW, R12.COL, R4", "R8:4 R12:2 R4:4", "R4:4"),
    ("DMMA.8x8x4 R4, R6, R8, R12", "R6:2 R8:2 R12:4", "R4:4"),
    ("HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8], R24, gsb0", "UR8:4 R24:64", "R24:64"),
    ("HGMMA.64x128x16.F32.BF16 R24, R4, gdesc[UR8].tnspB, R24", "R4:4 UR8:4 R24:64", "R24:64"),
    ("HGMMA.64x64x16.F32 R24, gdesc[UR8], RZ, !UPT", "UR8:4", "R24:32"),
    ("HGMMA.64x64x16.F16 R24, gdesc[UR8], R24, UP0", "UR8:4 R24:16 UP0", "R24:16"),
    ("QGMMA.64x32x32.F32.E4M3.E5M2 R24, R4, gdesc[UR8], R24", "R4:4 UR8:4 R24:16", "R24:16"),
    ("HGMMA.SP.64x64x32.F16 R24, R40, gdesc[UR4], R24, UP0, R44, 0x0", "R40:4 UR4:4 R24:16 UP0 R44", "R24:16"),
    ("UTMALDG.4D [UR8], [UR18], desc[UR20]", "UR8:6 UR18:2 UR20:2", ""),
    ("UTMALDG.2D.MULTICAST [UR12], [UR8], UR4", "UR12:4 UR8:2 UR4", ""),
    ("UTMASTG.5D [UR8], [UR16]", "UR8:6 UR16:2", ""),
    ("UTMAPF.L2.4D [UR32], [UR12]", "UR32:4 UR12:2", ""),
    ("UTMACCTL.PF [UR4]", "UR4:2", ""),
    ("UBLKCP.S.G [UR8], [UR12], UR14", "UR8:2 UR12:2 UR14", ""),
    ("SYNCS.EXCH.64 URZ, [UR6+0x34800], UR4", "UR6 UR4:2", ""),
    ("SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [R18+URZ+0x28850], R9", "R18 R9", "P1"),
    ("SYNCS.ARRIVE.TRANS64.A1T0 R4, [UR6], RZ", "UR6", "R4:2"),
    ("SYNCS.ARRIVE.TRANS64.RED.A1T0 RZ, [R4+URZ], RZ", "R4", ""),
    ("USETMAXREG.TRY_ALLOC.CTAPOOL UP2, 0xe8", "", "UP2"),
    ("UIADD3.64 UR4, UR6, 0x10, URZ", "UR6:2", "UR4:2"),
    ("UIADD3.X UR7, URZ, UR5, URZ, UP0, !UPT", "UR5 UP0", "UR7"),
    ("UIMAD.WIDE.U32 UR4, UR6, UR7, UR8", "UR6 UR7 UR8:2", "UR4:2"),
    ("USEL UR4, UR5, UR6, !UP3", "UR5 UR6 UP3", "UR4"),
    ("VIADDMNMX R4, R5, UR6, R7, !PT", "R5 UR6 R7", "R4"),
    ("VIMNMX R4, R5, 0x7f, P2", "R5 P2", "R4"),
    ("BAR.SYNC.DEFER_BLOCKING R4, 0x100", "R4", ""),
    ("B2R.RESULT RZ, P1", "", "P1"),
    ("WARPSYNC R4", "R4", ""),
    ("NANOSLEEP R4", "R4", ""),
    ("BSYNC B3", "B3", ""),
    ("BREAK !P1, B3", "P1 B3", "B3"),
    ("BMOV.32.CLEAR R4, B6", "B6", "R4 B6"),
    ("BMOV.32 B6, R4", "R4", "B6"),
    ("DEPBAR.LE SB0, 0x0", "", ""),
    ("CCTL.IVALL", "", ""),
    ("@!UP0 SYNCS.EXCH.64 URZ, [UR6], UR4", "UP0 UR6 UR4:2", ""),
    ("@P3 MOV R4, UR5", "P3 UR5", "R4"),
]


@pytest.mark.parametrize(("text", "reads", "writes"), CASES, ids=[c[0] for c in CASES])
def test_reads_and_writes(
    hopper: NvidiaIsa, read: Callable[..., Instruction], text: str, reads: str, writes: str
) -> None:
    ins = read(text)
    names = hopper.layout.names
    assert not ins.opaque
    assert names(ins.reads) == names(bits(hopper.layout, reads))
    assert names(ins.writes) == names(bits(hopper.layout, writes))


@pytest.mark.parametrize(
    "text",
    [
        "FROBNICATE R1, R2",  # unknown mnemonic
        "MOV R1, R2.WEIRD",  # unknown operand suffix
        "MOV R1, tmem[UR4]",  # unknown operand
        "SYNCS.NEWKIND R1, [R2]",  # unknown widths
        "HMMA.99999.F32 R4, R8, R12, R4",
        "LDG.INVALID3 R4, [R2.64]",
        "FADD",  # result missing
        "TEX.LL R6, R4, R4, R6, UR4, 0x0, 2D",
        "",
        "\x00 %s {",
    ],
)
def test_what_is_not_understood_reads_and_writes_everything(
    hopper: NvidiaIsa, read: Callable[..., Instruction], text: str
) -> None:
    ins = read(text)
    assert ins.opaque
    assert ins.reads == ins.writes == hopper.layout.everything
    assert ins.kills == 0


def test_a_guard_is_read_and_a_guarded_write_does_not_kill(hopper: NvidiaIsa, read: Callable[..., Instruction]) -> None:
    ins = read("@!P2 MOV R4, R5")
    assert (ins.guard, ins.conditional, ins.kills) == ("@!P2", True, 0)
    assert "P2" in hopper.layout.names(ins.reads)
    assert read("MOV R4, R5").kills == bits(hopper.layout, "R4")


def test_never_executed_has_no_effects(read: Callable[..., Instruction]) -> None:
    ins = read("@!PT LDS R4, [R5]")
    assert (ins.never, ins.reads, ins.writes) == (True, 0, 0)
