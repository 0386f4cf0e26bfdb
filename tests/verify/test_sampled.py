"""Kill rate of faults in sampled kernels, and kernels that must not be sampled."""

from __future__ import annotations

import json
import random
import sys
from functools import lru_cache

import pytest

from tests.verify import handmade as h
from tests.verify.mutations import MUTATORS as GENERAL
from tests.verify.packet_mutations import PACKET_MUTATORS
from tests.verify.sampling_mutations import SAMPLING_MUTATORS
from tests.verify.subject import Mutator, Subject
from tests.verify.test_mutations import MANY, campaign
from xtrace.errors import Unsupported
from xtrace.image import CodeEdit, load, parse, rewrite, tables
from xtrace.image.writer import PADDING_WORD
from xtrace.sampling import Sampling
from xtrace.splice import Options, apply, plan
from xtrace.splice.pad import pad
from xtrace.verify import verify

CASES = (
    ("spin", "block", "cta=3"),
    ("early_exit", "block", "cta=12/5,warp=1,3"),
    ("triton_softmax", "pp", "warp=1,4-6"),
    ("warp_specialised", "pp", "cta=8,warpgroup=0,2"),
)


@lru_cache(maxsize=1)
def subjects() -> tuple[Subject, ...]:
    found = []
    for name, probes, rule in CASES:
        image = load(h.GOLDEN / f"{name}.cubin")
        result = apply(plan(image, image.kernels, probes, Options(64, sample=Sampling.parse(rule))))
        trace_map = json.loads(json.dumps(result.map))
        found.append(Subject(f"{name} {rule}", image.data, result.data, trace_map, image.kernels[0].name))
    return tuple(found)


def test_subjects_are_sound_before_faults_are_planted() -> None:
    for subject in subjects():
        verdict = verify(subject.original, subject.data, subject.map)
        assert verdict.ok, (subject.label, [str(w) for w in verdict.failures])


@pytest.mark.fuzz
@pytest.mark.parametrize("mutator", SAMPLING_MUTATORS, ids=lambda m: m.__name__)
def test_fault_of_sampling_is_caught(mutator: Mutator) -> None:
    assert campaign(mutator, subjects(), MANY), "no kernel has a place for this fault"


@pytest.mark.fuzz
@pytest.mark.parametrize("mutator", [*GENERAL, *PACKET_MUTATORS], ids=lambda m: m.__name__)
def test_other_faults_are_caught_beside_a_copy(mutator: Mutator) -> None:
    campaign(mutator, subjects(), max(MANY // 2, 1))


def test_a_rule_that_splits_a_warpgroup_is_found_without_the_planner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["xtrace.splice.plan"], "refusal", lambda a, rule: None)
    image = load(h.GOLDEN / "triton_gemm.cubin")
    result = apply(plan(image, image.kernels, "sche", Options(sample=Sampling.parse("warp=0-2"))))
    verdict = verify(image.data, result.data, json.loads(json.dumps(result.map)))
    assert verdict.promises["effects"] == "FAIL"
    assert any("splits warpgroups" in w.why for w in verdict.failures)


def test_a_jump_table_is_never_shared_by_two_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["xtrace.splice.plan"], "refusal", lambda a, rule: None)
    image = load(h.GOLDEN / "brx_table.cubin")
    made = plan(image, image.kernels, "sche", Options(sample=Sampling.parse("cta=2")))
    with pytest.raises(Unsupported, match="both copies"):  # the writer refuses
        apply(made)
    monkeypatch.setattr(tables, "_with_copies", lambda kernel, move, section, content, where: bytes(content))
    result = apply(made)  # and so does the verifier, if the writer does not
    verdict = verify(image.data, result.data, json.loads(json.dumps(result.map)))
    assert verdict.promises["targets"] == "FAIL"
    assert any("through a register or table" in w.why for w in verdict.failures)


def test_the_pad_image_of_a_sampled_kernel_keeps_its_promises() -> None:
    subject = subjects()[1]
    padded = pad(subject.data, subject.map)
    promises = verify(subject.original, padded.data, padded.map).promises
    for name in ("instructions", "targets", "liveness", "hazards", "wellformed"):
        assert promises[name] == "PASS"
    assert len(padded.data) == len(subject.data)


def test_nothing_may_hide_between_the_copy_and_the_first_instruction() -> None:
    """Without a map the first instruction may be found further on; what is in front of it is in no island."""
    image = load(h.GOLDEN / "many_registers.cubin")
    kernel = image.kernels[0]
    nops, size = PADDING_WORD * 8, len(kernel.text)
    text = nops + kernel.text + nops + kernel.text

    def moved(old: int) -> int:
        return old + size + 256

    edit = CodeEdit(kernel.name, text, kernel.registers, moved, lambda old: old and moved(old), 128)
    verdict = verify(image.data, rewrite(image, [edit]))
    assert verdict.totals["copied_words"] == size // 16
    assert any("between the copy of the code and the first instruction" in w.why for w in verdict.failures)


def test_an_original_that_repeats_itself_is_not_taken_for_a_copy() -> None:
    """The rule of thumb that finds a copy without a map needs all of the original, and room for as much behind."""
    rng = random.Random(3)
    image = load(h.GOLDEN / "spin.cubin")
    plain = apply(plan(image, image.kernels, "block", Options(64)))
    assert verify(image.data, plain.data).totals["copied_words"] == 0
    assert verify(image.data, image.data).totals["copied_words"] == 0
    sampled = subjects()[0]
    data = bytearray(sampled.data)
    kernel = parse(sampled.data, "spin").kernels[0]
    at = kernel.offset + sampled.claim["copy"]["pc"] + rng.randrange(16 * sampled.claim["copy"]["words"])
    data[at] ^= 1
    assert not verify(sampled.original, bytes(data)).ok
