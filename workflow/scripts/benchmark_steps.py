"""The steps from an image to a verified traced image, timed one by one within this process."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from statistics import median
from typing import TypeVar

from xtrace.analysis import KernelAnalysis, analyse_all
from xtrace.errors import Refused
from xtrace.image import Image, Kernel
from xtrace.splice import Options, Plan, apply, plan_kernel
from xtrace.verify import verify

__all__ = ["STEPS", "KernelTimes", "per_site", "timed", "time_kernel"]

STEPS = ("decode", "analysis", "planning", "splice", "verify")
"""Decoding leaves the disassembler out; planning is everything that is done for sites; splicing writes the image."""
_VIEWS = tuple(name for name, view in vars(KernelAnalysis).items() if isinstance(view, cached_property))

Result = TypeVar("Result")


@dataclass
class KernelTimes:
    """Seconds of every run of every step. A kernel without a placed site is neither spliced nor verified."""

    image: str
    kernel: str
    instructions: int
    placed: int
    refused: int
    seconds: dict[str, list[float]] = field(default_factory=lambda: {step: [] for step in STEPS})

    @property
    def sites(self) -> int:
        return self.placed + self.refused

    def typical(self, step: str) -> float | None:
        """Median over the runs, s."""
        return median(self.seconds[step]) if self.seconds[step] else None

    def per_site(self, steps: Sequence[str] = ("planning",)) -> float | None:
        """Median over the runs of these steps together, ms for each site; None where no site is placed."""
        runs = [sum(run) for run in zip(*(self.seconds[step] for step in steps), strict=True)]
        return 1e3 * median(runs) / self.sites if runs and self.placed else None


def per_site(kernels: Sequence[KernelTimes], steps: Sequence[str] = ("planning",)) -> float | None:
    """Median over kernels of the time for each site, ms; None without any."""
    values = [value for k in kernels if (value := k.per_site(steps)) is not None]
    return median(values) if values else None


def timed(action: Callable[[], Result]) -> tuple[float, Result]:
    """Wall time, s, and what ``action`` returns. Garbage of earlier work is collected before."""
    gc.collect()
    begin = time.perf_counter()
    result = action()
    return time.perf_counter() - begin, result


def time_kernel(name: str, image: Image, kernel: Kernel, probes: str, runs: int) -> KernelTimes:
    """Take one kernel of an image through all steps, ``runs`` times, each time from the image's bytes on."""
    analyse_all(image, [kernel])  # leaves the disassembly to be read again
    options = Options()
    out = KernelTimes(name, kernel.name, 0, 0, 0)
    for _ in range(runs):
        spent: dict[str, float] = {}
        spent["decode"], (a,) = timed(partial(analyse_all, image, [kernel]))
        spent["analysis"], _ = timed(partial(_force, a))
        spent["planning"], plan = timed(partial(plan_kernel, a, probes, options))
        out.instructions, out.placed, out.refused = len(a.instructions), len(plan.placed), len(plan.refused)
        if plan.state is not None:
            spent["splice"], traced = timed(partial(apply, Plan(image, probes, options, [plan])))
            spent["verify"], _ = timed(partial(verify, image.data, traced.data, traced.map))
        for step, value in spent.items():
            out.seconds[step].append(value)
    return out


def _force(a: KernelAnalysis) -> None:
    """Compute every view that the planner may ask for."""
    try:
        for view in _VIEWS:
            getattr(a, view)
    except Refused:  # control flow cannot be known: the plan says so
        pass
