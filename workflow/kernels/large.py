"""A kernel with far more instructions and sites than those of the suite, to time the planner with, not to be run.

SECTIONS loops one behind the other, each with STEPS products of small tiles in its body, in bf16 with float
accumulation. A step loads its tiles, passes barriers, and issues and awaits a matrix group; a section may be skipped.
So there are phases of every kind, loops and branches, as in the real kernels.
"""

import triton
import triton.language as tl

from workflow.kernels.spec import Argument, KernelSpec, Variant


@triton.jit
def sections_of_products(
    A, B, C, trips, skip,
    SECTIONS: tl.constexpr, STEPS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    cta = tl.program_id(0).to(tl.int64)
    rows = tl.arange(0, BM)
    cols = tl.arange(0, BN)
    depth = tl.arange(0, BK)
    a_ptrs = A + cta * (BM * BK) + rows[:, None] * BK + depth[None, :]
    b_ptrs = B + depth[:, None] * BN + cols[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for section in tl.static_range(SECTIONS):
        if section != skip:
            for _ in tl.range(0, trips):
                for step in tl.static_range(STEPS):
                    a = tl.load(a_ptrs + step * (BM * BK))
                    b = tl.load(b_ptrs + step * (BK * BN))
                    acc = tl.dot(a, b, acc)
                    acc = acc * 0.5 + tl.sum(acc, 1)[:, None]
                a_ptrs += STEPS * BM * BK
    tl.store(C + cta * (BM * BN) + rows[:, None] * BN + cols[None, :], acc.to(tl.bfloat16))


SIZES = {"SECTIONS": 24, "STEPS": 5, "BM": 64, "BN": 64, "BK": 32}
TILES = SIZES["SECTIONS"] * SIZES["STEPS"]

SPEC = KernelSpec(
    name="sections_of_products",
    entry="sections_of_products",
    module="workflow.kernels.large",
    arguments=(
        Argument("A", "*bf16", dims=lambda s: (s["ctas"] + TILES * s["trips"], 64, 32), aligned=True),
        Argument("B", "*bf16", dims=lambda s: (SIZES["STEPS"], 32, 64), aligned=True),
        Argument("C", "*bf16", dims=lambda s: (s["ctas"], 64, 64), output=True, aligned=True),
        Argument("trips", "i32", lambda s: s["trips"]),
        Argument("skip", "i32", lambda s: s["skip"]),
    ),
    variants={"default": Variant(SIZES, num_warps=4, num_stages=1)},
    grid=lambda s, c: (s["ctas"], 1, 1),
    loops=(),
    work=lambda s: ("flop", 2.0 * 64 * 64 * 32 * TILES * s["trips"] * s["ctas"]),
)
