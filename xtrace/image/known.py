"""Data: which sections of a cubin can be carried over unchanged when code grows.

Provenance: section lists of cubins from ptxas 12.4-13.5, contents compared with their disassembly. ``handled`` sections
hold code offsets that the writer brings along. Anything else that is not empty makes the writer refuse the image.
"""

from __future__ import annotations

__all__ = ["DEBUG_BUILD", "FRAMES", "LINES", "MERCURY", "is_known"]

LINES = (".debug_line", ".nv_debug_line_sass")
FRAMES = (".debug_frame",)
#: Only full debug builds (-G) have this: register locations by code range in a format that is not understood.
DEBUG_BUILD = (".nv_debug_info_reg_sass", ".debug_aranges", ".debug_ranges", ".debug_rnglists", ".debug_loclists")
#: A second, re-finalisable description of the original code (sm_100 and newer).
MERCURY = (".nv.capmerc", ".nv.merc.")

_EXACT = frozenset(
    {
        "",
        ".shstrtab",
        ".strtab",
        ".symtab",
        ".symtab_shndx",
        ".nv.info",
        ".nv.compat",
        ".nv.callgraph",  # symbol numbers only
        ".nv.prototype",  # symbol numbers only
        ".nv.rel.action",  # how to apply relocation types
        ".nv.global",
        ".nv.global.init",
        ".nv.uft.entry.empty",
        ".nv_debug_ptx_txt",
        ".nv_debug_info_reg_type",  # indexed by PTX register, no code range
        ".debug_info",  # code addresses only through relocations
        ".debug_loc",  # code addresses only through relocations
        ".debug_abbrev",
        ".debug_str",
        ".debug_macinfo",
        ".debug_pubnames",
        ".debug_pubtypes",
        *LINES,
        *FRAMES,
    }
)
_PREFIXES = (
    ".text.",
    ".nv.info.",
    ".nv.shared.",
    ".nv.constant",
    ".nv.local.",
    ".rela.",
    ".rel.",
    ".note.",
    ".nv.global.",
)


def is_known(name: str) -> bool:
    """Whether the writer knows what stands in a section of that name."""
    return name in _EXACT or name.startswith(_PREFIXES)
