"""Faults of islands where a second group of lanes may run, and of waits shared with the kernel, must be reported."""

from __future__ import annotations

import json
from functools import cache

import pytest

from tests.verify import handmade as h
from tests.verify.group_mutations import GROUP_MUTATORS
from tests.verify.subject import Mutator, Subject
from tests.verify.test_mutations import campaign
from xtrace.image import load
from xtrace.splice import Options, apply, plan
from xtrace.verify import verify


@cache
def subject(name: str, probes: str) -> Subject:
    image = load(h.GOLDEN / f"{name}.cubin")
    result = apply(plan(image, image.kernels, probes, Options(records=64)))
    return Subject(name, image.data, result.data, json.loads(json.dumps(result.map)), image.kernels[0].name)


@pytest.mark.parametrize("mutator", GROUP_MUTATORS, ids=lambda m: m.__name__)
def test_fault_is_caught(mutator: Mutator) -> None:
    assert campaign(mutator, [subject("spin", "block"), subject("tma_tile", "op:*")], 3)


def test_waits_shared_with_the_kernel_place_sites_that_verify() -> None:
    image = load(h.GOLDEN / "tma_tile.cubin")
    planned = plan(image, image.kernels, "op:*", Options(records=64))
    shared = [p for k in planned.kernels for p in k.placed if p.shared_waits]
    assert shared
    for k in planned.kernels:
        for p in (p for p in k.placed if p.shared_waits):
            waits = k.analysis.instructions[p.site.index].control.wait_mask
            assert all(waits >> scoreboard & 1 for scoreboard, _ in p.shared_waits)
    s = subject("tma_tile", "op:*")
    assert verify(s.original, s.data, s.map).ok
