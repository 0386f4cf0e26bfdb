"""Fused mixture-of-experts GEMM: out[slot] = weight[slot] * (x[slot // TOP_K] @ w[expert of slot]^T), bf16.

A slot is a (token, choice) pair. Slots come sorted by expert and padded per expert to whole blocks of BM
(SLOTS; padding holds tokens * TOP_K), EXPERTS names the expert of each block, PADDED[0] is the padded length.
The grid is sized for the worst padding, so late CTAs leave at once. W is (experts, N, K), all row-major.
"""

from collections.abc import Mapping

import triton
import triton.language as tl

from workflow.kernels.spec import Argument, KernelSpec, Loop, Shape, Variant, cdiv


@triton.jit
def moe_gemm_bf16(
    X, W, OUT, WEIGHTS, SLOTS, EXPERTS, PADDED, N, K, slots, stride_x, stride_we, stride_wn, stride_o,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, TOP_K: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    blocks_n = tl.cdiv(N, BN)
    blocks_m = tl.num_programs(0) // blocks_n
    per_group = GROUP * blocks_n
    first_m = pid // per_group * GROUP
    height = min(blocks_m - first_m, GROUP)
    pid_m = first_m + (pid % per_group) % height
    pid_n = (pid % per_group) // height
    if pid_m * BM >= tl.load(PADDED):
        return

    slot = tl.load(SLOTS + pid_m * BM + tl.arange(0, BM))
    real = slot < slots
    expert = tl.load(EXPERTS + pid_m).to(tl.int64)
    cols = pid_n * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    x_ptrs = X + (slot // TOP_K).to(tl.int64)[:, None] * stride_x + depth[None, :]
    w_ptrs = W + expert * stride_we + cols.to(tl.int64)[None, :] * stride_wn + depth[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in tl.range(0, K // BK):
        x = tl.load(x_ptrs, mask=real[:, None], other=0.0)
        w = tl.load(w_ptrs)
        acc = tl.dot(x, w, acc)
        x_ptrs += BK
        w_ptrs += BK
    weight = tl.load(WEIGHTS + slot, mask=real, other=0.0)
    out = (acc * weight[:, None]).to(tl.bfloat16)
    tl.store(OUT + slot.to(tl.int64)[:, None] * stride_o + cols[None, :], out, mask=real[:, None])


BLOCK_SLOTS = 128  # what the router pads each expert's slots to


def worst_blocks(shape: Shape, bm: int) -> int:
    """Blocks of BM slots that suffice however the router decides: every expert may waste up to bm - 1."""
    slots = shape["tokens"] * shape["top_k"]
    return min(cdiv(slots + shape["experts"] * (bm - 1), bm), slots)


def used_blocks(shape: Shape, bm: int) -> int:
    """Blocks that hold slots: depends on the router's decisions, which ``expert_slots_E`` counts per expert."""
    return sum(cdiv(shape[f"expert_slots_{e}"], bm) for e in range(shape["experts"]))


def _rows_trips(shape: Shape, c: Mapping[str, int], cta: int) -> int:
    blocks_n = cdiv(shape["n"], c["BN"])
    blocks_m = worst_blocks(shape, c["BM"])
    first_m = cta // (c["GROUP"] * blocks_n) * c["GROUP"]
    pid_m = first_m + cta % (c["GROUP"] * blocks_n) % min(blocks_m - first_m, c["GROUP"])
    return shape["k"] // c["BK"] if pid_m < used_blocks(shape, c["BM"]) else 0


SPEC = KernelSpec(
    name="moe_gemm_triton",
    entry="moe_gemm_bf16",
    module="workflow.kernels.moe_gemm",
    arguments=(
        Argument("X", "*bf16", dims=lambda s: (s["tokens"], s["k"]), aligned=True),
        Argument("W", "*bf16", dims=lambda s: (s["experts"], s["n"], s["k"]), aligned=True),
        Argument("OUT", "*bf16", dims=lambda s: (s["tokens"] * s["top_k"], s["n"]), output=True, aligned=True),
        Argument("WEIGHTS", "*fp32", dims=lambda s: (s["tokens"] * s["top_k"],), aligned=True),
        Argument("SLOTS", "*i32", dims=lambda s: (worst_blocks(s, BLOCK_SLOTS) * BLOCK_SLOTS,), aligned=True),
        Argument("EXPERTS", "*i32", dims=lambda s: (worst_blocks(s, BLOCK_SLOTS),), aligned=True),
        Argument("PADDED", "*i32", dims=lambda s: (1,), aligned=True),
        Argument("N", "i32", lambda s: s["n"], aligned=True),
        Argument("K", "i32", lambda s: s["k"], aligned=True),
        Argument("slots", "i32", lambda s: s["tokens"] * s["top_k"]),
        Argument("stride_x", "i32", lambda s: s["k"], aligned=True),
        Argument("stride_we", "i32", lambda s: s["n"] * s["k"], aligned=True),
        Argument("stride_wn", "i32", lambda s: s["k"], aligned=True),
        Argument("stride_o", "i32", lambda s: s["n"], aligned=True),
    ),
    variants={
        "default": Variant({"BM": BLOCK_SLOTS, "BN": 256, "BK": 64, "GROUP": 8, "TOP_K": 2}, num_warps=8, num_stages=3),
        "four_stages": Variant(
            {"BM": BLOCK_SLOTS, "BN": 256, "BK": 64, "GROUP": 8, "TOP_K": 2}, num_warps=8, num_stages=4
        ),
        "square": Variant({"BM": BLOCK_SLOTS, "BN": 128, "BK": 64, "GROUP": 8, "TOP_K": 2}, num_warps=8, num_stages=3),
    },
    grid=lambda s, c: (worst_blocks(s, c["BM"]) * cdiv(s["n"], c["BN"]), 1, 1),
    loops=(Loop("depth", "for _ in tl.range(0, K // BK)", _rows_trips),),
    work=lambda s: ("flop", 2.0 * s["tokens"] * s["top_k"] * s["n"] * s["k"]),
    expect=("HGMMA", "LDGSTS"),
)
