"""How good the orders of islands are: of every shape that a kernel's probes have, against all legal orders of it."""

from __future__ import annotations

from dataclasses import dataclass
from unittest import mock

from workflow.scripts.exhaustive import LARGEST, compare
from xtrace.image import Image
from xtrace.isa.nvidia.dependence import Problem
from xtrace.isa.nvidia.encode import Op
from xtrace.isa.nvidia.ordering import best_order, expected_cycles
from xtrace.isa.nvidia.schedule import Island, Scheduler
from xtrace.splice import Options, plan
from xtrace.splice.apply import splice_kernel

__all__ = ["IslandOrders", "compare_islands"]


@dataclass(frozen=True, slots=True)
class IslandOrders:
    """Islands of one image, each shape once. Gaps and gains are expected cycles."""

    image: str
    shapes: int
    compared: int  # with all legal orders: up to eight instructions
    orders: int
    equal: int  # to the optimum
    worst_gap: int
    proven: int  # larger ones: no shorter order exists, by the search's bound
    shortened: int  # of all shapes, against the order in which they are written
    gained: int


def compare_islands(name: str, image: Image, glob: str, probes: str) -> IslandOrders:
    """Splice the kernels of ``image`` and compare what the scheduler was asked to order."""
    asked: dict[Problem, tuple[int, int, int]] = {}  # given, scheduled, optimum of the small ones (else -1)
    orders = proven = 0
    plain = Scheduler.island

    def island(self: Scheduler, ops: list[Op]) -> Island:
        nonlocal orders, proven
        problem = self.ordering(ops)
        if problem not in asked and len(ops) <= LARGEST:
            with mock.patch.object(Scheduler, "island", plain):
                found = compare(self, ops)
            asked[problem] = found.given, found.scheduled, found.optimum
            orders += found.orders
        elif problem not in asked:
            best = best_order(problem)
            asked[problem] = expected_cycles(problem, range(len(ops))), best.cycles, -1
            proven += best.proven
        return plain(self, ops)

    with mock.patch.object(Scheduler, "island", island):
        for kernel in plan(image, image.select(glob), probes, Options()).kernels:
            if kernel.state is not None:
                splice_kernel(kernel)
    gaps = [scheduled - optimum for _, scheduled, optimum in asked.values() if optimum >= 0]
    gains = [given - scheduled for given, scheduled, _ in asked.values() if given > scheduled]
    return IslandOrders(
        name, len(asked), len(gaps), orders, gaps.count(0), max(gaps, default=0), proven, len(gains), sum(gains)
    )
