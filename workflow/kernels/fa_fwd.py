"""Causal flash attention, forward: bf16, head dimension 128, online softmax.

Method: Dao, FlashAttention-2 (2023), algorithm 1 with causal masking: one CTA owns BM query rows and walks
the key blocks from the left; blocks wholly below the diagonal need no mask. Row maxima and
sums are kept in base 2 (the scale contains log2(e)).
Tensors are (batch, seqlen, heads, head_dim); LSE is (batch, heads, seqlen), in natural logarithms.
"""

from collections.abc import Mapping

import triton
import triton.language as tl

from workflow.kernels.spec import Argument, KernelSpec, Loop, Shape, Variant, cdiv

LOG2E = 1.4426950408889634


@triton.jit
def fa_step(q, k_ptrs, v_ptrs, acc, m, total, scale, rows, cols, masked):
    k = tl.load(k_ptrs)
    s = tl.dot(q, k)
    if masked:
        s = tl.where(rows[:, None] >= cols[None, :], s, float("-inf"))
    m_new = tl.maximum(m, tl.max(s, 1) * scale)
    p = tl.math.exp2(s * scale - m_new[:, None])
    correction = tl.math.exp2(m - m_new)
    total = total * correction + tl.sum(p, 1)
    acc = acc * correction[:, None]
    v = tl.load(v_ptrs)
    acc = tl.dot(p.to(tl.bfloat16), v, acc)
    return acc, m_new, total


@triton.jit
def fa_fwd_hd128_causal(
    Q, K, V, OUT, LSE, scale, stride_b, stride_s, stride_h, seqlen, heads,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    # The longest rows of blocks first, so that the last wave of CTAs is short.
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    bh = tl.program_id(1)
    base = (bh // heads).to(tl.int64) * stride_b + (bh % heads).to(tl.int64) * stride_h
    rows = block * BM + tl.arange(0, BM)
    cols = tl.arange(0, BN)
    dims = tl.arange(0, D)
    q = tl.load(Q + base + rows[:, None] * stride_s + dims[None, :])
    # Only the scalar bases advance: a tensor of 64-bit pointers would cost many registers.
    K += base
    V += base
    k_offsets = cols[None, :] * stride_s + dims[:, None]
    v_offsets = cols[:, None] * stride_s + dims[None, :]

    m = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    first_masked = block * BM
    # One loop keeps copies in flight up to the end; two loops keep the test for the diagonal out of the first.
    end = first_masked if SPLIT else first_masked + BM
    for start in tl.range(0, end, BN):
        masked = False if SPLIT else start >= first_masked
        acc, m, total = fa_step(q, K + k_offsets, V + v_offsets, acc, m, total, scale, rows, start + cols, masked)
        K += BN * stride_s
        V += BN * stride_s
    if SPLIT:
        # Not pipelined: with copies in flight over its back edge the assembler would serialise all matrix instructions.
        for start in tl.range(first_masked, first_masked + BM, BN, num_stages=1):
            acc, m, total = fa_step(q, K + k_offsets, V + v_offsets, acc, m, total, scale, rows, start + cols, True)
            K += BN * stride_s
            V += BN * stride_s

    tl.store(LSE + bh * seqlen + rows, (m + tl.math.log2(total)) * 0.6931471805599453)
    out = (acc / total[:, None]).to(tl.bfloat16)
    tl.store(OUT + base + rows[:, None] * stride_s + dims[None, :], out)


def _block(shape: Shape, c: Mapping[str, int], cta: int) -> int:
    blocks = cdiv(shape["seqlen"], c["BM"])
    return blocks - 1 - cta % blocks


def _walked(shape: Shape, c: Mapping[str, int], cta: int) -> int:
    """Key blocks of the first loop: those left of the diagonal and, unless split off, those on it."""
    return (_block(shape, c, cta) + (not c["SPLIT"])) * c["BM"] // c["BN"]


def _diagonal(shape: Shape, c: Mapping[str, int], cta: int) -> int:
    return c["BM"] // c["BN"] if c["SPLIT"] else 0


def _tensor(shape: Shape) -> tuple[int, ...]:
    return shape["batch"], shape["seqlen"], shape["heads"], shape["head_dim"]


SPEC = KernelSpec(
    name="fa_fwd_hd128_causal_triton",
    entry="fa_fwd_hd128_causal",
    module="workflow.kernels.fa_fwd",
    arguments=(
        Argument("Q", "*bf16", dims=_tensor, aligned=True),
        Argument("K", "*bf16", dims=_tensor, aligned=True),
        Argument("V", "*bf16", dims=_tensor, aligned=True),
        Argument("OUT", "*bf16", dims=_tensor, output=True, aligned=True),
        Argument("LSE", "*fp32", dims=lambda s: (s["batch"], s["heads"], s["seqlen"]), output=True, aligned=True),
        Argument("scale", "fp32", lambda s: LOG2E / s["head_dim"] ** 0.5),
        Argument("stride_b", "i32", lambda s: s["seqlen"] * s["heads"] * s["head_dim"], aligned=True),
        Argument("stride_s", "i32", lambda s: s["heads"] * s["head_dim"], aligned=True),
        Argument("stride_h", "i32", lambda s: s["head_dim"], aligned=True),
        Argument("seqlen", "i32", lambda s: s["seqlen"], aligned=True),
        Argument("heads", "i32", lambda s: s["heads"]),
    ),
    variants={
        "default": Variant({"BM": 128, "BN": 128, "D": 128, "SPLIT": 0}, num_warps=8, num_stages=3),
        "two_stages": Variant({"BM": 128, "BN": 128, "D": 128, "SPLIT": 0}, num_warps=8, num_stages=2),
        "narrow": Variant({"BM": 128, "BN": 64, "D": 128, "SPLIT": 0}, num_warps=8, num_stages=3),
        "small": Variant({"BM": 64, "BN": 64, "D": 128, "SPLIT": 0}, num_warps=4, num_stages=3),
        "split": Variant({"BM": 128, "BN": 128, "D": 128, "SPLIT": 1}, num_warps=8, num_stages=3),
        "split_small": Variant({"BM": 64, "BN": 64, "D": 128, "SPLIT": 1}, num_warps=4, num_stages=3),
    },
    grid=lambda s, c: (cdiv(s["seqlen"], c["BM"]), s["batch"] * s["heads"], 1),
    loops=(
        Loop("blocks", "for start in tl.range(0, end, BN)", _walked),
        Loop(
            "diagonal", "for start in tl.range(first_masked,", _diagonal, lambda c: not c["SPLIT"] or c["BM"] == c["BN"]
        ),
    ),
    work=lambda s: ("flop", 4.0 * s["batch"] * s["heads"] * s["seqlen"] ** 2 * s["head_dim"] / 2),
    expect=("HGMMA", "LDGSTS", "MUFU.EX2"),
)
