"""Row softmax, bf16 in and out, float inside. The shape's ``ctas`` says how many CTAs are launched.

A fixed number of CTAs walks the rows; each row (a power of two of at most 16384 columns) stays in registers.
"""

import triton
import triton.language as tl

from workflow.kernels.spec import Argument, KernelSpec, Loop, Shape, Variant, cdiv


@triton.jit
def softmax_rows(X, Y, rows, columns, stride, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    mask = cols < columns
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        offset = row * stride.to(tl.int64) + cols
        x = tl.load(X + offset, mask=mask, other=float("-inf")).to(tl.float32)
        x = (x - tl.max(x, 0)) * 1.4426950408889634
        e = tl.math.exp2(x)
        tl.store(Y + offset, (e / tl.sum(e, 0)).to(tl.bfloat16), mask=mask)


def _ctas(shape: Shape) -> int:
    return min(shape["rows"], shape["ctas"])


def _rows(shape: Shape) -> tuple[int, ...]:
    return shape["rows"], shape["columns"]


SPEC = KernelSpec(
    name="softmax_triton",
    entry="softmax_rows",
    module="workflow.kernels.softmax",
    arguments=(
        Argument("X", "*bf16", dims=_rows, aligned=True),
        Argument("Y", "*bf16", dims=_rows, output=True, aligned=True),
        Argument("rows", "i32", lambda s: s["rows"]),
        Argument("columns", "i32", lambda s: s["columns"], aligned=True),
        Argument("stride", "i32", lambda s: s["columns"], aligned=True),
    ),
    variants={
        "default": Variant({"BLOCK": 8192}, num_warps=8, num_stages=2),
        "wide": Variant({"BLOCK": 8192}, num_warps=16, num_stages=2),
    },
    grid=lambda s, c: (_ctas(s), 1, 1),
    loops=(Loop("rows", "for row in tl.range(", lambda s, c, cta: max(cdiv(s["rows"] - cta, _ctas(s)), 0)),),
    work=lambda s: ("byte", 4.0 * s["rows"] * s["columns"]),
    expect=("LDG", "STG", "MUFU.EX2"),
)
