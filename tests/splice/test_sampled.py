"""Sampled kernels: the decision in the prologue, and the untouched copy in front of the traced code."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import cache

import pytest

import xtrace
from tests.splice.conftest import TRACEABLE, image
from xtrace.errors import BadInput, Refused
from xtrace.fidelity import compare
from xtrace.image import Image, eiattr, parse
from xtrace.isa import for_arch
from xtrace.isa.nvidia.decide import Decision
from xtrace.isa.nvidia.emit import SlotLayout, UniformState
from xtrace.isa.nvidia.prologue import PrologueRegisters, prologue
from xtrace.sampling import Sampling
from xtrace.splice import Options, SpliceResult, apply, plan, plan_kernel
from xtrace.verify import verify
from xtrace.verify.emulate import compile_word
from xtrace.verify.launches import lone_warp

RULES = ("cta=8", "cta=3/2,warpgroup=1", "cta=12/7,warpgroup=0,2")
WARP_RULE = "warp=1"


@cache
def sampled(name: str, rule: str, probes: str = "pp") -> SpliceResult:
    loaded = image(name)
    return apply(plan(loaded, loaded.kernels, probes, Options(sample=Sampling.parse(rule))))


def _text(loaded: Image) -> bytes:
    return loaded.kernels[0].text


@pytest.mark.parametrize("name", TRACEABLE)
def test_the_copy_is_the_original_and_the_certificate_holds(name: str) -> None:
    rule = RULES[TRACEABLE.index(name) % len(RULES)]
    original, result = image(name), sampled(name, rule)
    entry = result.map["kernels"][0]
    out = parse(result.data, name)
    assert entry["sample"] == Sampling.parse(rule).document()
    size = len(_text(original))
    assert entry["copy"] == {"pc": 16 * entry["islands"][0]["words"], "words": size // 16}
    assert entry["copy"]["pc"] % 128 == 0
    assert _text(out)[entry["copy"]["pc"] :][:size] == _text(original)
    verdict = verify(original.data, result.data, json.loads(json.dumps(result.map)))
    assert verdict.ok, [str(w) for w in verdict.failures]
    assert verdict.totals["copied_words"] == entry["copy"]["words"]
    assert verdict.totals["probe_words"] == sum(i["words"] for i in entry["islands"])


@pytest.mark.parametrize("name", ["early_exit", "triton_softmax"])
def test_without_a_map_the_copy_is_found_by_its_words(name: str) -> None:
    promises = verify(image(name).data, sampled(name, "cta=8").data).promises
    for promise in ("instructions", "targets", "hazards", "resources", "wellformed"):
        assert promises[promise] == "PASS"


@pytest.mark.parametrize("name", ["spin", "triton_fa_fwd"])
def test_the_copy_counts_as_inserted_code_not_as_damage(name: str) -> None:
    original, result = image(name), sampled(name, "cta=8")
    words = len(_text(original)) // 16
    for trace_map in (result.map, None):
        (found,) = compare(original, parse(result.data, name), map=trace_map)
        assert (found.relocated, found.changed_blocks, found.control_fields_changed) == (1.0, 0, 0)
        assert found.inserted >= words - 16  # but for the padding at its end


def test_the_copy_stands_behind_the_prologue_and_traced_warps_go_over_it() -> None:
    """Near the entry, where code is at hand when a kernel starts; far behind it a cold start took longer."""
    result = sampled("triton_fa_fwd", "cta=8")
    entry = result.map["kernels"][0]
    code = for_arch("sm_90a").decode(_text(parse(result.data, "x")))
    start = entry["copy"]["pc"] // 16
    over = [ins for ins in code[:start] if ins.base == "BRA" and not ins.guard]
    assert [ins.target for ins in over] == [16 * (start + entry["copy"]["words"])]
    assert {ins.base for ins in code[over[0].index + 1 : start]} <= {"NOP"}
    assert start <= 64


@pytest.mark.parametrize("rule", ["cta=1", "warp=0-31", "warpgroup=0-7"])
def test_a_rule_that_takes_everything_changes_nothing(rule: str) -> None:
    plain, taken = xtrace.splice(image("spin"), probes="pp"), sampled("spin", rule)
    assert (taken.data, taken.map) == (plain.data, plain.map)


def test_what_is_not_needed_for_the_decision_comes_behind_it() -> None:
    """The fewer instructions an untraced warp runs, the better: no thread numbers for a rule about CTAs."""
    result = sampled("triton_fa_fwd", "cta=8")
    code = for_arch("sm_90a").decode(_text(parse(result.data, "x")))
    branch = next(ins for ins in code if ins.base == "BRA")
    before = [ins.base for ins in code[: branch.index]]
    assert branch.target == result.map["kernels"][0]["copy"]["pc"]
    assert len(before) <= 13
    assert not any("TID.X" in ins.text and "CTAID" not in ins.text for ins in code[: branch.index])


@pytest.mark.parametrize(
    ("name", "rule", "words"),
    [
        ("brx_table", "cta=2", "jump through a table leads into one copy only (BRX"),
        ("triton_fa_fwd", "warp=0", "only some of the four warps that execute WARPGROUP.ARRIVE"),
        ("warp_specialised", "warp=0-5", "only some of the four warps that execute USETMAXREG"),
        ("call_rel", "cta=2", "calls keep return addresses"),
    ],
)
def test_kernels_that_cannot_be_sampled_are_refused_with_the_reason(name: str, rule: str, words: str) -> None:
    loaded = image(name)
    made = plan(loaded, loaded.kernels, "sche", Options(sample=Sampling.parse(rule)))
    assert not made.placed
    assert all(words in r.reason for k in made.kernels for r in k.refused)
    with pytest.raises(Refused, match="nothing to trace"):
        apply(made)


def test_no_image_can_count_launches() -> None:
    loaded = image("spin")
    with pytest.raises(BadInput) as caught:
        plan(loaded, loaded.kernels, "sche", Options(sample=Sampling.parse("launch=10,cta=2")))
    assert caught.value.code == "XT3064"


def test_lists_of_instructions_name_both_copies() -> None:
    """EXIT offsets and the like: whoever patches or reports all of them finds those of the copy, too."""
    for name in ("spin", "triton_fa_fwd", "warp_specialised"):
        before, after = image(name).kernels[0], parse(sampled(name, "cta=8").data, name).kernels[0]
        start = sampled(name, "cta=8").map["kernels"][0]["copy"]["pc"]
        lists = 0
        for old, new in zip(before.info, after.info, strict=True):
            if eiattr.CARRIES.get(old.attr) is not eiattr.Carries.OFFSETS:
                continue
            lists += 1
            n = len(old.payload)
            assert len(new.payload) == 2 * n
            offsets = [int.from_bytes(old.payload[k : k + 4], "little") for k in range(0, n, 4)]
            again = [int.from_bytes(new.payload[n + k : n + k + 4], "little") for k in range(0, n, 4)]
            assert again == [start + k for k in offsets]
        assert lists


def _decisions(rng: random.Random) -> Sequence[Decision]:
    every = [1, 2, 3, 8, 12, 1000, 1 << 20, *(rng.randint(1, 1 << 20) for _ in range(8))]
    made = [Decision(n, rng.choice((0, rng.randrange(n))), None, 2) for n in every if n > 1]
    made += [Decision(1, 0, mask, 2) for mask in (1, 0xF0, 1 << 31, rng.getrandbits(32))]
    return made + [Decision(n, rng.randrange(n), rng.getrandbits(32) | 1, 2) for n in every[:9]]


def test_decisions_are_right_for_any_cta_and_warp() -> None:
    """Run by an interpreter that shares nothing with the encoder, on made-up launches."""
    rng = random.Random(7)
    state = UniformState(60, 59, 56, 55, 54, 53)
    isa = for_arch("sm_90a")
    cases = [(d, block) for d in _decisions(rng) for block in (None, (1024, 1, 1), (16, 8, 2))]
    islands = []
    for decision, block in cases:
        general = tuple(range(10, 10 + PrologueRegisters.needed(block)))
        registers = PrologueRegisters((8, 9), general, tuple(range(4, 12)), 0, 2, block)
        islands.append(prologue(state, SlotLayout(16384, 8192), registers, decision=decision))
    codes = isa.decode_many([b"".join(w.to_bytes(16, "little") for w in i.words) for i in islands])
    for (decision, block), code in zip(cases, codes, strict=True):
        branch = next(ins for ins in code if ins.base == "BRA")
        assert branch.guard == "@!P2"
        actions = [compile_word(ins) for ins in code[: branch.index]]
        rule = Sampling(decision.every, decision.offset, (1 << 32) - 1 if decision.warps is None else decision.warps)
        for _ in range(12):
            n = decision.every
            cta = rng.choice((rng.randrange(1 << 31), rng.randrange(3 * n + 1)))
            cta = cta - cta % n + decision.offset if rng.random() < 0.5 else cta
            shape = block or rng.choice(((1024, 1, 1), (32, 32, 1), (3, 5, 60)))
            warp = rng.randrange(-(-shape[0] * shape[1] * shape[2] // 32))
            made = lone_warp(rng, shape, cta, warp)
            for action in actions:
                action(made)
            assert bool(made.get("P2")) == bool(rule.takes(cta, warp)), (rule, cta, warp)


def test_a_kernel_needs_a_free_predicate_at_its_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.splice.conftest import analysed
    from xtrace.splice.resources import Free

    monkeypatch.setattr(Free, "predicates", property(lambda self: []))
    made = plan_kernel(analysed("spin"), "sche", Options(sample=Sampling.parse("cta=2")))
    assert made.state is None
    assert "no predicate is dead" in made.refused[0].reason
