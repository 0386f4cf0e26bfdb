"""Trace set ``mem``: the address of every access to global memory.

Not among them: local and shared memory, and copies by the tensor memory accelerator, which have coordinates or a
descriptor instead of an address per lane.
"""

from __future__ import annotations

from xtrace.analysis import KernelAnalysis
from xtrace.isa.model import Access, Instruction

from .site import Site

__all__ = ["access_sites", "overwrites", "sources"]

_COPY = frozenset({"copy_async", "global_load"})
_FARTHEST = 16  # instructions from an access to where its address may be read


def access_sites(a: KernelAnalysis) -> list[Site]:
    """One site per access that control reaches, in address order."""
    sites = []
    for ins in a.instructions:
        found = a.isa.global_access(ins)
        if found is None or not a.reachable(ins.index):
            continue
        if isinstance(found, str):
            sites.append(Site(ins.index, ins.opcode, refusal=found))
        else:
            sites.append(Site(ins.index, found.kind, alternatives=_places(a, ins, found), access=ins.index))
    return sites


def sources(a: KernelAnalysis, access: Access) -> int:
    """Registers (bit set) that make up an access's address and conditions."""
    layout = a.isa.layout
    bits = 0
    if access.base is not None:
        bits |= layout["R"].bit(access.base, 1 if access.uniform is not None else 2)
    if access.uniform is not None:
        bits |= layout["UR"].bit(access.uniform, 2)
    for predicate, _ in access.conditions:
        bits |= layout["P"].bit(predicate)
    return bits


def _places(a: KernelAnalysis, ins: Instruction, access: Access) -> tuple[int, ...]:
    """Instructions of the block behind the access before which all its registers are still what they were."""
    block = a.cfg.blocks[a.cfg.block_of[ins.index]]
    wanted, places = sources(a, access), []
    for k in range(ins.index, min(block.last, ins.index + _FARTHEST)):
        if overwrites(a, a.instructions[k]) & wanted:
            break
        places.append(k + 1)
    return tuple(places)


def overwrites(a: KernelAnalysis, ins: Instruction) -> int:
    """Registers that an instruction writes. The predicate of an asynchronous copy is listed, but only read."""
    return ins.writes & ~a.isa.layout["P"].mask if ins.tags >= _COPY else ins.writes
