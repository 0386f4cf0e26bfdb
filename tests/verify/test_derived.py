"""Derived addresses: true ones pass, and whatever makes them false on some way through the kernel is found."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest

from tests.analysis.assembly import LAYOUT, assembled
from tests.verify.derived_mutations import DERIVED_MUTATORS
from tests.verify.subject import Mutator
from tests.verify.test_addresses import subjects
from tests.verify.test_mutations import MANY, campaign
from xtrace.analysis.affine import Affine, Form, minus
from xtrace.analysis.cfg import build_cfg
from xtrace.analysis.loops import find_loops
from xtrace.isa.model import Instruction
from xtrace.verify import derived, verify
from xtrace.verify.program import build
from xtrace.verify.replay import replay

LOOP = [
    "LDC.64 R2, c[0x0][0x210]",
    "LDC.64 R4, c[0x0][0x218]",
    "S2R R0, SR_TID.X",
    "NOP R90",  # the values are recorded before this one and the next
    "NOP R91",
    "IMAD.WIDE R6, R0, 0x2, R2",
    "IMAD.WIDE R8, R0, 0x2, R4",
    "LDGSTS.E.BYPASS.128 [R20], desc[UR14][R6.64], P0",
    "NOP R92",  # the leader is recorded before this one
    "LDGSTS.E.BYPASS.128 [R20+0x800], desc[UR14][R8.64+0x10], P0",
    "IADD3 R6, P1, R6, 0x80, RZ",
    "IMAD.X R7, RZ, RZ, R7, P1",
    "IADD3 R8, P1, R8, 0x80, RZ",
    "IMAD.X R9, RZ, RZ, R9, P1",
    "@P2 BRA 7",
    "EXIT",
]
LEADER, FOLLOWER = 7, 9


def claim(code: tuple[Instruction, ...]) -> dict[str, Any]:
    """What a map would say: the second copy's address is the first one's, plus the difference of two parameters."""
    index = {ins.text: ins.index for ins in code}
    first, second, behind = (16 * index[f"NOP R{n}"] for n in (90, 91, 92))
    copies = [ins for ins in code if ins.base == "LDGSTS"]
    address = {"size": 16, "offset": 0, "conditional": True}
    return {
        "sites": [
            {"id": 1, "pc": first, "at": first, "probe": "value", "value": {"registers": ["R2", "R3"]}},
            {"id": 2, "pc": second, "at": second, "probe": "value", "value": {"registers": ["R4", "R5"]}},
            {"id": 3, "pc": copies[0].pc, "at": behind, "probe": "address", "address": {**address, "made_with": None}},
        ],
        "derived": [
            {
                "id": 4, "pc": copies[1].pc, "at": copies[1].pc, "address": {**address, "offset": 16}, "from": 3,
                "offset": 16,
                "terms": [
                    {"site": 1, "part": "pair", "signed": False, "times": -1},
                    {"site": 2, "part": "pair", "signed": False, "times": 1},
                ],
            }
        ],
    }  # fmt: skip


def pair_of(code: tuple[Instruction, ...], said: dict[str, Any]) -> Any:
    program = build(code, LAYOUT)
    found: list[str] = []
    return SimpleNamespace(
        original=program, output=program, claim=said, word_bytes=16, isa=SimpleNamespace(layout=LAYOUT),
        align=SimpleNamespace(islands=list), found=found, fail=lambda promise, why: found.append(why),
    )  # fmt: skip


def faults(lines: list[str], change: Any = None) -> list[str]:
    code = assembled(lines)
    said = claim(code)
    if change is not None:
        change(said)
    pair = pair_of(code, said)
    derived.check(pair)
    return list(pair.found)


def numbers_agree(lines: list[str]) -> bool:
    code = assembled(lines)
    pair = pair_of(code, claim(code))
    return not replay(pair, pair.claim["derived"], derived.recorded_sites(pair))


def difference(lines: list[str]) -> Form:
    """Of the two copies' addresses, as the planner sees it."""
    code = assembled(lines)
    cfg = build_cfg(code)
    affine = Affine(cfg, find_loops(cfg), SimpleNamespace(layout=LAYOUT))  # type: ignore[arg-type]
    one, other = (ins.index for ins in code if ins.base == "LDGSTS")
    return minus(affine.at(other, "R8", "R9"), affine.at(one, "R6", "R7"))


def changed(at: int, *lines: str, instead: int = 0) -> list[str]:
    """The loop with lines in front of line ``at``; ``instead`` of so many. The branch follows."""
    out = [*LOOP[:at], *lines, *LOOP[at + instead :]]
    head = LEADER + (len(out) - len(LOOP) if at <= LEADER else 0)
    return [line if line != "@P2 BRA 7" else f"@P2 BRA {head}" for line in out]


def test_a_difference_that_no_iteration_changes_is_accepted_and_found() -> None:
    assert not faults(LOOP)
    assert numbers_agree(LOOP)
    assert {atom.kind for atom, counted in difference(LOOP) if atom is not None and counted is None} == {"pair"}
    assert all(counted is None for _, counted in difference(LOOP))


@pytest.mark.parametrize(
    ("what", "lines"),
    [
        ("one pointer advances under a condition", changed(12, "@P3 IADD3 R8, P1, R8, 0x80, RZ", instead=1)),
        ("one pointer advances further", changed(12, "IADD3 R8, P1, R8, 0x100, RZ", instead=1)),
        ("one pointer loses its carry", changed(13, "IMAD.X R9, RZ, RZ, R9, P4", instead=1)),
        ("one pointer starts elsewhere", changed(6, "IMAD.WIDE R8, R0, 0x4, R4", instead=1)),
        ("a register is overwritten behind its record", changed(6, "MOV R4, R0")),
        ("the pointer is overwritten in the loop by something unknown", changed(12, "LDS R9, [R30]", instead=0)),
        ("sign and zero extension differ", changed(6, "IMAD.WIDE.U32 R8, R0, 0x2, R4", instead=1)),
    ],
)
def test_a_difference_that_changes_is_found_by_algebra_by_numbers_and_by_the_planner(
    what: str, lines: list[str]
) -> None:
    assert faults(lines), what
    assert not numbers_agree(lines), what
    assert difference(lines) != difference(LOOP), what


@pytest.mark.parametrize(
    ("what", "lines", "said"),
    [
        ("condition", changed(9, "ISETP.GE.AND P0, R1, R2"), "condition that changes"),
        ("another condition", changed(9, LOOP[9].replace("P0", "P5"), instead=1), "another condition"),
        ("block", changed(9, "@P6 BRA 7"), "another block"),
    ],
)
def test_another_condition_or_block_is_found(what: str, lines: list[str], said: str) -> None:
    lines = [line.replace("ISETP.GE.AND P0,", "MOV P0,") for line in lines]
    assert any(said in why for why in faults(lines)), what


def test_lanes_must_be_the_same() -> None:
    early = changed(6, "@P5 EXIT")
    assert any("lanes may end" in why for why in faults(early))
    apart = changed(7, "S2R R40, SR_TID.X", "ISETP P5, R40, RZ", "@P5 BRA 18")
    assert any("lane groups" in why for why in faults(apart))


def test_the_reader_knows_nothing_on_ways_past_a_record() -> None:
    """Then it computes nothing, so nothing can be wrong."""
    skipped = [*LOOP[:3], "@UP0 BRA 6", *LOOP[3:]]
    skipped = [line if line != "@P2 BRA 7" else "@P2 BRA 8" for line in skipped]
    assert not faults(skipped)


def test_a_value_that_is_recorded_behind_its_leader_is_found() -> None:
    def later(said: dict[str, Any]) -> None:
        said["sites"][1] |= {"pc": 16 * FOLLOWER, "at": 16 * FOLLOWER}

    assert faults(LOOP, later)


def test_elections_must_be_among_all_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = next(s for s in subjects() if s.claim.get("derived"))
    recorded = {x["at"] // 16 for x in subject.claim["sites"] if x["probe"] != "time"}
    elections = {i for j, i in subject.probes if subject.traced[j].base == "ELECT"} - recorded
    whole = derived.together

    def some(program: Any, busy: Any) -> list[bool]:
        return [known and i not in elections for i, known in enumerate(whole(program, busy))]

    monkeypatch.setattr(derived, "together", some)
    verdict = verify(subject.original, subject.data, subject.map)
    assert any("another lane's" in str(w) for w in verdict.failures)


@pytest.mark.parametrize("mutator", DERIVED_MUTATORS, ids=lambda m: m.__name__)
def test_fault_in_a_traced_kernel_is_caught(mutator: Mutator) -> None:
    assert campaign(mutator, [s for s in subjects() if s.claim.get("derived")], 1)


@pytest.mark.fuzz
@pytest.mark.parametrize("mutator", DERIVED_MUTATORS, ids=lambda m: m.__name__)
def test_many_faults_in_a_traced_kernel_are_caught(mutator: Mutator) -> None:
    assert campaign(mutator, [s for s in subjects() if s.claim.get("derived")], MANY)


def test_numbers_alone_find_lies_about_constants() -> None:
    code = assembled(LOOP)
    for path, more in (("offset", 16), ("times", 1)):
        said = copy.deepcopy(claim(code))
        entry = said["derived"][0] if path == "offset" else said["derived"][0]["terms"][0]
        entry[path] += more
        pair = pair_of(code, said)
        assert replay(pair, said["derived"], derived.recorded_sites(pair))
