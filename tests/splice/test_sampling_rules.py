"""What a sampling rule takes, and what is said about a bad one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from xtrace.errors import BadInput
from xtrace.sampling import EVERYTHING, MAX_EVERY, Sampling


@pytest.mark.parametrize(
    ("text", "written", "ctas", "warps"),
    [
        ("cta=3", "cta=3", {0, 3, 6}, set(range(8))),
        ("cta=4/1", "cta=4/1", {1, 5}, set(range(8))),
        ("warp=1", "warp=1", set(range(8)), {1}),
        ("warp=0,2-3,7", "warp=0,2-3,7", set(range(8)), {0, 2, 3, 7}),
        ("warpgroup=1", "warp=4-7", set(range(8)), {4, 5, 6, 7}),
        ("role=0", "warp=0-3", set(range(8)), {0, 1, 2, 3}),
        ("cta=2,warp=1,5,warpgroup=0", "cta=2,warp=0-3,5", {0, 2, 4, 6}, {0, 1, 2, 3, 5}),
        (" cta = 2 , warp = 6 ", "cta=2,warp=6", {0, 2, 4, 6}, {6}),
        ("cta=1", "", set(range(8)), set(range(8))),
    ],
)
def test_a_rule_takes_what_it_says(text: str, written: str, ctas: set[int], warps: set[int]) -> None:
    rule = Sampling.parse(text)
    taken = {(c, w) for c in range(8) for w in range(8) if rule.takes(c, w)}
    assert taken == {(c, w) for c in ctas for w in warps}
    assert str(rule) == written
    assert rule.everything == (len(taken) == 64)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("", "XT3060", "empty"),
        ("cta", "XT3060", "KEY=VALUE"),
        ("every=3", "XT3060", "'every' is not one of cta, warp, warpgroup, launch"),
        ("cta=x", "XT3060", "cta=N/OFFSET"),
        ("cta=3/", "XT3060", "cta=N/OFFSET"),
        ("cta=2,cta=3", "XT3060", "twice"),
        ("cta=2,5", "XT3060", "'5' is not KEY=VALUE"),
        ("warp=a-b", "XT3060", "range such as 4-7"),
        ("cta=0", "XT3061", "from 1"),
        ("cta=4/4", "XT3061", "OFFSET from 0"),
        (f"cta={MAX_EVERY + 1}", "XT3061", str(MAX_EVERY)),
        ("warp=32", "XT3061", "from 0 to 31"),
        ("warp=5-2", "XT3061", "smaller one first"),
        ("warpgroup=8", "XT3061", "from 0 to 7"),
        ("iteration=10", "XT3062", "cannot be sampled yet"),
    ],
)
def test_a_bad_rule_is_refused_with_an_example(text: str, code: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        Sampling.parse(text)
    assert caught.value.code == code
    assert words in caught.value.what
    assert caught.value.where == "--sample"
    assert caught.value.hint


def _random(rng: random.Random) -> Sampling:
    every, launch = rng.choice((1, 2, 3, 12, rng.randint(1, MAX_EVERY))), rng.randint(1, 9)
    mask = rng.choice(((1 << 32) - 1, rng.getrandbits(32) | 1 << rng.randrange(32)))
    return Sampling(every, rng.randrange(every), mask, launch, rng.randrange(launch))


def test_rules_survive_being_written_and_read() -> None:
    rng = random.Random(1)
    for _ in range(300):
        rule = _random(rng)
        if str(rule):
            assert Sampling.parse(str(rule)) == Sampling.parse(str(Sampling.parse(str(rule)))) == rule
        assert Sampling.of_document(rule.document(), "map") == rule.image
        assert Sampling.of_kernel({"name": "k", "sample": rule.document()}) == rule.image
    assert Sampling.of_kernel({"name": "k"}) == EVERYTHING


def test_counts_are_those_of_the_warps_taken() -> None:
    rng = random.Random(2)
    for _ in range(300):
        rule, ctas, width = _random(rng), rng.randint(0, 50), rng.randint(1, 32)
        taken = [[bool(rule.takes(c, w)) for w in range(width)] for c in range(ctas)]
        assert [rule.warps_of(c, width) for c in range(ctas)] == [sum(row) for row in taken]
        assert rule.warps(ctas, width) == sum(map(sum, taken))
        slots = np.arange(ctas * width)
        assert rule.takes(slots // width, slots % width).tolist() == [x for row in taken for x in row]


def test_launches_are_counted_from_zero() -> None:
    rule = Sampling.parse("launch=4/1")
    assert [n for n in range(12) if rule.takes_launch(n)] == [1, 5, 9]
    assert rule.image.everything


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"cta_every": 0, "cta_offset": 0, "warps": None},
        {"cta_every": 3, "cta_offset": 3, "warps": None},
        {"cta_every": True, "cta_offset": 0, "warps": None},
        {"cta_every": 1, "cta_offset": 0, "warps": [32]},
        {"cta_every": 1, "cta_offset": 0, "warps": []},
        {"cta_every": 1, "cta_offset": 0, "warps": "0"},
    ],
)
def test_a_map_with_another_rule_is_refused(document: object) -> None:
    with pytest.raises(BadInput, match="sampling rule is malformed") as caught:
        Sampling.of_document(document, "kernel")
    assert caught.value.code == "XT3063"
