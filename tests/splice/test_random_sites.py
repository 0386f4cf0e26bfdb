"""Any choice of sites gives an image that keeps every promise, or a refusal with a reason."""

from __future__ import annotations

import random

import pytest

from tests.splice.conftest import TRACEABLE, image
from xtrace.errors import Refused
from xtrace.splice import Options, apply, plan
from xtrace.verify import verify

PATTERNS = ("block", "loop,block", "op:*MMA*", "op:L*", "after:op:*", "op:S*,op:L*", "op:*", "after:op:LD*,op:ST*")


def _check(name: str, spec: str, records: int) -> None:
    loaded = image(name)
    try:
        result = apply(plan(loaded, loaded.kernels, spec, Options(records)))
    except Refused:
        return
    certificate = verify(loaded.data, result.data, result.map)
    assert certificate.ok, (name, spec, certificate.to_json()[:3000])


def _draw(rng: random.Random) -> tuple[str, str, int]:
    name = rng.choice(TRACEABLE)
    words = len(image(name).kernels[0].text) // 16
    scattered = ",".join(f"pc:{16 * rng.randrange(words):#x}" for _ in range(rng.randint(1, 60)))
    return name, rng.choice((*PATTERNS, scattered)), rng.choice((16, 64, 1024))


@pytest.mark.parametrize("seed", range(6))
def test_random_sites_keep_every_promise(seed: int) -> None:
    _check(*_draw(random.Random(seed)))


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(100, 140))
def test_many_random_sites_keep_every_promise(seed: int) -> None:
    _check(*_draw(random.Random(seed)))


@pytest.mark.parametrize("name", ["cp_async", "warp_specialised", "odd_block"])
def test_a_probe_before_every_instruction_keeps_every_promise(name: str) -> None:
    _check(name, "op:*", 64)
