"""Promise ``resources``: the traced kernel asks for what it needs, no less, and runs with the same occupancy."""

from __future__ import annotations

from xtrace.verify.certificate import Promise
from xtrace.verify.pair import Pair

__all__ = ["Limits", "blocks_per_sm", "check", "same_occupancy"]

_RESOURCES = Promise.RESOURCES


class Limits:
    """Per-SM limits of the sm_90 family (CUDA programming guide, table of technical specifications)."""

    registers = 65536
    granule = 8  # registers per thread are allocated in multiples of this (256 per warp)
    warps = 64
    blocks = 32
    shared = 228 * 1024
    shared_reserved = 1024  # per block, used by the system
    shared_granule = 128
    partitions = 4  # the register file is split between the SM's partitions


def blocks_per_sm(registers: int, warps_per_block: int, shared: int) -> int:
    """Resident blocks per SM for a kernel with that many registers per thread and bytes of shared memory."""
    per_thread = -(-registers // Limits.granule) * Limits.granule
    warps = Limits.registers // (max(per_thread, Limits.granule) * 32)
    warps -= warps % Limits.partitions
    by_registers = warps // warps_per_block
    used = -(-(shared + Limits.shared_reserved) // Limits.shared_granule) * Limits.shared_granule
    return min(by_registers, Limits.warps // warps_per_block, Limits.blocks, Limits.shared // used)


def same_occupancy(before: int, after: int, warps: range, shared: int) -> bool:
    """Whether a change of the register count leaves the resident blocks alone for every block size in ``warps``.

    ``shared`` is the statically allocated part only: a launch that adds dynamic shared memory can only lower the limit
    that both counts share.
    """
    return all(blocks_per_sm(before, w, shared) == blocks_per_sm(after, w, shared) for w in warps)


def check(pair: Pair) -> None:
    """Register count, occupancy and every other launch resource of one kernel."""
    before, after = pair.before, pair.after
    _registers(pair)
    for what in ("max_threads", "required_threads", "shared_static", "barriers", "param_base", "param_size"):
        old, new = getattr(before, what), getattr(after, what)
        if old != new:
            pair.fail(_RESOURCES, f"{what.replace('_', ' ')} changed from {old} to {new}")


def _registers(pair: Pair) -> None:
    before, after = pair.before.registers, pair.after.registers
    gpr = pair.isa.layout["R"].mask
    top, witness = 0, None
    # Where warps trade registers at run time the count is only what they start with; liveness checks the caps there.
    trades = any(pair.isa.max_registers(ins) is not None for ins in pair.original.code)
    for i, ins in enumerate(pair.output.code):
        if pair.output.probe[i] and not trades:
            used = ((ins.reads | ins.writes) & gpr).bit_length()
            if used > top:
                top, witness = used, ins
    need = top + pair.isa.reserved_registers if top else 0
    if after < before:
        pair.fail(_RESOURCES, f"register count lowered from {before} to {after}")
    if after < need:
        why = f"register count {after}, but probes use R{top - 1} and {pair.isa.reserved_registers} are reserved"
        pair.fail(_RESOURCES, why, witness)
    if after > max(before, need):
        pair.fail(_RESOURCES, f"register count {after} is more than the {max(before, need)} that are needed")
    if after != before:
        if trades:
            pair.fail(_RESOURCES, "register count changed in a kernel that moves registers between its warps")
        threads = pair.before.max_threads
        most = -(-threads // 32) if threads else 32
        warps = range(most, most + 1) if pair.before.required_threads else range(1, most + 1)
        if not same_occupancy(before, after, warps, pair.before.shared_static):
            pair.fail(_RESOURCES, f"raising the register count from {before} to {after} lowers the occupancy")
    claim = (pair.claim or {}).get("registers")
    if claim is not None and (claim.get("before"), claim.get("after")) != (before, after):
        pair.fail(_RESOURCES, f"map says registers {claim}, the files have {before} and {after}")
