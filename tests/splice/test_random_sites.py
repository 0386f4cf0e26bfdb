"""Any choice of sites gives an image that keeps every promise, or a refusal with a reason."""

from __future__ import annotations

import random

import pytest

from tests.splice.conftest import TRACEABLE, image
from xtrace.errors import Refused
from xtrace.splice import Options, apply, plan
from xtrace.splice.model import LAYOUTS
from xtrace.splice.resources import Free
from xtrace.verify import verify

PATTERNS = (
    "block",
    "loop,block",
    "op:*MMA*",
    "op:L*",
    "after:op:*",
    "op:S*,op:L*",
    "op:*",
    "after:op:LD*,op:ST*",
    "mem",
    "op:L*,mem",
)


def _check(name: str, spec: str, records: int, layout: int = 0) -> None:
    loaded = image(name)
    try:
        result = apply(plan(loaded, loaded.kernels, spec, Options(records, layout)))
    except Refused:
        return
    certificate = verify(loaded.data, result.data, result.map)
    assert certificate.ok, (name, spec, layout, certificate.to_json()[:3000])


def _draw(rng: random.Random) -> tuple[str, str, int, int]:
    name = rng.choice(TRACEABLE)
    words = len(image(name).kernels[0].text) // 16
    scattered = [rng.randrange(words) for _ in range(rng.randint(1, 60))]
    start = rng.randrange(words)
    crowded = [i for i in range(start, min(start + 100, words)) if rng.random() < 0.3] or [start]
    chosen = (",".join(f"pc:{16 * i:#x}" for i in some) for some in (scattered, crowded))
    return name, rng.choice((*PATTERNS, *chosen)), rng.choice((16, 64, 1024)), rng.randrange(LAYOUTS)


@pytest.mark.parametrize("seed", range(12))
def test_random_sites_keep_every_promise(seed: int) -> None:
    _check(*_draw(random.Random(seed)))


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(100, 140))
def test_many_random_sites_keep_every_promise(seed: int) -> None:
    _check(*_draw(random.Random(seed)))


@pytest.mark.parametrize("name", ["cp_async", "warp_specialised", "odd_block"])
def test_a_probe_before_every_instruction_keeps_every_promise(name: str) -> None:
    _check(name, "op:*", 64)


@pytest.mark.parametrize("name", ["triton_gemm", "odd_block"])
def test_a_probe_at_the_entry_waits_for_the_prologue_where_no_lane_can_be_elected(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Free, "predicates", property(lambda self: []))
    _check(name, "pc:0x0", 64)
