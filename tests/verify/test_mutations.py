"""Kill rate: every fault planted in a traced golden kernel must be reported as a broken promise."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from functools import lru_cache

import pytest

from tests.verify import handmade as h
from tests.verify.mutations import MUTATORS as GENERAL
from tests.verify.mutations import Mutator, Subject
from tests.verify.packet_mutations import PACKET_MUTATORS
from xtrace.errors import XtraceError
from xtrace.image import load
from xtrace.splice import Options, apply, plan
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
MUTATORS = (*GENERAL, *PACKET_MUTATORS)
# Instances per fault and kernel; the quick tier has one each on a third of the kernels, in turn. 25 take about forty
# minutes on two cores: for a release, not for every run.
MANY = int(os.environ.get("XTRACE_MUTATIONS", "2"))


@lru_cache(maxsize=1)
def subjects() -> tuple[Subject, ...]:
    found = []
    for label, hand in (("by hand", h.spin()), ("chain by hand", h.chain())):
        found.append(Subject(label, hand.original, hand.data, hand.map, "spin", tight=False))
    for name in KERNELS:
        image = load(h.GOLDEN / f"{name}.cubin")
        probes = "block" if name in ("spin", "early_exit", "brx_table") else "pp"
        result = apply(plan(image, image.kernels, probes, Options(records=64)))
        trace_map = json.loads(json.dumps(result.map))
        found.append(Subject(f"{name} {probes}", image.data, result.data, trace_map, image.kernels[0].name))
    return tuple(found)


def campaign(mutator: Mutator, chosen: Sequence[Subject], instances: int) -> int:
    """Number of faults planted; all must be found, and under the promise that they break."""
    planted, survivors, misnamed = 0, [], []
    for subject in chosen:
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
    assert not survivors, f"{len(survivors)} of {planted} faults not found"
    assert not misnamed
    return planted


def test_subjects_are_sound_before_faults_are_planted() -> None:
    for subject in subjects():
        verdict = verify(subject.original, subject.data, subject.map)
        assert verdict.ok, (subject.label, [str(w) for w in verdict.failures])


@pytest.mark.parametrize("mutator", MUTATORS, ids=lambda m: m.__name__)
def test_fault_is_caught(mutator: Mutator) -> None:
    turn = MUTATORS.index(mutator)
    few = [s for n, s in enumerate(subjects()) if n % 3 == turn % 3]
    assert campaign(mutator, few, 1) or campaign(mutator, subjects(), 1), "no kernel has a place for this fault"


@pytest.mark.fuzz
@pytest.mark.parametrize("mutator", MUTATORS, ids=lambda m: m.__name__)
def test_many_faults_are_caught(mutator: Mutator) -> None:
    assert campaign(mutator, subjects(), MANY)
