"""Registers that look dead but are not free: matrix unit ownership, fence windows, register caps.

Sources: facts on WGMMA operands (owned from issue to the wait that retires their group), the fence window between
WARPGROUP.ARRIVE and the matrix instructions behind it, and setmaxnreg.
"""

from __future__ import annotations

from xtrace.isa.model import Flow, Instruction
from xtrace.verify.program import Program, backward_may

__all__ = ["fence_window", "matrix_owned", "register_caps"]

_GROUPS = 4  # groups told apart; older ones count as one


def fence_window(program: Program) -> list[int]:
    """GPRs that a matrix instruction reachable without another fence will access, before each instruction.

    A write to one of these between the fence and the matrix instruction is not ordered against it.
    """
    gpr = program.layout["R"].mask
    keep, gen = [], []
    for ins in program.code:
        keep.append(0 if "matrix_fence" in ins.tags else -1)
        gen.append((ins.reads | ins.writes) & gpr if "matrix_async" in ins.tags else 0)
    after = backward_may(program, keep, gen)
    return [(x & k) | g for x, k, g in zip(after, keep, gen, strict=True)]


def matrix_owned(program: Program) -> list[int]:
    """GPRs that the matrix unit may still own before each instruction (union over paths)."""
    count = len(program.code)
    if not any("matrix_async" in ins.tags for ins in program.code):
        return [0] * count
    gpr = program.layout["R"].mask
    blocks = program.blocks()
    events = [
        [i for i in block if program.code[i].tags & {"matrix_async", "matrix_commit", "matrix_wait"}]
        for block in blocks
    ]
    empty = (0,) * (_GROUPS + 1)
    into = [empty] * len(blocks)
    work = list(range(len(blocks)))
    first = {block.start: n for n, block in enumerate(blocks)}
    done: list[tuple[int, ...] | None] = [None] * len(blocks)
    while work:
        n = work.pop()
        state = into[n]
        for i in events[n]:
            state = _step(state, program.code[i], gpr)
        if state == done[n]:
            continue
        done[n] = state
        for j in program.succ[blocks[n].stop - 1]:
            m = first[j]
            merged = tuple(a | b for a, b in zip(into[m], state, strict=True))
            if merged != into[m] or done[m] is None:
                into[m] = merged
                work.append(m)
    owned = [0] * count
    for n, block in enumerate(blocks):
        state = into[n]
        for i in block:
            for lane in state:
                owned[i] |= lane
            if i in events[n]:
                state = _step(state, program.code[i], gpr)
    return owned


def _step(state: tuple[int, ...], ins: Instruction, gpr: int) -> tuple[int, ...]:
    """Lane 0 is the group being filled, lane k the k-th youngest group in flight; the last lane keeps all older."""
    if "matrix_async" in ins.tags:
        state = (state[0] | ((ins.reads | ins.writes) & gpr), *state[1:])
    if "matrix_commit" in ins.tags:
        state = (0, *state[:-2], state[-2] | state[-1])
    if "matrix_wait" in ins.tags:
        pending = next((int(t[8:]) for t in ins.tags if t.startswith("pending=") and t[8:].isdigit()), _GROUPS)
        state = tuple(lane if k <= pending else 0 for k, lane in enumerate(state))
    return state


def register_caps(program: Program, registers: int, cap_of: dict[int, int]) -> list[int]:
    """Fewest registers a warp may have before each instruction: minimum over paths.

    ``cap_of`` maps instruction indices of setmaxnreg instructions to the count they ask for. A lowering holds from the
    next instruction. A raise may fail and is retried in a loop, so it holds only behind that loop's exit.
    """
    count = len(program.code)
    if not cap_of:
        return [registers] * count
    raises: dict[tuple[int, int], int] = {}
    lowers: dict[int, int] = {}
    for i, cap in cap_of.items():
        if "TRY_ALLOC" not in program.code[i].opcode:
            lowers[i] = cap
            continue
        kernel_words = 0
        j = i + 1
        while j + 1 < count and kernel_words < 8:
            ins = program.code[j]
            kernel_words += not program.probe[j]
            if ins.flow is Flow.BRANCH:
                if ins.conditional and ins.target is not None and ins.target <= program.code[i].pc:
                    raises[j, j + 1] = cap
                break
            j += 1
    top = 1 << 16
    caps = [top] * count
    work = list(program.entries)
    for i in work:
        caps[i] = registers
    while work:
        i = work.pop()
        after = lowers.get(i, caps[i])
        for j in program.succ[i]:
            cap = raises.get((i, j), after)
            if cap < caps[j]:
                caps[j] = cap
                work.append(j)
    return [registers if c == top else c for c in caps]
