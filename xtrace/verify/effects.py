"""Promise ``effects``: probe code does nothing but compute and store into the warp's own slot of the trace buffer.

Three parts: an allow-list of instructions; the form of every store (through a uniform address pair that only probes
set); and a dry run on made-up launches, which checks where each store would go and what the records would say.
"""

from __future__ import annotations

from xtrace.isa.model import Flow, Instruction
from xtrace.verify import copies, derived, dryrun, prologue, sampled, stripes
from xtrace.verify.certificate import Promise
from xtrace.verify.emulate import MNEMONICS
from xtrace.verify.forms import misaligned
from xtrace.verify.pair import Pair

__all__ = ["check"]

_EFFECTS = Promise.EFFECTS
_FORBIDDEN = {
    "barrier", "barrier_arrive", "mbarrier_wait", "mbarrier_arrive", "copy_async", "copy_commit", "copy_wait",
    "global_load", "shared_load", "shared_store", "local_load", "local_store", "atomic", "setmaxreg", "converge",
    "nanosleep", "matrix", "matrix_async", "matrix_commit", "matrix_fence", "matrix_wait",
}  # fmt: skip
_VALUES = ("buffer_lo", "buffer_hi", "header_lo", "header_hi", "slot_count")
_OPTIONAL = "header_policy"
_FREE_BITS = sum(((1 << n) - 1) << b for b, n in ((125, 3), (102, 2), (104, 1)))  # reserved, performance monitor select


def check(pair: Pair) -> dict[int, int]:
    """All effect checks of one kernel.

    Returns the registers of each probe store (by traced index) that only fill the room in front of a packet's clocks:
    what they hold, and whether it has arrived, does not matter.
    """
    islands = pair.align.islands()
    if not islands:
        return {}
    for _, island in islands:
        for j in island:
            if not copies.is_way(pair, j):
                _allowed(pair, pair.output.code[j])
    if pair.claim is None:
        pair.skip(_EFFECTS, "where stores go and what is patched at load is only known with a trace map")
        return {}
    patches = _patches(pair)
    prologue.check(pair, {j for j, value in (patches or {}).items() if value != stripes.PATCH})
    sampled.check(pair)
    stripes.check(pair, patches or {})
    if patches is None or pair.findings.failed(_EFFECTS, pair.name):
        return {}
    return dryrun.check(pair, patches, derived.check(pair))


def _allowed(pair: Pair, ins: Instruction) -> None:
    if ins.opaque:
        pair.fail(_EFFECTS, "probe instruction that the instruction set model does not know", ins)
    elif ins.flow is not Flow.FALL:
        pair.fail(_EFFECTS, "probe changes the control flow", ins)
    elif hit := sorted(ins.tags & _FORBIDDEN):
        pair.fail(_EFFECTS, f"probe has a forbidden effect ({', '.join(hit)})", ins)
    elif ins.base not in MNEMONICS:
        pair.fail(_EFFECTS, f"{ins.base} is not among what a probe may consist of", ins)
    elif ins.writes & ~_writable(pair):
        pair.fail(_EFFECTS, "probe writes a convergence barrier", ins)
    elif register := misaligned(ins):
        pair.fail(_EFFECTS, f"{register} does not start an aligned group of registers: an illegal instruction", ins)
    elif ins.word & _FREE_BITS:
        pair.fail(_EFFECTS, "probe word has reserved bits set", ins)


def _writable(pair: Pair) -> int:
    classes = pair.isa.layout.classes
    return sum(classes[name].mask for name in ("R", "P", "UR", "UP") if name in classes)


def _patches(pair: Pair) -> dict[int, str] | None:
    """Index of the traced instruction -> name of the value patched into its immediate."""
    claim, found = pair.claim or {}, {}
    values = (*_VALUES, *([stripes.PATCH] if "stripe" in (claim.get("slot") or {}) else []))
    origin = pair.align.origin()
    start, end = pair.after.offset, pair.after.offset + len(pair.after.text)
    good = True
    for patch in claim.get("patches") or ():
        offset, value = patch["offset"], patch.get("value")
        index, inside = divmod(offset - start, pair.word_bytes)
        if value not in (*values, _OPTIONAL):
            why = f"map patches an unknown value {value!r}"
        elif not start <= offset < end or inside != 4:
            why = f"map patches file offset {offset:#x}, which is no immediate of this kernel"
        elif origin[index] >= 0 or index in pair.align.padding or index in pair.align.copy:
            why = f"map patches an instruction of the kernel at file offset {offset:#x}"
        elif pair.output.code[index].word >> 32 & 0xFFFFFFFF:
            why = f"patched immediate at {offset:#x} is not zero before loading"
        elif index in found:
            why = f"map patches file offset {offset:#x} twice"
        else:
            found[index] = value
            continue
        good = False
        pair.fail(_EFFECTS, why, pair.output.code[index] if 0 <= index < len(pair.output.code) else None)
    needed = values if claim.get("packets") else values[2:]  # without packets there is no ring to find
    missing = [v for v in needed if v not in found.values()]
    if missing:
        good = False
        pair.fail(_EFFECTS, f"map patches no {' and no '.join(missing)}")
    return found if good else None
