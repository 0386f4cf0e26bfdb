"""Data: the attributes of ``.nv.info`` and which of them carry code offsets.

Provenance
----------
* Names: every code 0x01-0x7f written into a test cubin and printed by ``cuobjdump -elf`` 13.2 (codes it calls
  unknown are absent here).
* ``Carries`` classes: payloads of cubins made by ptxas 12.8-13.5 compared with their disassembly. In particular
  ``ANNOTATIONS`` holds pairs {kind, offset} whose kind-1 offsets are exactly the STL/LDL of register spills, and
  ``UNUSED_LOAD_BYTE_OFFSET`` holds pairs {offset, byte mask} of wide loads of which some bytes are unused (seen on
  LDS.128 with mask 0xfff0). ``MBARRIER_INSTR_OFFSETS`` has records of four words; only the first is an offset.
* ``UNKNOWN`` means: could hold an offset, never seen or not understood. An image that has it is refused.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["CARRIES", "NAMES", "Carries", "attribute_name"]


class Carries(Enum):
    """What a payload holds, as far as moving code is concerned."""

    NOTHING = "no code offset"
    OFFSETS = "array of u32 instruction offsets"
    PAIRS_SECOND = "array of {u32 kind, u32 instruction offset}, kind 1 only"
    PAIRS_FIRST = "array of {u32 instruction offset, u32 other}"
    QUADS_FIRST = "array of {u32 instruction offset, 3 x u32 other}"
    BRANCHES = "records {u32 branch offset, u32 0, u32 n, n x u32 target}"
    REGISTERS = "{u32 symbol, u32 register count}"
    UNKNOWN = "possibly a code offset"


NAMES: dict[int, str] = {
    0x01: "PAD",
    0x02: "IMAGE_SLOT",
    0x03: "JUMPTABLE_RELOCS",
    0x04: "CTAIDZ_USED",
    0x05: "MAX_THREADS",
    0x06: "IMAGE_OFFSET",
    0x07: "IMAGE_SIZE",
    0x08: "TEXTURE_NORMALIZED",
    0x09: "SAMPLER_INIT",
    0x0A: "PARAM_CBANK",
    0x0B: "SMEM_PARAM_OFFSETS",
    0x0C: "CBANK_PARAM_OFFSETS",
    0x0D: "SYNC_STACK",
    0x0E: "TEXID_SAMPID_MAP",
    0x0F: "EXTERNS",
    0x10: "REQNTID",
    0x11: "FRAME_SIZE",
    0x12: "MIN_STACK_SIZE",
    0x13: "SAMPLER_FORCE_UNNORMALIZED",
    0x14: "BINDLESS_IMAGE_OFFSETS",
    0x15: "BINDLESS_TEXTURE_BANK",
    0x16: "BINDLESS_SURFACE_BANK",
    0x17: "KPARAM_INFO",
    0x18: "SMEM_PARAM_SIZE",
    0x19: "CBANK_PARAM_SIZE",
    0x1A: "QUERY_NUMATTRIB",
    0x1B: "MAXREG_COUNT",
    0x1C: "EXIT_INSTR_OFFSETS",
    0x1D: "S2RCTAID_INSTR_OFFSETS",
    0x1E: "CRS_STACK_SIZE",
    0x1F: "NEED_CNP_WRAPPER",
    0x20: "NEED_CNP_PATCH",
    0x21: "EXPLICIT_CACHING",
    0x22: "ISTYPEP_USED",
    0x23: "MAX_STACK_SIZE",
    0x24: "SUQ_USED",
    0x25: "LD_CACHEMOD_INSTR_OFFSETS",
    0x26: "LOAD_CACHE_REQUEST",
    0x27: "ATOM_SYS_INSTR_OFFSETS",
    0x28: "COOP_GROUP_INSTR_OFFSETS",
    0x29: "COOP_GROUP_MASK_REGIDS",
    0x2A: "SW1850030_WAR",
    0x2B: "WMMA_USED",
    0x2C: "HAS_PRE_V10_OBJECT",
    0x2D: "ATOMF16_EMUL_INSTR_OFFSETS",
    0x2E: "ATOM16_EMUL_INSTR_REG_MAP",
    0x2F: "REGCOUNT",
    0x30: "SW2393858_WAR",
    0x31: "INT_WARP_WIDE_INSTR_OFFSETS",
    0x32: "SHARED_SCRATCH",
    0x33: "STATISTICS",
    0x34: "INDIRECT_BRANCH_TARGETS",
    0x35: "SW2861232_WAR",
    0x36: "SW_WAR",
    0x37: "CUDA_API_VERSION",
    0x38: "NUM_MBARRIERS",
    0x39: "MBARRIER_INSTR_OFFSETS",
    0x3A: "COROUTINE_RESUME_ID_OFFSETS",
    0x3B: "SAM_REGION_STACK_SIZE",
    0x3C: "PER_REG_TARGET_PERF_STATS",
    0x3D: "CTA_PER_CLUSTER",
    0x3E: "EXPLICIT_CLUSTER",
    0x3F: "MAX_CLUSTER_RANK",
    0x40: "INSTR_REG_MAP",
    0x41: "RESERVED_SMEM_USED",
    0x42: "RESERVED_SMEM_0_SIZE",
    0x43: "UCODE_SECTION_DATA",
    0x44: "UNUSED_LOAD_BYTE_OFFSET",
    0x45: "KPARAM_INFO_V2",
    0x46: "SYSCALL_OFFSETS",
    0x47: "SW_WAR_MEMBAR_SYS_INSTR_OFFSETS",
    0x48: "GRAPHICS_GLOBAL_CBANK",
    0x49: "SHADER_TYPE",
    0x4A: "VRC_CTA_INIT_COUNT",
    0x4B: "TOOLS_PATCH_FUNC",
    0x4C: "NUM_BARRIERS",
    0x4D: "TEXMODE_INDEPENDENT",
    0x4E: "PERF_STATISTICS",
    0x4F: "AT_ENTRY_FRAGMENTS",
    0x50: "SPARSE_MMA_MASK",
    0x51: "TCGEN05_1CTA_USED",
    0x52: "TCGEN05_2CTA_USED",
    0x53: "GEN_ERRBAR_AT_EXIT",
    0x54: "REG_RECONFIG",
    0x55: "ANNOTATIONS",
    0x57: "STACK_CANARY_TRAP_OFFSETS",
    0x58: "STUB_FUNCTION_KIND",
    0x59: "LOCAL_CTA_ASYNC_STORE_OFFSETS",
    0x5A: "MERCURY_FINALIZER_OPTIONS",
    0x5B: "BLOCKS_ARE_CLUSTERS",
    0x5C: "SANITIZE",
    0x5D: "SYSCALLS_FALLBACK",
    0x5E: "CUDA_REQ",
    0x5F: "MERCURY_ISA_VERSION",
    0x61: "RTCORE_ENTRY",
    0x62: "CLUSTER_LAUNCH_CONTROL_USED",
    0x64: "MIN_PER_CTA_MEMORY_SIZE",
    0x65: "IGNOREOOB_CP_ASYNC_BULK_INSTR_OFFSETS",
    0x66: "LANGUAGE",
    0x6B: "NVSAL_SW_WAR",
}

# fmt: off
_NOTHING = frozenset((
    0x04, 0x05, 0x0A, 0x0F, 0x10, 0x11, 0x12, 0x17, 0x19, 0x1B, 0x1E, 0x23, 0x29, 0x35, 0x36, 0x37, 0x38, 0x3D, 0x3E,
    0x3F, 0x41, 0x42, 0x45, 0x4A, 0x4C, 0x50, 0x51, 0x52, 0x53, 0x54, 0x5B, 0x5F,
))
# fmt: on
_OFFSETS = (0x1C, 0x1D, 0x25, 0x27, 0x28, 0x2D, 0x31, 0x3A, 0x46, 0x47, 0x57, 0x59, 0x65)

#: Attribute code -> what it carries; codes that are not listed are UNKNOWN.
CARRIES: dict[int, Carries] = {
    **dict.fromkeys(_NOTHING, Carries.NOTHING),
    **dict.fromkeys(_OFFSETS, Carries.OFFSETS),
    0x2F: Carries.REGISTERS,
    0x34: Carries.BRANCHES,
    0x39: Carries.QUADS_FIRST,
    0x44: Carries.PAIRS_FIRST,
    0x55: Carries.PAIRS_SECOND,
}

MAX_THREADS, PARAM_CBANK, REQNTID, KPARAM_INFO, CBANK_PARAM_SIZE = 0x05, 0x0A, 0x10, 0x17, 0x19
REGCOUNT, INDIRECT_BRANCH_TARGETS, NUM_BARRIERS = 0x2F, 0x34, 0x4C


def attribute_name(code: int) -> str:
    """Name of an attribute for messages, e.g. ``"EIATTR_EXIT_INSTR_OFFSETS (0x1c)"``."""
    return f"EIATTR_{NAMES.get(code, 'unknown')} ({code:#04x})"
