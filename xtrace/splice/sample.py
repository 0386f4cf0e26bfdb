"""Which kernels can be sampled by a rule, and what the prologue is told about it.

A sampled kernel's text holds its code twice: the original, bit for bit, and behind it the traced code. Distances
between instructions of the copy are those of the original, so every branch, BSSY or collective WARPSYNC in it has the
same bits. What cannot be copied like this is refused (decision 0004).
"""

from __future__ import annotations

from xtrace.analysis import KernelAnalysis
from xtrace.errors import BadInput
from xtrace.isa.model import Flow
from xtrace.isa.nvidia.decide import Decision
from xtrace.sampling import Sampling

__all__ = ["decision_of", "image_rule", "refusal"]

_WHOLE_WARPGROUP = frozenset(
    ("matrix_async", "matrix_commit", "matrix_fence", "matrix_wait", "setmaxreg")
)  # all four warps must execute the same instruction


def image_rule(rule: Sampling | None) -> Sampling | None:
    """The rule that an image decides; None if it takes every warp. BadInput XT3064 for one about launches."""
    if rule is None or (rule.launch_every == 1 and rule.everything):
        return None
    if rule.launch_every > 1:
        raise BadInput(
            "XT3064",
            "an image does not know which launch it runs in: launch= is decided where kernels are launched",
            where="--sample",
            hint="leave it out here and launch the original in between, e.g. with xtrace.runtime.launch.SampledArm",
        )
    return rule


def refusal(a: KernelAnalysis, rule: Sampling) -> str | None:
    """Why this kernel cannot be sampled by this rule."""
    for ins in a.instructions:
        at = f"{ins.text} at pc 0x{ins.pc:x}"
        if ins.flow is Flow.INDIRECT:
            return (
                f"sampling needs a second copy of the code, but a jump through a table leads into one copy only ({at})"
            )
        if rule.splits_warpgroups and ins.tags & _WHOLE_WARPGROUP:
            return f"the rule takes only some of the four warps that execute {at} together; use warpgroup= or cta="
    return None


def decision_of(rule: Sampling | None, predicate: int | None) -> Decision | None:
    if rule is None:
        return None
    assert predicate is not None
    return Decision(rule.cta_every, rule.cta_offset, None if rule.every_warp else rule.warp_mask, predicate)
