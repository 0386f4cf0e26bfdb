"""Scoreboard half of promise ``hazards``: every claim is waited for, nobody waits for the wrong side.

* A probe operation of variable latency claims a scoreboard, and nobody touches its registers before a wait.
* Probes neither claim nor wait on a scoreboard that the kernel holds. Two exceptions: the instruction at the site
  waits for the same scoreboard anyway and the probe needs a register or the scoreboard itself; the warp is about to
  end (unguarded EXIT at the site).
* The kernel neither claims nor waits on a scoreboard that a probe still holds.
"""

from __future__ import annotations

from xtrace.isa.model import Flow, Instruction, Latency
from xtrace.verify.certificate import Promise
from xtrace.verify.pair import Pair
from xtrace.verify.pending import Pending, cleared_by

__all__ = ["check"]

_HAZARDS = Promise.HAZARDS


def check(pair: Pair, pending: Pending) -> None:
    """Check the protocol at every instruction of the output, given what is outstanding there."""
    code, probe = pair.output.code, pair.output.probe
    site_of: dict[int, Instruction] = {}
    for i, island in pair.align.islands():
        site = pair.output.code[pair.align.position[i]]
        site_of.update(dict.fromkeys(island, site))
    for i, ins in enumerate(code):
        if probe[i]:
            _probe(pair, pending, i, ins, site_of.get(i))
        elif pending.probes_at_work(i):
            _kernel(pair, pending, i, ins)


def _claims(ins: Instruction) -> int:
    return sum(1 << sb for sb in {ins.control.write_sb, ins.control.read_sb} if sb is not None)


def _list(mask: int) -> str:
    return ", ".join(str(k) for k in range(8) if mask >> k & 1)


def _probe(pair: Pair, pending: Pending, i: int, ins: Instruction, site: Instruction | None) -> None:
    layout = pair.isa.layout
    ending = site is not None and site.flow is Flow.EXIT and not site.conditional
    waited = cleared_by(ins)
    held = pending.claimed(i, probe=False)
    foreign = waited & held
    for sb in range(pair.isa.scoreboards):
        if not foreign >> sb & 1:
            continue
        needs = (ins.reads | ins.writes) & pending.writes(i, sb, probe=False)
        needs = needs or ins.writes & pending.reads(i, sb, probe=False) or _claims(ins) >> sb & 1
        if not ending and not (needs and site is not None and cleared_by(site) >> sb & 1):
            pair.fail(_HAZARDS, f"probe waits for scoreboard {sb}, which the kernel may hold here", ins)
    claims = _claims(ins)
    if claims >> pair.isa.scoreboards:
        pair.fail(_HAZARDS, f"claims scoreboard {_list(claims >> pair.isa.scoreboards << pair.isa.scoreboards)}", ins)
    if (stolen := claims & held & ~waited) and not ending:
        pair.fail(_HAZARDS, f"probe claims scoreboard {_list(stolen)}, which the kernel may hold here", ins)
    if claims and "memory" not in ins.tags:
        pair.fail(_HAZARDS, "claims a scoreboard that an instruction of fixed latency never releases", ins)
    sources = ins.reads & (layout["R"].mask | layout["UR"].mask)
    if ins.latency is Latency.VARIABLE and ins.writes and ins.control.write_sb is None:
        pair.fail(_HAZARDS, "result of variable latency without a scoreboard", ins)
    if "memory" in ins.tags and not ins.writes and sources and not claims and not ending:
        pair.fail(_HAZARDS, "sources are read late, but no scoreboard tells when", ins)
    _touches(pair, pending, i, ins, waited)


def _kernel(pair: Pair, pending: Pending, i: int, ins: Instruction) -> None:
    held = pending.claimed(i, probe=True)
    waited = cleared_by(ins)
    if hit := ins.control.wait_mask & held:
        pair.fail(_HAZARDS, f"kernel waits for scoreboard {_list(hit)}, which a probe may hold here", ins)
    elif waited & held or ("copy_wait" in ins.tags and any(f"SB{k}" in ins.text for k in range(8) if held >> k & 1)):
        pair.fail(_HAZARDS, "kernel counts down a scoreboard that a probe may hold here", ins)
    if hit := _claims(ins) & held:
        pair.fail(_HAZARDS, f"kernel claims scoreboard {_list(hit)}, which a probe may hold here", ins)
    if not ins.never:
        _touches(pair, pending, i, ins, waited)


def _touches(pair: Pair, pending: Pending, i: int, ins: Instruction, waited: int) -> None:
    """Registers of probe operations in flight: not read before they arrive, not overwritten before they were read."""
    layout = pair.isa.layout
    reads = layout.everything if ins.opaque else ins.reads
    writes = layout.everything if ins.opaque else ins.writes
    for sb in range(pair.isa.scoreboards):
        if waited >> sb & 1:
            continue
        if hit := (reads | writes) & pending.writes(i, sb, probe=True):
            names = ", ".join(layout.names(hit)[:4])
            pair.fail(_HAZARDS, f"uses {names} before the probe's result is waited for (scoreboard {sb})", ins)
        if hit := writes & pending.reads(i, sb, probe=True):
            names = ", ".join(layout.names(hit)[:4])
            pair.fail(_HAZARDS, f"overwrites {names} before the probe's store has read it (scoreboard {sb})", ins)
    if hit := writes & pending.untracked(i, probe=True):
        pair.fail(_HAZARDS, f"overwrites {', '.join(layout.names(hit)[:4])}, source of an untracked probe store", ins)
