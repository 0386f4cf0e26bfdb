"""Left-over clocks half of promise ``effects``: a packet holds a clock of an earlier packet only where the map says so.

An optional event's register may be cleared in front of its loop instead of in each iteration. Where the event is left
out, its packet then holds its last clock once more, and a reader tells it from a new one by its age. That is right if
on every way to the store nothing but the event's own capture has written the register since it was cleared; in
particular, no way leads to the store past the clear. Of every other event no clock may be stored twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from xtrace.isa.model import Instruction
from xtrace.verify.certificate import Promise
from xtrace.verify.forms import stored
from xtrace.verify.packets import Packet
from xtrace.verify.pair import Pair
from xtrace.verify.program import forward_may
from xtrace.verify.ring import Ring

__all__ = ["check"]

_EFFECTS = Promise.EFFECTS


def check(pair: Pair, packets: Mapping[int, Packet], rings: Iterable[Ring]) -> None:
    """Check the stores that a dry run has seen; ``rings`` are its walks."""
    seen = set().union(*(ring.clocks for ring in rings))
    certain = {(j, part) for j, part, tag, event in seen if event not in packets[tag].uncleared}
    _stored_once(pair, certain)
    for packet in packets.values():
        for event in sorted(packet.uncleared):
            words = {(j, part) for j, part, tag, number in seen if (tag, number) == (packet.tag, event)}
            if not words:
                pair.fail(_EFFECTS, f"no store of event {event} of packet {packet.tag}, which is not cleared, was seen")
            for j, part in sorted(words):
                _cleared_in_front(pair, packet, event, j, part)


def _register(pair: Pair, j: int, part: int) -> int:
    """Bit of the register that a store has for one of its words; 0: none."""
    first = stored(pair.output.code[j])
    return 0 if first is None else pair.isa.layout["R"].bit(first + part)


def _cleared_in_front(pair: Pair, packet: Packet, event: int, j: int, part: int) -> None:
    """On no way to the store has anything else written the register since the clear or the capture."""
    register = _register(pair, j, part)
    capturing = set(dict(pair.align.islands()).get(packet.sites[event], ()))
    keep, gen = [], []
    for i, ins in enumerate(pair.output.code):
        written = not ins.never and (ins.opaque or bool(ins.writes & register))
        own = written and (_clears(pair, i, register) or (i in capturing and _reads_clock(ins, register)))
        keep.append(0 if written else 1)
        gen.append(int(written and not own))
    if not register or forward_may(pair.output, keep, gen, 1)[j]:
        names = ", ".join(pair.isa.layout.names(register))
        why = f"on some way {names} holds neither the clock of event {event} of packet {packet.tag} nor zero"
        pair.fail(_EFFECTS, why, pair.output.code[j])


def _clears(pair: Pair, i: int, register: int) -> bool:
    ins = pair.output.code[i]
    moves = pair.output.probe[i] and ins.base == "MOV" and not ins.guard and ins.writes == register
    return moves and re.search(r",\s*(0x0|RZ)\s*;?$", ins.text.strip()) is not None


def _reads_clock(ins: Instruction, register: int) -> bool:
    return ins.base in ("CS2R", "S2R") and not ins.guard and ins.writes == register and "SR_CLOCKLO" in ins.text


def _stored_once(pair: Pair, words: Iterable[tuple[int, int]]) -> None:
    """Between two stores of a register as an event's clock, something has written it."""
    stored: dict[int, int] = {}
    for j, part in words:
        stored[j] = stored.get(j, 0) | _register(pair, j, part)
    keep = [-1 if ins.never else ~ins.writes for ins in pair.output.code]
    before = forward_may(pair.output, keep, [stored.get(i, 0) for i in range(len(keep))])
    for j, registers in sorted(stored.items()):
        if hit := before[j] & registers:
            names = ", ".join(pair.isa.layout.names(hit))
            why = f"may store the clock in {names} once more, which the map does not say of any event there"
            pair.fail(_EFFECTS, why, pair.output.code[j])
