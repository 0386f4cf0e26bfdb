"""Kill rate for recorded addresses: every fault planted in a kernel with trace set ``mem`` is reported."""

from __future__ import annotations

import json
from functools import lru_cache

import pytest

from tests.splice.conftest import TRACEABLE, image
from tests.verify.address_mutations import ADDRESS_MUTATORS
from tests.verify.subject import Mutator, Subject
from tests.verify.test_mutations import MANY, campaign
from xtrace.splice import Options, apply, plan
from xtrace.verify import verify


@lru_cache(maxsize=1)
def subjects() -> tuple[Subject, ...]:
    found = []
    for name, spec in (("cp_async", "mem"), ("spin", "pp,mem"), ("triton_rmsnorm", "mem"), ("triton_gemm", "mem")):
        loaded = image(name)
        result = apply(plan(loaded, loaded.kernels[:1], spec, Options(16)))
        document = json.loads(json.dumps(result.map))
        found.append(Subject(f"{name} {spec}", loaded.data, result.data, document, loaded.kernels[0].name))
    return tuple(found)


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        *((name, "mem") for name in TRACEABLE if name != "many_registers"),
        ("odd_block", "block,mem"),
        ("triton_moe_gemm", "pp,mem"),
    ],
)
def test_every_certificate_passes(name: str, spec: str) -> None:
    loaded = image(name)
    result = apply(plan(loaded, loaded.kernels, spec, Options(64)))
    verdict = verify(loaded.data, result.data, result.map)
    assert verdict.ok, [str(w) for w in verdict.failures[:5]]


@pytest.mark.fuzz
@pytest.mark.parametrize("mutator", ADDRESS_MUTATORS, ids=lambda m: m.__name__)
def test_fault_is_caught(mutator: Mutator) -> None:
    assert campaign(mutator, subjects(), MANY), "no kernel has a place for this fault"
