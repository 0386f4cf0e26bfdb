"""Islands in front of exits: who goes on writes no header, and descriptors say what loading filled in."""

from __future__ import annotations

import json
from functools import lru_cache

import pytest

from tests.splice.conftest import image
from tests.verify.exit_mutations import EXIT_MUTATORS
from tests.verify.subject import Mutator, Subject
from tests.verify.test_mutations import MANY, campaign
from xtrace.splice import Options, apply, plan
from xtrace.verify import verify


@lru_cache(maxsize=1)
def subjects() -> tuple[Subject, ...]:
    found = []
    for name, spec in (("triton_rmsnorm", "sche"), ("triton_moe_gemm", "sche"), ("early_exit", "sche"), ("spin", "pp")):
        loaded = image(name)
        result = apply(plan(loaded, loaded.kernels[:1], spec, Options(64)))
        found.append(
            Subject(
                f"{name} {spec}", loaded.data, result.data, json.loads(json.dumps(result.map)), loaded.kernels[0].name
            )
        )
    return tuple(found)


@pytest.mark.parametrize("number", range(4))
def test_every_certificate_passes(number: int) -> None:
    subject = subjects()[number]
    verdict = verify(subject.original, subject.data, subject.map)
    assert verdict.ok, [str(w) for w in verdict.failures[:5]]


def test_an_exit_that_lanes_may_pass_has_a_header_of_those_who_leave_alone() -> None:
    """One lane of them, so that a guarded exit which nobody takes costs no traffic (a warp has one header anyway)."""
    for subject in subjects():
        layout = subject.model.layout["P"]
        for i, island in subject.islands:
            ins = subject.code[i]
            if ins.base != "EXIT":
                continue
            (election,) = [subject.traced[j] for j in island if subject.traced[j].base == "ELECT"]
            stores = [subject.traced[j] for j in island if subject.traced[j].base == "STG"]
            assert {store.guard for store in stores} == {f"@{election.text.split()[1].rstrip(',')}"}
            asked = election.text.split()[-1]
            assert asked == (ins.guard.removeprefix("@") or "PT"), subject.label
            assert bool(election.reads & layout.mask) == bool(ins.guard)


def test_only_kernels_without_tensor_cores_ask_to_keep_their_headers() -> None:
    asking = {s.label: any("desc[" in s.traced[j].text for j, _ in s.probes) for s in subjects()}
    assert asking == {
        "triton_rmsnorm sche": True,
        "triton_moe_gemm sche": False,
        "early_exit sche": True,
        "spin pp": True,
    }
    for s in subjects():
        values = [p["value"] for p in s.claim["patches"]]
        assert values.count("header_policy") == asking[s.label]


@pytest.mark.fuzz
@pytest.mark.parametrize("mutator", EXIT_MUTATORS, ids=lambda m: m.__name__)
def test_fault_is_caught(mutator: Mutator) -> None:
    assert campaign(mutator, subjects(), max(MANY, 6)), "no kernel has a place for this fault"
