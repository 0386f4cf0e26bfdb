"""Where the word that names a packet is set: once if possible, else with every packet."""

from __future__ import annotations

from .ahead import place_ahead
from .model import Form, KernelPlan
from .resources import FreeFinder

__all__ = ["place_tags"]


def place_tags(result: KernelPlan, free: FreeFinder) -> None:
    """Move ``MOV tag`` out of loops: into the prologue, where nothing else ever writes the register, else in front of
    the loop (if scheduled).

    Not into the prologue where warp roles trade registers: those of a role do not exist yet there.
    """
    a = result.analysis
    users: dict[int, int] = {}
    for packet in result.packets:
        for n in range(packet.registers.bit_length()):
            users[n] = users.get(n, 0) + (packet.registers >> n & 1)
    for p in result.placed:
        if p.site.kind == "exit" and a.instructions[p.site.index].guard:
            for n in p.general:
                users[n] = users.get(n, 0) + 1
    for packet in result.packets:
        register = packet.tag_register
        if register is None:
            for p in packet.islands:
                p.stores = [s if s.fill is None else s._replace(fill=packet.tag) for s in p.stores]
            continue
        named = a.named >> register & 1
        packet.preset = result.form is Form.SCHEDULED and not (
            a.moves_registers or named or users[register] > 1 or a.loop_of(packet.records[0].site.index) is None
        )
    if result.form is Form.SCHEDULED:
        place_ahead(result, free)
    for packet in result.packets:
        if packet.tag_register is not None and packet.tag_island is not None and not packet.preset:
            packet.tag_island.moves.append((packet.tag_register, packet.tag))
