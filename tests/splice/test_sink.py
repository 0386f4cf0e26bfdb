"""The prologue in two parts: where the second one goes, and when the prologue stays whole."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.splice.conftest import TRACEABLE, analysed, image
from xtrace.analysis import KernelAnalysis
from xtrace.errors import Refused
from xtrace.isa.model import Flow
from xtrace.sampling import Sampling
from xtrace.splice import Options, apply, plan, sink
from xtrace.splice.model import Form
from xtrace.splice.plan import plan_kernel
from xtrace.verify import verify

SUNK = ("cp_async", "many_registers", "triton_fa_fwd", "triton_gemm", "triton_moe_gemm", "triton_rmsnorm")


def kinds(name: str, probes: str, **options: object) -> list[tuple[int, str]]:
    (entry,) = apply(plan(image(name), image(name).kernels, probes, Options(**options))).map["kernels"]  # type: ignore[arg-type]
    return [(i["pc"] // 16, i["kind"]) for i in entry["islands"]]


@pytest.mark.parametrize("name", SUNK)
def test_most_of_the_prologue_stands_where_the_kernel_waits_anyway(name: str) -> None:
    (entry, first), (place, second), (other, _), *_ = kinds(name, "pp")
    a = analysed(name)
    assert (entry, first, second) == (0, "prologue", "prologue rest")
    assert place < other
    assert a.instructions[place].control.wait_mask
    assert all(ins.flow is Flow.FALL for ins in a.instructions[:place])


@pytest.mark.parametrize("name", ["triton_rmsnorm", "triton_fa_fwd"])
def test_it_stands_behind_the_first_loads_and_in_front_of_their_results(name: str) -> None:
    a = analysed(name)
    _, (place, _), *_ = kinds(name, "sche")
    loads = [i for i in range(place) if "global_load" in a.instructions[i].tags]
    claimed = {a.instructions[i].control.write_sb for i in loads}
    waited = {k for k in range(6) if a.instructions[place].control.wait_mask >> k & 1}
    assert len(loads) == 8
    assert claimed & waited
    assert not any(
        a.instructions[i].control.wait_mask & sum(1 << k for k in claimed if k) for i in range(loads[-1], place)
    )


@pytest.mark.parametrize("name", SUNK)
def test_two_words_are_left_at_the_entry(name: str) -> None:
    (entry,) = apply(plan(image(name), image(name).kernels, "sche")).map["kernels"]
    assert entry["islands"][0] == {"pc": 0, "words": 2, "kind": "prologue"}


@pytest.mark.parametrize(
    ("probes", "options"),
    [
        ("pc:0x0", {}),  # a record at the entry needs all of it there
        ("pc:0x10", {}),
        ("pp", {"sample": Sampling.parse("cta=4")}),  # the decision is taken as early as possible
        ("pp", {"form": Form.PACKED}),
    ],
)
def test_the_prologue_stays_whole(probes: str, options: dict[str, object]) -> None:
    found = kinds("triton_gemm", probes, **options)
    assert found[0] == (0, "prologue")
    assert "prologue rest" not in {kind for _, kind in found}


def test_it_stays_whole_where_the_kernel_never_waits_before_its_first_branch() -> None:
    assert "prologue rest" not in {kind for _, kind in kinds("spin", "sche")}


def _anywhere(rng: random.Random):  # type: ignore[no-untyped-def]
    admissible = sink._places

    def places(a: KernelAnalysis, end: int) -> Iterator[tuple[int, int, bool]]:
        for index, _, _ in admissible(a, end):
            yield index, rng.randrange(100), rng.random() < 0.5

    return places


def check_anywhere(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(f"sink {seed}")
    monkeypatch.setattr(sink, "_places", _anywhere(rng))
    name = rng.choice([n for n in TRACEABLE if n not in ("triton_fa_fwd", "warp_specialised")])
    loaded = image(name)
    words = len(loaded.kernels[0].text) // 16
    some = ",".join(f"pc:{16 * rng.randrange(words):#x}" for _ in range(rng.randint(1, 20)))
    probes = rng.choice(("sche", "sche", "pp", "loop", "mem", some))
    try:
        result = apply(plan(loaded, loaded.kernels, probes))
    except Refused:
        return
    verdict = verify(loaded.data, result.data, result.map)
    assert verdict.ok, (name, probes, [str(w) for w in verdict.failures])


@pytest.mark.parametrize("seed", range(8))
def test_any_place_that_may_be_chosen_keeps_every_promise(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check_anywhere(seed, monkeypatch)


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(100, 112))
def test_any_place_among_many_keeps_every_promise(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check_anywhere(seed, monkeypatch)


def test_times_are_kept_at_once_where_no_register_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel then has four words at its entry, and the second part has two fewer."""
    carried = plan_kernel(analysed("triton_rmsnorm"), "sche", Options()).sunk
    assert carried is not None
    assert carried.carried
    monkeypatch.setattr(sink, "_untouched", lambda a, registers, index: [])
    loaded = image("triton_rmsnorm")
    result = apply(plan(loaded, loaded.kernels, "sche"))
    assert result.map["kernels"][0]["islands"][0]["words"] == 4
    assert verify(loaded.data, result.data, result.map).ok
