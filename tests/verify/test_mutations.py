"""Kill rate: every fault planted in a traced golden kernel must be reported as a broken promise."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from functools import lru_cache

import pytest

from tests.disassembly import prime
from tests.verify import handmade as h
from tests.verify.mutations import MUTATORS as GENERAL
from tests.verify.packet_mutations import PACKET_MUTATORS
from tests.verify.subject import Mutator, Subject
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
# Instances per fault and kernel; 25 are for a release, not for every run.
MANY = int(os.environ.get("XTRACE_MUTATIONS", "2"))


@lru_cache(maxsize=1)
def subjects() -> tuple[Subject, ...]:
    found = []
    for label, hand in (("by hand", h.spin()), ("chain by hand", h.chain())):
        found.append(Subject(label, hand.original, hand.data, hand.map, "spin", tight=False))
    images = {name: load(h.GOLDEN / f"{name}.cubin") for name in KERNELS}
    prime((kernel.text for image in images.values() for kernel in image.kernels), "sm_90a")
    for name, image in images.items():
        probes = "block" if name in ("spin", "early_exit", "brx_table") else "pp"
        result = apply(plan(image, image.kernels, probes, Options(records=64)))
        trace_map = json.loads(json.dumps(result.map))
        found.append(Subject(f"{name} {probes}", image.data, result.data, trace_map, image.kernels[0].name))
    return tuple(found)


def campaign(mutator: Mutator, chosen: Sequence[Subject], instances: int) -> int:
    """Number of faults planted; all must be found, and under the promise that they break."""
    seeds = ((subject, f"{mutator.__name__} {subject.label} {n}") for subject in chosen for n in range(instances))
    planted = [(s, mutant) for s, seed in seeds if (mutant := mutator(s, random.Random(seed))) is not None]
    prime((s.code_in(mutant.data) for s, mutant in planted), "sm_90a")
    survivors, misnamed = [], []
    for subject, mutant in planted:
        try:
            verdict = verify(subject.original, mutant.data, mutant.map)
        except XtraceError:
            continue  # refused outright: exit 2, caught as well
        broken = {p for p, status in verdict.promises.items() if status == "FAIL"}
        if not broken:
            survivors.append(mutant.what)
        elif not broken & set(mutant.expected):
            misnamed.append((mutant.what, sorted(broken)))
    assert not survivors, f"{len(survivors)} of {len(planted)} faults not found"
    assert not misnamed
    return len(planted)


def test_subjects_are_sound_before_faults_are_planted() -> None:
    for subject in subjects():
        verdict = verify(subject.original, subject.data, subject.map)
        assert verdict.ok, (subject.label, [str(w) for w in verdict.failures])


@pytest.mark.fuzz
@pytest.mark.parametrize("mutator", MUTATORS, ids=lambda m: m.__name__)
def test_fault_is_caught(mutator: Mutator) -> None:
    assert campaign(mutator, subjects(), MANY), "no kernel has a place for this fault"
