"""The Triton workloads by name."""

from __future__ import annotations

from importlib import import_module

from workflow.kernels.spec import KernelSpec
from xtrace.errors import BadInput

__all__ = ["WORKLOADS", "spec"]

WORKLOADS = {
    "fa_fwd_hd128_causal_triton": "workflow.kernels.fa_fwd",
    "gemm_bf16_triton": "workflow.kernels.gemm",
    "rmsnorm_triton": "workflow.kernels.rmsnorm",
    "softmax_triton": "workflow.kernels.softmax",
    "moe_gemm_triton": "workflow.kernels.moe_gemm",
}


def spec(name: str) -> KernelSpec:
    """Description of a Triton workload. Imports Triton; raises ``BadInput`` XT7101 for an unknown name."""
    if name not in WORKLOADS:
        raise BadInput("XT7101", f"no Triton workload named {name!r}", hint=f"known: {', '.join(WORKLOADS)}")
    found: KernelSpec = import_module(WORKLOADS[name]).SPEC
    return found
