"""Kill rate: every fault planted in a traced golden kernel must be reported as a broken promise."""

from __future__ import annotations

import json
import random
from functools import lru_cache

import pytest

from tests.verify import handmade as h
from tests.verify.mutations import MUTATORS, Mutator, Subject
from xtrace.errors import XtraceError
from xtrace.image import load
from xtrace.splice import apply, plan
from xtrace.verify import verify

KERNELS = (
    "spin",
    "early_exit",
    "cp_async",
    "warp_specialised",
    "triton_softmax",
    "triton_fa_fwd",
    "tma_tile",
    "brx_table",
)
FEW = 1  # instances per fault and kernel in the quick tier
MANY = 25


@lru_cache(maxsize=1)
def subjects() -> tuple[Subject, ...]:
    hand = h.spin()
    found = [Subject("by hand", hand.original, hand.data, hand.map, "spin", tight=False)]
    for name in KERNELS:
        image = load(h.GOLDEN / f"{name}.cubin")
        probes = "block" if name in ("spin", "early_exit", "brx_table") else "pp"
        result = apply(plan(image, image.kernels, probes))
        trace_map = json.loads(json.dumps(result.map))
        found.append(Subject(f"{name} {probes}", image.data, result.data, trace_map, image.kernels[0].name))
    return tuple(found)


def campaign(mutator: Mutator, instances: int) -> None:
    planted, survivors, misnamed = 0, [], []
    for subject in subjects():
        for n in range(instances):
            mutant = mutator(subject, random.Random(f"{mutator.__name__} {subject.label} {n}"))
            if mutant is None:
                continue
            planted += 1
            try:
                verdict = verify(subject.original, mutant.data, mutant.map)
            except XtraceError:
                continue  # refused outright: exit 2, caught as well
            broken = {p for p, status in verdict.promises.items() if status == "FAIL"}
            if not broken:
                survivors.append(mutant.what)
            elif not broken & set(mutant.expected):
                misnamed.append((mutant.what, sorted(broken)))
    assert planted, "no kernel has a place for this fault"
    assert not survivors, f"{len(survivors)} of {planted} faults not found"
    assert not misnamed


def test_subjects_are_sound_before_faults_are_planted() -> None:
    for subject in subjects():
        verdict = verify(subject.original, subject.data, subject.map)
        assert verdict.ok, (subject.label, [str(w) for w in verdict.failures])


@pytest.mark.parametrize("mutator", MUTATORS, ids=lambda m: m.__name__)
def test_fault_is_caught(mutator: Mutator) -> None:
    campaign(mutator, FEW)


@pytest.mark.fuzz
@pytest.mark.parametrize("mutator", MUTATORS, ids=lambda m: m.__name__)
def test_many_faults_are_caught(mutator: Mutator) -> None:
    campaign(mutator, MANY)
