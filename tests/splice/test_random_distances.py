"""Results of fixed latency across islands, kernel instructions and branches of made-up kernels."""

from __future__ import annotations

import random

import pytest

from tests.splice.test_random_flow import crowded_kernel
from tests.splice.test_random_waits import random_kernel
from xtrace.isa import for_arch
from xtrace.isa.model import Instruction
from xtrace.splice import KernelPlan, Options, plan_kernel
from xtrace.splice.apply import splice_kernel
from xtrace.splice.model import LAYOUTS

HORIZON = 16  # cycles: no fixed latency of the instructions that probes are made of is longer


def _plan(seed: int) -> KernelPlan:
    rng = random.Random(seed)
    a = rng.choice((crowded_kernel, random_kernel))(rng)
    sites = sorted(rng.sample(range(2, len(a.instructions) - 1), rng.randint(2, 9)))
    return plan_kernel(a, ",".join(f"pc:{16 * i:#x}" for i in sites), Options(layout=rng.randrange(LAYOUTS)))


def _follow(plan: KernelPlan, islands: dict[int, tuple[Instruction, ...]], start: int, k: int) -> int:
    """Walk on from one probe instruction; the number of its results that were read soon."""
    first, found = islands[start][k], 0
    stack = [(start, k + 1, first.control.stall, first.writes)]
    seen: dict[tuple[int, int], int] = {}
    while stack:
        i, n, cycles, alive = stack.pop()
        if cycles >= HORIZON or seen.get((i, n), HORIZON) <= cycles:
            continue
        seen[i, n] = cycles
        island = islands.get(i, ())
        if n < len(island):
            reader = island[n]
            if alive & reader.reads:
                found += 1
                need = for_arch("sm_90a").required_distance(first, reader)
                assert cycles >= need, f"{first.text} -> {reader.text}: {cycles} < {need}"
            stack.append((i, n + 1, cycles + reader.control.stall, alive & ~reader.kills))
        else:
            later = cycles + plan.analysis.instructions[i].control.stall
            stack += [(t, 0, later, alive) for t in plan.analysis.cfg.successors[i]]
    return found


@pytest.mark.parametrize("part", range(2))
def test_results_have_arrived_where_any_later_island_reads_them(part: int) -> None:
    plans = [p for seed in range(100 * part, 100 * part + 100) if (p := _plan(seed)).packets]
    spliced = [splice_kernel(p).islands for p in plans]
    code = [b"".join(w.to_bytes(16, "little") for i in sorted(x) for w in x[i].words) for x in spliced]
    found = 0
    for plan, words, decoded in zip(plans, spliced, for_arch("sm_90a").decode_many(code), strict=True):
        islands, at = {}, 0
        for i in sorted(words):
            islands[i] = decoded[at : at + len(words[i].words)]
            at += len(words[i].words)
        found += sum(_follow(plan, islands, i, k) for i, island in islands.items() for k in range(len(island)))
    assert found > 1000
