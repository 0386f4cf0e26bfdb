"""What differs between NVIDIA families, as data.

Values were found by decoding words with every bit toggled and by reading what the vendor's assembler emits
for each target. ``verified`` families were also run on hardware with spliced probes; the others are listed so that
the differences stay visible, but :func:`xtrace.isa.for_arch` refuses them until somebody has run them.
"""

from __future__ import annotations

from dataclasses import dataclass

from xtrace.errors import Unsupported

__all__ = ["FAMILIES", "Family", "family_of"]


@dataclass(frozen=True, slots=True)
class Family:
    """One group of architectures with the same encodings.

    Offsets are bytes in constant bank 0. ``branch_low`` is the width of the low part of a branch offset that sits in
    bits 16-23 (0 or 8); the high 48 bits are in bits 34-81 everywhere.
    """

    name: str
    archs: tuple[str, ...]
    uniform_registers: int  # UR0 .. count-1 exist
    uniform_zero: int  # encoding of URZ
    branch_low: int
    param_base: int
    stack_pointer: int
    descriptor: int | None  # generic 64-bit memory descriptor; None: the family has none
    block_dim: int  # x, then y and z at +4 and +8
    grid_dim: int
    constant_to_uniform: str  # mnemonic
    r2ur_fixed: bool  # False: R2UR signals through a scoreboard
    has_elect: bool
    reserved_registers: int  # GPRs below the register count that the hardware does not let a kernel use
    registers_in_section: bool  # the register count is repeated in the text section's sh_info
    verified: bool
    reason: str = ""  # why not, for the error message


def _old(name: str, archs: tuple[str, ...], descriptor: int | None) -> Family:
    return Family(
        name=name,
        archs=archs,
        uniform_registers=63,
        uniform_zero=63,
        branch_low=0,
        param_base=0x160,
        stack_pointer=0x28,
        descriptor=descriptor,
        block_dim=0x0,
        grid_dim=0xC,
        constant_to_uniform="ULDC",
        r2ur_fixed=False,
        has_elect=False,
        reserved_registers=2,
        registers_in_section=True,
        verified=False,
        reason="probes were never run on this family",
    )


def _new(name: str, archs: tuple[str, ...], reason: str) -> Family:
    return Family(
        name=name,
        archs=archs,
        uniform_registers=80,
        uniform_zero=255,
        branch_low=8,
        param_base=0x380,
        stack_pointer=0x37C,
        descriptor=0x358,
        block_dim=0x360,
        grid_dim=0x370,
        constant_to_uniform="LDCU",
        r2ur_fixed=True,
        has_elect=True,
        reserved_registers=2,
        registers_in_section=False,
        verified=False,
        reason=reason,
    )


FAMILIES: tuple[Family, ...] = (
    _old("turing", ("sm_75",), None),
    _old("ampere", ("sm_80", "sm_86", "sm_87", "sm_88", "sm_89"), 0x118),
    Family(
        name="hopper",
        archs=("sm_90", "sm_90a"),
        uniform_registers=63,
        uniform_zero=63,
        branch_low=8,
        param_base=0x210,
        stack_pointer=0x28,
        descriptor=0x208,
        block_dim=0x0,
        grid_dim=0xC,
        constant_to_uniform="ULDC",
        r2ur_fixed=True,
        has_elect=True,
        reserved_registers=2,
        registers_in_section=False,
        verified=True,
    ),
    _new(
        "blackwell",
        ("sm_100", "sm_100a", "sm_100f", "sm_103", "sm_103a", "sm_103f", "sm_110", "sm_110a", "sm_110f"),
        "tensor-memory operands (UTC*MMA, LDTM, STTM) are not modelled yet",
    ),
    _new(
        "blackwell-consumer",
        ("sm_120", "sm_120a", "sm_120f", "sm_121", "sm_121a", "sm_121f"),
        "probes were never run on this family",
    ),
)


def family_of(arch: str) -> Family:
    """The family that ``arch`` (``"sm_90a"``) belongs to.

    Raises :class:`~xtrace.errors.Unsupported` XT2001 for a name that no family lists.
    """
    for family in FAMILIES:
        if arch in family.archs:
            return family
    known = ", ".join(a for f in FAMILIES if f.verified for a in f.archs)
    raise Unsupported("XT2001", f"no instruction-set model for architecture {arch!r}", hint=f"supported: {known}")
