"""A prologue of two parts is proved in both: what each of them may not do, and where the second one may stand."""

from __future__ import annotations

import json
import random
from functools import lru_cache

import pytest

from tests.verify import handmade as h
from tests.verify.prologue_mutations import PROLOGUE_MUTATORS, moved
from tests.verify.subject import Mutator, Subject
from tests.verify.test_mutations import campaign
from xtrace.image import load
from xtrace.splice import apply, plan
from xtrace.verify import verify

KERNELS = ("early_exit", "cp_async", "triton_softmax", "tma_tile", "triton_rmsnorm")


@lru_cache(maxsize=1)
def subjects() -> tuple[Subject, ...]:
    found = []
    for n, name in enumerate(KERNELS):
        image = load(h.GOLDEN / f"{name}.cubin")
        probes = ("sche", "pp")[n % 2]
        result = apply(plan(image, image.kernels, probes))
        made = json.loads(json.dumps(result.map))
        found.append(Subject(f"{name} {probes}", image.data, result.data, made, image.kernels[0].name))
    return tuple(found)


@pytest.mark.parametrize("mutator", PROLOGUE_MUTATORS, ids=lambda m: m.__name__)
def test_a_fault_of_a_sunk_prologue_is_caught(mutator: Mutator) -> None:
    assert campaign(mutator, subjects(), 1), "no kernel has a place for this fault"


def test_islands_that_are_taken_out_and_put_back_are_proved_like_before() -> None:
    """So a fault planted by moving one is caught for its place, not for having been moved."""
    for s in subjects():
        assert [i["kind"] for i in s.claim["islands"]][:2] == ["prologue", "prologue rest"], s.label
        place = s.islands[1][0]
        again = moved(s, place, "nowhere else")
        verdict = verify(s.original, again.data, again.map)
        broken = {p for p, status in verdict.promises.items() if status == "FAIL"}
        assert not broken, (s.label, [str(w) for w in verdict.failures])


def test_another_place_in_the_entry_block_is_as_good() -> None:
    """Before any instruction that every warp passes once: the verifier asks for no more than that."""
    s = next(s for s in subjects() if s.label.startswith("triton_rmsnorm"))
    rng, proved = random.Random(1), 0
    for place in rng.sample(range(1, s.islands[1][0]), 5):
        again = moved(s, place, "elsewhere")
        verdict = verify(s.original, again.data, again.map)
        assert verdict.promises["effects"] == "PASS", [str(w) for w in verdict.failures]
        proved += verdict.ok
    assert proved, "its registers are dead at some of these places"


def test_without_a_map_nothing_is_held_against_a_second_part() -> None:
    for s in (s for s in subjects() if not s.claim["packets"]):
        verdict = verify(s.original, s.data)
        assert not [p for p, status in verdict.promises.items() if status == "FAIL"], s.label
