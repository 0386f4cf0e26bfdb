"""Striped slots, short clocks, clocks that are carried on: images keep all promises, faults planted are reported."""

from __future__ import annotations

import json
from functools import lru_cache

import pytest

from tests.splice.conftest import image
from tests.verify.carry_mutations import CARRY_MUTATORS
from tests.verify.stripe_mutations import STRIPE_MUTATORS
from tests.verify.subject import Mutator, Subject
from tests.verify.test_mutations import MANY, campaign
from xtrace.sampling import Sampling
from xtrace.splice import Clocks, Options, SpliceResult, Stripes, apply, plan
from xtrace.verify import verify

FIVE = "pc:0xf0,pc:0x270,pc:0x280,pp"  # of `spin`: a packet of one event, and one of four with short clocks
ALWAYS = Options(64, clocks=Clocks.SHORT, stripes=Stripes.ON)


def spliced(name: str, spec: str, options: Options) -> SpliceResult:
    loaded = image(name)
    return apply(plan(loaded, loaded.kernels[:1], spec, options))


@lru_cache(maxsize=1)
def subjects() -> tuple[Subject, ...]:
    found = []
    for name, spec, options in (("triton_softmax", "pp", Options(64)), ("spin", FIVE, ALWAYS)):
        loaded, result = image(name), spliced(name, spec, options)
        document = json.loads(json.dumps(result.map))
        assert document["kernels"][0]["slot"]["stripe"]
        assert any("short_clocks" in packet for packet in document["kernels"][0]["packets"])
        found.append(Subject(f"{name} {spec}", loaded.data, result.data, document, loaded.kernels[0].name))
    return tuple(found)


@pytest.mark.parametrize(
    ("name", "spec", "options", "stripe", "short"),
    [
        ("triton_softmax", "pp", Options(), 32, 1),
        ("triton_softmax", "pp", Options(sample=Sampling.parse("cta=8")), 32, 1),
        ("spin", FIVE, ALWAYS, 16, 1),
        ("spin", "op:*", ALWAYS, 32, 0),  # packets of 16 bytes are padded; lanes are apart at some
        ("triton_fa_fwd", "pp", ALWAYS, 64, 1),  # one packet goes over a back edge
        ("warp_specialised", "pp", ALWAYS, 64, 2),
        ("triton_softmax", "mem", Options(64, stripes=Stripes.ON), 64, 0),
        ("triton_rmsnorm", "pp", Options(clocks=Clocks.SHORT), None, 1),
    ],
)
def test_every_certificate_passes(name: str, spec: str, options: Options, stripe: int | None, short: int) -> None:
    result = spliced(name, spec, options)
    entry = result.map["kernels"][0]
    assert result.map["schema"] == "xtrace/map/5"
    assert entry["slot"].get("stripe") == stripe
    assert sum("short_clocks" in packet for packet in entry["packets"]) == short
    verdict = verify(image(name).data, result.data, result.map)
    assert verdict.ok, [str(w) for w in verdict.failures[:5]]


@lru_cache(maxsize=1)
def carried() -> tuple[Subject, ...]:
    loaded, result = image("triton_rmsnorm"), spliced("triton_rmsnorm", "pp", Options(64))
    document = json.loads(json.dumps(result.map))
    return *subjects(), Subject("triton_rmsnorm pp", loaded.data, result.data, document, loaded.kernels[0].name)


@pytest.mark.fuzz
@pytest.mark.parametrize("mutator", CARRY_MUTATORS, ids=lambda m: m.__name__)
def test_fault_on_the_way_of_a_clock_is_caught(mutator: Mutator) -> None:
    assert campaign(mutator, carried(), MANY), "no kernel has a place for this fault"


@pytest.mark.fuzz
@pytest.mark.parametrize("mutator", STRIPE_MUTATORS, ids=lambda m: m.__name__)
def test_fault_is_caught(mutator: Mutator) -> None:
    assert campaign(mutator, subjects(), MANY), "no kernel has a place for this fault"
