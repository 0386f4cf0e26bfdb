"""C = A B in bf16 with float accumulation; A is (M, K) and B is (K, N), both row-major.

CTAs walk the output in groups of GROUP block rows, so that CTAs that run together share blocks of B in L2.
M, N and K are multiples of the tile sizes.
"""

import triton
import triton.language as tl

from workflow.kernels.spec import Argument, KernelSpec, Loop, Variant, cdiv


@triton.jit
def gemm_bf16(
    A, B, C, M, N, K, stride_am, stride_bk, stride_cm,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    blocks_m = tl.cdiv(M, BM)
    blocks_n = tl.cdiv(N, BN)
    per_group = GROUP * blocks_n
    group = pid // per_group
    first_m = group * GROUP
    height = min(blocks_m - first_m, GROUP)
    pid_m = first_m + (pid % per_group) % height
    pid_n = (pid % per_group) // height

    rows = pid_m * BM + tl.arange(0, BM)
    cols = pid_n * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    a_ptrs = A + rows.to(tl.int64)[:, None] * stride_am + depth[None, :]
    b_ptrs = B + depth.to(tl.int64)[:, None] * stride_bk + cols[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in tl.range(0, K // BK):
        a = tl.load(a_ptrs)
        b = tl.load(b_ptrs)
        acc = tl.dot(a, b, acc)
        a_ptrs += BK
        b_ptrs += BK * stride_bk
    c_ptrs = C + rows.to(tl.int64)[:, None] * stride_cm + cols[None, :]
    tl.store(c_ptrs, acc.to(tl.bfloat16))


SPEC = KernelSpec(
    name="gemm_bf16_triton",
    entry="gemm_bf16",
    module="workflow.kernels.gemm",
    arguments=(
        Argument("A", "*bf16", dims=lambda s: (s["m"], s["k"]), aligned=True),
        Argument("B", "*bf16", dims=lambda s: (s["k"], s["n"]), aligned=True),
        Argument("C", "*bf16", dims=lambda s: (s["m"], s["n"]), output=True, aligned=True),
        Argument("M", "i32", lambda s: s["m"], aligned=True),
        Argument("N", "i32", lambda s: s["n"], aligned=True),
        Argument("K", "i32", lambda s: s["k"], aligned=True),
        Argument("stride_am", "i32", lambda s: s["k"], aligned=True),
        Argument("stride_bk", "i32", lambda s: s["n"], aligned=True),
        Argument("stride_cm", "i32", lambda s: s["n"], aligned=True),
    ),
    variants={
        "default": Variant({"BM": 128, "BN": 256, "BK": 64, "GROUP": 8}, num_warps=8, num_stages=4),
        "three_stages": Variant({"BM": 128, "BN": 256, "BK": 64, "GROUP": 8}, num_warps=8, num_stages=3),
        "square": Variant({"BM": 128, "BN": 128, "BK": 64, "GROUP": 8}, num_warps=8, num_stages=3),
    },
    grid=lambda s, c: (cdiv(s["m"], c["BM"]) * cdiv(s["n"], c["BN"]), 1, 1),
    loops=(Loop("depth", "for _ in tl.range(0, K // BK)", lambda s, c, cta: s["k"] // c["BK"]),),
    work=lambda s: ("flop", 2.0 * s["m"] * s["n"] * s["k"]),
    expect=("HGMMA", "LDGSTS"),
)
