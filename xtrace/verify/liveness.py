"""Promise ``liveness``: probes write only what is dead on every path.

Looked at twice: liveness of the ORIGINAL kernel at every site, and, on the OUTPUT, that no kernel instruction can read
a value that a probe wrote. Plus what plain liveness does not see: registers owned by the matrix unit, fence windows,
operands in flight, register caps, and uniform registers that lanes of a diverged warp share.
"""

from __future__ import annotations

from collections.abc import Mapping

from xtrace.isa.model import Flow, Instruction
from xtrace.verify import prologue
from xtrace.verify.accesses import read_registers
from xtrace.verify.certificate import Promise
from xtrace.verify.ownership import fence_window, matrix_owned, register_caps
from xtrace.verify.pair import Pair
from xtrace.verify.pending import Pending, cleared_by
from xtrace.verify.program import Program, backward_may, forward_may, forward_must

__all__ = ["check", "live_before", "persistent"]

_LIVE = Promise.LIVENESS


def check(pair: Pair, pending: Pending, filler: Mapping[int, int]) -> None:
    """All liveness checks of one kernel.

    ``pending`` is the scoreboard simulation of the output, ``filler`` what probe stores read without a use for it.
    """
    if not pair.align.islands():
        return
    if pair.original.unknown or pair.output.unknown:
        pair.skip(_LIVE, "the kernel jumps through a register; its paths are unknown")
        return
    _sites(pair)
    _probe_values(pair)
    _in_flight(pair, pending, filler)
    _caps(pair)
    _uniform(pair, filler)


def live_before(program: Program) -> list[int]:
    """Registers whose value may still be read, before each instruction."""
    keep, gen = [], []
    for ins in program.code:
        if ins.never:
            keep.append(-1)
            gen.append(0)
        elif ins.opaque:
            keep.append(-1)
            gen.append(program.layout.everything)
        else:
            keep.append(~ins.kills)
            gen.append(ins.reads)
    after = backward_may(program, keep, gen)
    return [(x & k) | g for x, k, g in zip(after, keep, gen, strict=True)]


def _names(pair: Pair, bits: int) -> str:
    names = pair.isa.layout.names(bits)
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")


def _sites(pair: Pair) -> None:
    original = pair.original
    live = live_before(original)
    owned = matrix_owned(original)
    window = fence_window(original)
    for i, island in pair.align.islands():
        site = original.code[i]
        for j in island:
            ins = pair.output.code[j]
            if ins.never:
                continue
            for bits, why in (
                (live[i], "live in the original kernel"),
                (owned[i], "owned by the matrix unit until its wait"),
                (window[i], "accessed by a matrix instruction of the open fence window"),
            ):
                if hit := ins.writes & bits:
                    pair.fail(_LIVE, f"writes {_names(pair, hit)}, {why} at {site.pc:#x}", ins)


def _probe_values(pair: Pair) -> None:
    """No kernel instruction may read a register that holds a value of a probe on some path."""
    output = pair.output
    keep, gen = [], []
    for i, ins in enumerate(output.code):
        probe = output.probe[i]
        keep.append(-1 if probe else ~ins.kills)
        gen.append(ins.writes if probe and not ins.never else 0)
    before = forward_may(output, keep, gen)
    for i, ins in enumerate(output.code):
        if output.probe[i] or ins.never:
            continue
        reads = pair.isa.layout.everything if ins.opaque else ins.reads
        if hit := reads & before[i]:
            pair.fail(_LIVE, f"kernel instruction may read {_names(pair, hit)} as written by a probe", ins)


def _in_flight(pair: Pair, pending: Pending, filler: Mapping[int, int]) -> None:
    """Probes keep off registers that kernel operations in flight will still read or write."""
    for i, ins in enumerate(pair.output.code):
        if not pair.output.probe[i] or ins.never:
            continue
        waited = cleared_by(ins)
        for sb in range(pair.isa.scoreboards):
            if waited >> sb & 1:
                continue
            arriving = pending.writes(i, sb, probe=False)
            if hit := (ins.writes | ins.reads & ~filler.get(i, 0)) & arriving:
                pair.fail(
                    _LIVE, f"uses {_names(pair, hit)} while a kernel result guarded by scoreboard {sb} is due", ins
                )
            if hit := ins.writes & pending.reads(i, sb, probe=False):
                pair.fail(_LIVE, f"writes {_names(pair, hit)}, source of a kernel operation on scoreboard {sb}", ins)
        if hit := ins.writes & pending.untracked(i, probe=False):
            pair.fail(_LIVE, f"writes {_names(pair, hit)}, source of a kernel operation without a scoreboard", ins)


def _caps(pair: Pair) -> None:
    """Probes stay below the registers that every warp has at that point, minus the ones the hardware reserves."""
    output = pair.output
    wanted = {i: cap for i, ins in enumerate(output.code) if (cap := pair.isa.max_registers(ins)) is not None}
    caps = register_caps(output, pair.after.registers, wanted)
    gpr = pair.isa.layout["R"].mask
    reserved = pair.isa.reserved_registers
    for i, ins in enumerate(output.code):
        top = ((ins.reads | ins.writes) & gpr).bit_length()
        if output.probe[i] and top > caps[i] - reserved:
            pair.fail(_LIVE, f"uses R{top - 1}, but only {caps[i]} registers minus {reserved} are certain here", ins)


def persistent(pair: Pair) -> int:
    """Registers that some island reads before it writes them: state that probes keep between islands."""
    exposed = 0
    for _, island in pair.align.islands():
        written = 0
        for j in island:
            ins = pair.output.code[j]
            exposed |= ins.reads & ~written
            written |= ins.kills
    return exposed


def _uniform(pair: Pair, filler: Mapping[int, int]) -> None:
    layout = pair.isa.layout
    uniform = layout["UR"].mask | layout["UP"].mask
    named = 0
    for ins in pair.original.code:
        named |= ins.writes | ins.reads
    kept = persistent(pair)
    state = kept & layout["UR"].mask
    if hit := state & named:
        pair.fail(_LIVE, f"probes keep state in {_names(pair, hit)}, which the kernel uses")
    if pair.claim is not None:
        own = state
        beginning = prologue.parts(pair)
        for i, island in pair.align.islands():
            for j in () if i in beginning else island:  # the prologue may use what the kernel has not touched yet
                own |= pair.output.code[j].writes & layout["UR"].mask & ~named
        unclaimed = set(layout.names(own)) - set(pair.claim.get("probe_registers") or ())
        if unclaimed:
            pair.fail(_LIVE, f"probes keep state in {', '.join(sorted(unclaimed))}, which the map does not list")
    converged = _converged(pair.original)
    for i, island in pair.align.islands():
        for j in island:
            ins = pair.output.code[j]
            if (hit := ins.writes & uniform & named) and not converged[i] and not ins.never:
                pair.fail(_LIVE, f"writes {_names(pair, hit)} of the kernel where lanes may have diverged", ins)
    # A probe that records an address reads kernel registers that no probe set; all others must not.
    _defined(pair, kept, filler, read_registers(pair))


def _defined(pair: Pair, state: int, filler: Mapping[int, int], allowed: Mapping[int, int]) -> None:
    """Probe state must have been set by a probe on every path to where a probe reads it."""
    output = pair.output
    keep, gen = [], []
    for i, ins in enumerate(output.code):
        probe = output.probe[i]
        keep.append(-1 if probe or ins.never else ~ins.writes)
        gen.append(ins.kills & state if probe else 0)
    before = forward_must(output, keep, gen, top=state)
    for i, ins in enumerate(output.code):
        unset = ins.reads & state & ~before[i] & ~filler.get(i, 0) & ~allowed.get(i, 0)
        if output.probe[i] and (hit := unset):
            pair.fail(_LIVE, f"reads {_names(pair, hit)} that no probe has set on some path", ins)


def _may_diverge(ins: Instruction) -> bool:
    if ins.flow in (Flow.INDIRECT, Flow.RETURN, Flow.CALL):
        return True
    if ins.flow is not Flow.BRANCH or not ins.falls_through:
        return False
    return not (ins.opcode.startswith("BRA.U") or ins.guard.lstrip("@!").startswith("UP"))


def _converged(program: Program) -> list[bool]:
    """True where all lanes of a warp are certainly together: no branch that can split them since entry."""
    keep, gen = [], []
    for ins in program.code:
        split = _may_diverge(ins)
        whole = ins.base == "WARPSYNC" and ins.opcode.startswith("WARPSYNC.ALL") and not ins.conditional
        keep.append(0 if split else -1)
        gen.append(1 if whole else 0)
    return [bool(x & 1) for x in forward_must(program, keep, gen, 1, top=1)]
