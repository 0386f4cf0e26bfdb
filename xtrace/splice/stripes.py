"""Fewer bytes, and neighbouring ones, for kernels that are bound by memory.

Such a kernel pays for the traffic of its packets (decision 0002). *Short clocks* make packets smaller (see
:mod:`.words`). With *stripes*, the first packets of all warps stand side by side, then the second ones, and so on:
what warps write at about the same time is neighbours in memory. Then all packets have one size, so that none straddles
a stripe, and no packet needs room behind the ring.

A kernel without tensor-core instructions is taken for one that is bound by memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xtrace.analysis import KernelAnalysis
from xtrace.isa.nvidia.emit import SlotLayout, UniformState

from .chains import Chain
from .model import QUAD_BYTES, Clocks, Form, Options, Packet, Stripes, quads
from .words import Words

__all__ = ["bound_by_memory", "free_pair", "short_words", "stripe", "striped", "wants_stripes", "with_base"]

SECTOR_BYTES = 32
SIZES = (16, 32, 64)  # of packets in stripes, bytes
_MOST_PADDING = 4 / 3  # bytes with padding over bytes without: 48 bytes touch as many sectors as 64
_TENSOR_CORES = frozenset({"matrix", "matrix_async"})


def bound_by_memory(a: KernelAnalysis) -> bool:
    """No instruction for the tensor cores: taken for bound by memory. Some other measure of it nobody has."""
    return not any(ins.tags & _TENSOR_CORES for ins in a.instructions)


def short_words(a: KernelAnalysis, chain: Chain, options: Options) -> Words | None:
    """Words of the chain's packet with short clocks; None where they are not wanted or save nothing.

    Not with optional events: what 16 bits say of a clock cannot say that there was none.
    """
    if options.clocks is Clocks.FULL or options.form is not Form.SCHEDULED or len(chain.events) < 3:
        return None
    if chain.words.addresses or any(event.optional for event in chain.events):
        return None
    short = replace(chain.words, short=True)
    full, less = (QUAD_BYTES * quads(words.count) for words in (chain.words, short))
    if options.clocks is Clocks.AUTO:
        if not bound_by_memory(a):
            return None
        full, less = (-(-size // SECTOR_BYTES) for size in (full, less))
    return short if less < full else None


def wants_stripes(a: KernelAnalysis, options: Options) -> bool:
    if options.stripes is Stripes.OFF or options.form is not Form.SCHEDULED:
        return False
    return options.stripes is Stripes.ON or bound_by_memory(a)


def free_pair(a: KernelAnalysis, state: UniformState) -> int | None:
    """A pair of uniform registers that neither the kernel nor the state has a use for."""
    free = {n for n in a.free_uniform if not state.bits & a.isa.layout["UR"].bit(n)}
    return max((n for n in free if n % 2 == 0 and n + 1 in free), default=None)


def with_base(a: KernelAnalysis, state: UniformState) -> UniformState | None:
    """The state with a pair of uniform registers for the address of the warp's first packet; None: there is no such."""
    pair = free_pair(a, state)
    return None if pair is None else replace(state, base=pair)


def stripe(packets: Sequence[Packet], options: Options) -> int | None:
    """Size that all packets get; None: no stripes."""
    sizes = [packet.size for packet in packets]
    if not sizes or max(sizes) > SIZES[-1]:
        return None
    size = next(n for n in SIZES if n >= max(sizes))
    if options.stripes is Stripes.ON:
        return size
    if any(p.address for packet in packets for p in packet.records):
        return None
    return size if size * len(sizes) <= _MOST_PADDING * sum(sizes) else None


def striped(packets: Sequence[Packet], slot: SlotLayout, size: int) -> SlotLayout:
    """Make all packets ``size`` bytes large, by undefined ones in front; the layout of the slot with stripes."""
    for packet in packets:
        pad = size - packet.size
        packet.pad = pad
        for p in packet.storing:
            p.stores = [store._replace(offset=store.offset + pad) for store in p.stores]
        for p in (*packet.islands, *packet.apart):
            if p.cursor is not None and p.cursor.size:
                p.cursor = p.cursor._replace(size=size)
    return SlotLayout(stride=slot.ring, ring=slot.ring, stripe=size)
