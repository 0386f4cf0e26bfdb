"""Registers per thread against resident blocks: how far a register count may rise for free."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SM90", "MultiprocessorLimits", "register_slack", "resident_blocks_by_registers"]


@dataclass(frozen=True, slots=True)
class MultiprocessorLimits:
    """Per-SM limits (CUDA programming guide, compute capability tables)."""

    registers: int
    warp_granule: int  # registers are given to a warp in multiples of this
    max_per_thread: int
    max_warps: int
    max_blocks: int


SM90 = MultiprocessorLimits(registers=65536, warp_granule=256, max_per_thread=255, max_warps=64, max_blocks=32)


def resident_blocks_by_registers(registers: int, threads: int, limits: MultiprocessorLimits) -> int:
    """Blocks per SM if registers were the only limit."""
    warps = max(1, -(-threads // 32))
    per_warp = -(-registers * 32 // limits.warp_granule) * limits.warp_granule
    return limits.registers // (per_warp * warps) if per_warp else limits.max_blocks


def register_slack(registers: int, threads: int | None, limits: MultiprocessorLimits) -> int:
    """Highest register count that keeps the resident blocks of ``registers`` whatever shared memory is asked for.

    Without a known block size only the allocation granule (8 registers a thread) is free.
    """
    granule = limits.warp_granule // 32
    rounded = min(-(-registers // granule) * granule, limits.max_per_thread)
    if threads is None:
        return rounded
    blocks = resident_blocks_by_registers(registers, threads, limits)
    best = rounded
    for count in range(rounded, limits.max_per_thread + 1):
        if resident_blocks_by_registers(count, threads, limits) < blocks:
            break
        best = count
    return best
