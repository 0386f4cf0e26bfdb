"""What each mnemonic does with its operands, as data.

One row per mnemonic (``Row``). ``outs`` says which leading operands are results, in the order printed:

* ``p2`` - exactly two predicates; ``p`` - one predicate;
* ``d`` - a register;
* ``[p]``, ``[d]`` - the same, if present; ``[p2]`` - up to two predicates.

Everything behind the results is a source. ``width`` names a rule of :mod:`xtrace.isa.nvidia.widths`; without one every
plain register is 32 bits unless the text marks it ``.64``. ``pipe`` is the timing class of
:mod:`xtrace.isa.nvidia.latency`; ``variable`` results signal through a scoreboard.

Provenance: mnemonics and operand orders from disassembling compiled code for sm_90a; widths and results checked against
the disassembler's own life-range analysis (tests/isa); ``variable`` from where the assembler claims write scoreboards.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["OPCODES", "Pipe", "Row"]


class Pipe(Enum):
    """Timing class of an instruction."""

    FXU = "integer and logic"
    FMA = "multiply-add"
    FP64 = "double precision"
    MMA = "matrix, synchronous"
    GMMA = "matrix, asynchronous"
    MIO_FAST = "conversions, transcendental"
    MIO_SLOW = "memory, barriers, shuffles"
    BRANCH = "branch"
    UDP = "uniform datapath"
    UMOV = "uniform move"
    ULOAD = "uniform load and vote"
    R2UR = "register to uniform"
    TMA = "tensor memory accelerator"
    OTHER = "no result, no register timing"


@dataclass(frozen=True, slots=True)
class Row:
    """Behaviour of one mnemonic."""

    outs: str
    pipe: Pipe
    variable: bool = False
    width: str = ""
    tags: tuple[str, ...] = ()


def _rows(names: str, outs: str, pipe: Pipe, *tags: str, variable: bool = False, width: str = "") -> dict[str, Row]:
    row = Row(outs, pipe, variable, width, tags)
    return dict.fromkeys(names.split(), row)


_P = Pipe
_MEM = "memory"

OPCODES: dict[str, Row] = {
    # 32-bit integer, logic, moves
    **_rows("BMSK I2FP I2I I2IP IABS IDP IDP4A LEA SEL SGXT SHF SHL SHR VABSDIFF VABSDIFF4", "d [p2]", _P.FXU),
    **_rows("IADD3 VIADD VIADDMNMX VIADDMNMX3 VIMNMX VIMNMX3 VHMNMX IMNMX", "d [p2]", _P.FXU),
    **_rows("IADD IADD32I ISCADD ISCADD32I LOP LOP32I MOV MOV32I PRMT F2FP F2IP", "d [p]", _P.FXU),
    **_rows("FMNMX FSEL FSET FSWZADD HMNMX2 HSET2", "d [p]", _P.FXU),
    **_rows("LOP3", "[p] d", _P.FXU),
    **_rows("CS2R", "d", _P.FXU, width="cs2r"),
    **_rows("ISETP FSETP HSETP2 PLOP3 PSETP", "p2", _P.FXU),
    **_rows("P2R", "d", _P.FXU, width="p2r"),
    **_rows("R2P", "", _P.FXU, width="r2p"),
    **_rows("VOTE", "[d] [p]", _P.FXU),
    **_rows("ELECT", "p [d]", _P.FXU, "elect"),
    **_rows("LEPC", "d", _P.FXU, width="pair"),
    # multiply-add
    **_rows("FADD FADD32I FFMA FFMA32I FMUL FMUL32I", "d", _P.FMA),
    **_rows("HADD2 HADD2_32I HFMA2 HFMA2_32I HMUL2 HMUL2_32I", "d", _P.FMA),
    **_rows("IMAD IMUL IMUL32I", "d [p2]", _P.FMA, width="imad"),
    # double precision
    **_rows("DADD DMUL DFMA", "d", _P.FP64, width="double"),
    **_rows("DSETP", "p2", _P.FP64, width="double"),
    # conversions and transcendental functions
    **_rows("BREV FLO POPC MUFU", "d", _P.MIO_FAST, _MEM, variable=True),
    **_rows("F2F", "d", _P.MIO_FAST, _MEM, variable=True, width="f2f"),
    **_rows("F2I", "d", _P.MIO_FAST, _MEM, variable=True, width="f2i"),
    **_rows("I2F", "d", _P.MIO_FAST, _MEM, variable=True, width="i2f"),
    **_rows("FRND", "d", _P.MIO_FAST, _MEM, variable=True, width="frnd"),
    **_rows("FCHK", "p", _P.MIO_FAST, _MEM, variable=True),
    # matrix
    **_rows("HMMA", "d", _P.MMA, "matrix", width="hmma"),
    **_rows("IMMA", "d", _P.MMA, "matrix", width="imma"),
    **_rows("BMMA", "d", _P.MMA, "matrix", width="bmma"),
    **_rows("DMMA", "d", _P.MMA, "matrix", width="dmma"),
    **_rows("HGMMA IGMMA QGMMA BGMMA", "d", _P.GMMA, "matrix", "matrix_async", width="gmma"),
    **_rows("WARPGROUP", "", _P.GMMA),
    **_rows("MOVM", "d", _P.MIO_SLOW, _MEM, variable=True),
    # memory
    **_rows("LDG", "d [p2]", _P.MIO_SLOW, _MEM, "global_load", variable=True, width="load"),
    **_rows("LD", "d [p2]", _P.MIO_SLOW, _MEM, "global_load", "generic", variable=True, width="load"),
    **_rows("LDS", "d [p]", _P.MIO_SLOW, _MEM, "shared_load", variable=True, width="load"),
    **_rows("LDL", "d [p]", _P.MIO_SLOW, _MEM, "local_load", variable=True, width="load"),
    **_rows("LDC", "d", _P.MIO_SLOW, _MEM, variable=True, width="load"),
    **_rows("STG", "", _P.MIO_SLOW, _MEM, "global_store", width="store"),
    **_rows("ST", "", _P.MIO_SLOW, _MEM, "global_store", "generic", width="store"),
    **_rows("STS", "", _P.MIO_SLOW, _MEM, "shared_store", width="store"),
    **_rows("STL", "", _P.MIO_SLOW, _MEM, "local_store", width="store"),
    **_rows("STAS", "", _P.MIO_SLOW, _MEM, "shared_store", width="store"),
    **_rows("LDSM", "d", _P.MIO_SLOW, _MEM, "shared_load", variable=True, width="ldsm"),
    **_rows("STSM", "", _P.MIO_SLOW, _MEM, "shared_store", width="stsm"),
    **_rows("LDGSTS", "", _P.MIO_SLOW, _MEM, "copy_async", "global_load", variable=True, width="ldgsts"),
    **_rows("LDGDEPBAR", "", _P.MIO_SLOW, _MEM, "copy_commit", variable=True),
    **_rows("DEPBAR", "", _P.OTHER, "copy_wait"),
    **_rows("ARRIVES", "", _P.MIO_SLOW, _MEM, "mbarrier_arrive"),
    **_rows("ATOM ATOMG", "[p] [d]", _P.MIO_SLOW, _MEM, "atomic", variable=True, width="atomic"),
    **_rows("ATOMS", "[p] [d]", _P.MIO_SLOW, _MEM, "atomic", variable=True, width="atomic"),
    **_rows("RED REDG REDS REDAS", "", _P.MIO_SLOW, _MEM, "atomic", width="atomic"),
    **_rows("LDGMC", "d", _P.MIO_SLOW, _MEM, "global_load", "atomic", variable=True, width="atomic"),
    **_rows("QSPC", "[p] [d]", _P.MIO_SLOW, _MEM, variable=True, width="load"),
    **_rows("CCTL CCTLL", "", _P.MIO_SLOW, _MEM, width="global"),
    **_rows("MEMBAR FENCE ERRBAR CGAERRBAR", "", _P.MIO_SLOW, _MEM),
    **_rows("SYNCS", "[p] [d]", _P.MIO_SLOW, _MEM, variable=True, width="syncs"),
    # between lanes and to the uniform side
    **_rows("SHFL", "[p] d", _P.MIO_SLOW, _MEM, variable=True),
    **_rows("MATCH", "[p] d", _P.MIO_SLOW, _MEM, variable=True, width="match"),
    **_rows("S2R", "d", _P.MIO_SLOW, _MEM, variable=True),
    **_rows("B2R", "[d] [p]", _P.MIO_SLOW, _MEM, variable=True),
    **_rows("S2UR", "d", _P.MIO_SLOW, _MEM, variable=True),
    **_rows("REDUX", "d", _P.MIO_SLOW, _MEM, variable=True),
    **_rows("R2UR", "[p] d", _P.R2UR),
    # uniform datapath
    **_rows("UBMSK ULEA UPRMT USEL USGXT USHF USHL USHR UIADD3", "d [p2]", _P.UDP, width="uniform"),
    **_rows("UBREV UFLO UPOPC", "d", _P.UDP),
    **_rows("UIMAD", "d [p2]", _P.UDP, width="imad"),
    **_rows("ULOP3 ULOP ULOP32I", "[p] d", _P.UDP),
    **_rows("UISETP UPLOP3 UPSETP", "p2", _P.UDP),
    **_rows("UP2UR", "d", _P.UDP, width="p2r"),
    **_rows("UR2UP", "", _P.UDP, width="r2p"),
    **_rows("UMOV", "d", _P.UMOV, width="load"),
    **_rows("ULDC", "d", _P.ULOAD, width="load"),
    **_rows("VOTEU", "[d] [p]", _P.ULOAD),
    **_rows("USETMAXREG", "[p]", _P.OTHER, "setmaxreg", variable=True),
    # tensor memory accelerator and bulk copies
    **_rows("UTMALDG UTMASTG UTMAREDG", "", _P.TMA, _MEM, "copy_async", variable=True, width="tma"),
    **_rows("UTMAPF UTMACCTL", "", _P.TMA, _MEM, variable=True, width="tma"),
    **_rows("UBLKCP UBLKRED", "", _P.TMA, _MEM, "copy_async", variable=True, width="bulk"),
    **_rows("UBLKPF", "", _P.TMA, _MEM, variable=True, width="bulk"),
    **_rows("UTMACMDFLUSH", "", _P.TMA, _MEM, "copy_commit", variable=True),
    # synchronisation
    **_rows("BAR", "", _P.MIO_SLOW, _MEM, variable=True),
    **_rows("UCGABAR_ARV", "", _P.MIO_SLOW, _MEM, "barrier_arrive"),
    **_rows("UCGABAR_WAIT", "", _P.MIO_SLOW, _MEM, "barrier"),
    **_rows("NANOSLEEP", "", _P.MIO_SLOW, "nanosleep"),
    **_rows("WARPSYNC", "", _P.BRANCH, "converge"),
    **_rows("ENDCOLLECTIVE", "", _P.BRANCH, "converge"),
    **_rows("BSSY", "d", _P.BRANCH, "converge"),
    **_rows("BSYNC", "", _P.BRANCH, "converge"),
    **_rows("BREAK", "", _P.BRANCH, "converge", width="break"),
    **_rows("BMOV", "d", _P.BRANCH, "converge", variable=True, width="bmov"),
    # control flow
    **_rows("BRA EXIT KILL", "", _P.BRANCH),
    **_rows("BRX BRXU CALL RET JMP JMX JMXU", "", _P.BRANCH, width="address"),
    **_rows("NOP YIELD ACQBULK PREEXIT PMTRIG BPT", "", _P.OTHER),
}
