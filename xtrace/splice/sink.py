"""Where most of the prologue goes: to the first place where the kernel waits for its loads anyway.

In front of a kernel's first instruction every word is paid for in full: the loads that a short kernel waits for issue
so much later. Behind them, in front of an instruction that waits for what they bring, the same words cost nothing until
the results are there. Only the reads of the entry times stay at the entry.

The place lies in the entry block, which every warp passes once, all lanes together, and in front of every other
island. How long the kernel waits at each instruction is guessed by issuing the block in order with typical latencies; a
guess is enough, because no place is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xtrace.analysis import KernelAnalysis
from xtrace.isa.model import Flow
from xtrace.isa.nvidia import encode
from xtrace.isa.nvidia.emit import UniformState
from xtrace.isa.nvidia.prologue import UNIFORM_SCRATCH, PrologueRegisters

from .chains import touched
from .model import Form, KernelPlan, SunkPrologue
from .resources import FreeFinder, touches_scoreboard

__all__ = ["sunk_prologue", "uniform_scratch"]

_GLOBAL_LOAD = 280  # cycles until its result arrives from the second-level cache
_OTHER = 30  # of special registers, constants, MUFU and conversions: 27 to 37
_WORTH = 1  # cycles that the kernel must wait at a place
_ENOUGH = 100  # cycles that the rest of a prologue takes


def sunk_prologue(plan: KernelPlan, free: FreeFinder) -> SunkPrologue | None:
    """Place and registers of the rest of the prologue, once all other islands are known.

    None where there is no such place, for a sampled kernel, whose warps decide at once whether they are traced, and for
    the forms of probes without islands of their own.
    """
    a, state = plan.analysis, plan.state
    if plan.form is not Form.SCHEDULED or plan.sample is not None or state is None:
        return None
    others = {p.site.index for p in plan.islands if p.site.kind != "entry"} | set(plan.waits)
    end = min(others, default=len(a.instructions))
    at_entry = [n for p in plan.placed if p.site.kind == "entry" for n in p.scratch] + list(free.at(0).groups(1))
    places = [x for x in _places(a, end) if x[1] >= _WORTH]
    # Behind the first loads rather than in front of them; then where the kernel waits longest.
    for index, _, _ in sorted(places, key=lambda x: (not x[2], -min(x[1], _ENOUGH), x[0])):
        stop = min(end, a.cfg.blocks[0].last + 1)
        settled = sum(a.issue_cycles[index:stop])
        found = _registers(a, state, free, at_entry, index, settled)
        if found is not None:
            return found
    return None


def _places(a: KernelAnalysis, end: int) -> Iterator[tuple[int, int, bool]]:
    """(instruction, cycles that it waits for results, whether a global load stands before it) in the entry block."""
    time = 0
    arrives = [0] * a.isa.scoreboards
    behind = False
    for i in range(min(end, a.cfg.blocks[0].last + 1)):
        ins = a.instructions[i]
        if a.divergent[i] or a.isa.max_registers(ins) is not None or ins.opaque:
            return
        waits = touches_scoreboard(ins) if "copy_wait" in ins.tags else ins.control.wait_mask
        ready = max((at for sb, at in enumerate(arrives) if waits >> sb & 1), default=0)
        if i:
            yield i, max(ready - time, 0), behind
        if ins.flow is not Flow.FALL:
            return
        time = max(time, ready)
        if ins.control.write_sb is not None:
            slow = "global_load" in ins.tags or "copy_commit" in ins.tags
            arrives[ins.control.write_sb] = time + (_GLOBAL_LOAD if slow else _OTHER)
        behind |= "global_load" in ins.tags
        time += a.issue_cycles[i]


def _registers(
    a: KernelAnalysis, state: UniformState, free: FreeFinder, at_entry: Sequence[int], index: int, settled: int
) -> SunkPrologue | None:
    """``at_entry`` are general registers that are free there."""
    here, uniform = free.at(index), uniform_scratch(a, index, state)
    block = a.kernel.required_threads
    needed = PrologueRegisters.needed(block)
    general = list(here.groups(1))
    if uniform is None or not here.scoreboards or len(general) < needed:
        return None
    lasting = _untouched(a, [n for n in at_entry if n in general], index)
    carried = len(lasting) >= 2 and len(general) >= needed + 2
    times = lasting[:2] if carried else at_entry[:2]
    if len(times) < 2:
        return None
    scratch = tuple(n for n in general if not carried or n not in times)[:needed]
    timer, clock = times
    registers = PrologueRegisters((timer, clock), scratch, *uniform, here.scoreboards[0], block)
    return SunkPrologue(index, registers, carried, settled)


def _untouched(a: KernelAnalysis, registers: Sequence[int], index: int) -> list[int]:
    """Those of ``registers`` that the kernel leaves alone before an instruction of the entry block."""
    bits = touched(a, range(index))
    return [n for n in registers if not bits >> n & 1]


def uniform_scratch(a: KernelAnalysis, index: int, state: UniformState) -> tuple[tuple[int, ...], int] | None:
    """Uniform registers and a uniform predicate that are free before an instruction; those the kernel never names
    come first.
    """
    layout = a.isa.layout
    taken = a.liveness.before[index] | a.inflight.busy[index] | a.recently_used(index) | state.bits
    uniform = [n for n in range(encode.URZ) if not taken & layout["UR"].bit(n)]
    uniform.sort(key=lambda n: bool(a.named & layout["UR"].bit(n)))
    predicates = [n for n in range(7) if not taken & layout["UP"].bit(n)]
    predicates.sort(key=lambda n: bool(a.named & layout["UP"].bit(n)))
    if len(uniform) < UNIFORM_SCRATCH or not predicates:
        return None
    return tuple(uniform[:UNIFORM_SCRATCH]), predicates[0]
