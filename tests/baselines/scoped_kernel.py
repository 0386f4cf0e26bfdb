"""Compile a kernel with or without Proton scopes in its source, the profiler off: ``scoped_kernel.py 0|1 OUT``."""

import os
import sys
import tempfile
from pathlib import Path

import triton
import triton.language as tl
import triton.profiler.language as pl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

pl.enable_semantic("triton")


@triton.jit
def scaled_sum(x_ptr, y_ptr, n, block: tl.constexpr, scopes: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, block)
    if scopes:
        pl.enter_scope("load")
    x = tl.load(x_ptr + row * block + offsets, mask=offsets < n, other=0.0)
    if scopes:
        pl.exit_scope("load")
    tl.store(y_ptr + row, tl.sum(x, 0))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        signature = {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32", "block": "constexpr", "scopes": "constexpr"}
        source = ASTSource(scaled_sum, signature, constexprs={"block": 1024, "scopes": bool(int(sys.argv[1]))})
        kernel = triton.compile(source, target=GPUTarget("cuda", 90, 32))
        Path(sys.argv[2]).write_bytes(kernel.asm["cubin"])
