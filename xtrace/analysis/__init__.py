"""Questions about a kernel: control flow, liveness, in-flight registers, loops, register budget."""

from .kernel import KernelAnalysis, analyse, analyse_all
from .loops import Loop

__all__ = ["KernelAnalysis", "Loop", "analyse", "analyse_all"]
