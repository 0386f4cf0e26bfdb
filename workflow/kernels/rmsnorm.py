"""Fused residual add and RMSNorm, bf16 in and out, float inside: h = x + r; y = h / rms(h) * w; h is the new residual.

One CTA per row; the row (a power of two of at most 16384 columns) stays in registers, so x and r are read
once and h and y written once. The sum is rounded to bf16 before it is normalised, as separate kernels would.
"""

import triton
import triton.language as tl

from workflow.kernels.spec import Argument, KernelSpec, Shape, Variant


@triton.jit
def rmsnorm_residual(X, R, W, R_OUT, Y, stride, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < columns
    offset = row * stride + cols
    x = tl.load(X + offset, mask=mask, other=0.0).to(tl.float32)
    r = tl.load(R + offset, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(W + cols, mask=mask, other=0.0).to(tl.float32)
    h = (x + r).to(tl.bfloat16)
    tl.store(R_OUT + offset, h, mask=mask)
    h = h.to(tl.float32)
    inverse = tl.math.rsqrt(tl.sum(h * h, 0) / columns + eps)
    tl.store(Y + offset, (h * inverse * w).to(tl.bfloat16), mask=mask)


def _rows(shape: Shape) -> tuple[int, ...]:
    return shape["rows"], shape["columns"]


SPEC = KernelSpec(
    name="rmsnorm_triton",
    entry="rmsnorm_residual",
    module="workflow.kernels.rmsnorm",
    arguments=(
        Argument("X", "*bf16", dims=_rows, aligned=True),
        Argument("R", "*bf16", dims=_rows, aligned=True),
        Argument("W", "*bf16", dims=lambda s: (s["columns"],), aligned=True),
        Argument("R_OUT", "*bf16", dims=_rows, output=True, aligned=True),
        Argument("Y", "*bf16", dims=_rows, output=True, aligned=True),
        Argument("stride", "i32", lambda s: s["columns"], aligned=True),
        Argument("columns", "i32", lambda s: s["columns"], aligned=True),
        Argument("eps", "fp32", lambda s: 1e-5),
    ),
    variants={
        "default": Variant({"BLOCK": 8192}, num_warps=8, num_stages=1),
        "wide": Variant({"BLOCK": 8192}, num_warps=16, num_stages=1),
    },
    grid=lambda s, c: (s["rows"], 1, 1),
    loops=(),
    work=lambda s: ("byte", 8.0 * s["rows"] * s["columns"] + 2.0 * s["columns"]),
    expect=("LDG", "STG", "MUFU.RSQ"),
)
