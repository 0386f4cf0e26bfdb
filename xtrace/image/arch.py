"""Which GPU an image is for.

The number comes from ``e_flags``; where it stands depends on the flavour (ptxas up to 12.x: ABI 7, low byte;
ptxas 13.x: ABI 8, bits 8-15). The ``a`` ("architecture-specific features") is decided by the first evidence
found, strongest first:

1. the command line that ptxas 13 records in ``.note.nv.tkinfo`` (``-arch sm_90a``);
2. the ``.target`` line of a PTX text kept in ``.nv_debug_ptx_txt``;
3. the accelerator bit of ``e_flags`` (ABI 7: 0x800, ABI 8: 0x8), which ptxas 12.x sets and ptxas 13.0 does not;
4. an instruction that only the ``a`` variant has (WARPGROUP, the GMMA family, USETMAXREG on sm_90).

Without any evidence the plain number is reported: such code uses nothing that sets the two apart, and both run on
the same GPU. Bit meanings were checked with cubins made by ptxas 12.8 and 13.0 for sm_90 and sm_90a.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

__all__ = ["FLAVOURS", "KNOWN_SM", "decide"]

#: (EI_OSABI, EI_ABIVERSION) -> name of the flavour.
FLAVOURS: dict[tuple[int, int], str] = {(0x33, 7): "abi7", (0x41, 8): "abi8"}
#: Architectures with 16-byte instructions that NVIDIA's tools know.
KNOWN_SM = frozenset({70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 107, 110, 120, 121})
#: Low 12 bits of instructions that exist only with the suffix, by SM.
SPECIFIC_OPCODES: dict[int, frozenset[int]] = {90: frozenset({0x9C5, 0x9C8, 0x9F0, 0xDF0})}

_ACCELERATORS = {"abi7": 0x800, "abi8": 0x8}


def sm_number(flags: int, flavour: str) -> int:
    return flags & 0xFF if flavour == "abi7" else flags >> 8 & 0xFF


def decide(flags: int, flavour: str, evidence: Mapping[str, bytes], texts: Iterable[bytes]) -> str:
    """Full architecture name, e.g. ``"sm_90a"``.

    ``evidence`` maps section names to contents (only ``.note.nv.tkinfo`` and ``.nv_debug_ptx_txt`` are looked at).
    """
    sm = sm_number(flags, flavour)
    patterns = (
        (".note.nv.tkinfo", rb"sm_%d([af]?)(?![0-9a-z])"),
        (".nv_debug_ptx_txt", rb"\.target\s+sm_%d([af]?)\b"),
    )
    for section, pattern in patterns:
        content = evidence.get(section, b"")[:65536]
        match = re.search(pattern % sm, content)
        if match:
            return f"sm_{sm}{match[1].decode()}"
    if flags & _ACCELERATORS[flavour] or any(_uses(text, SPECIFIC_OPCODES.get(sm)) for text in texts):
        return f"sm_{sm}a"
    return f"sm_{sm}"


def _uses(text: bytes, opcodes: frozenset[int] | None) -> bool:
    if not opcodes:
        return False
    words = zip(text[0::16], text[1::16], strict=False)
    return any((low | (high & 0xF) << 8) in opcodes for low, high in words)
