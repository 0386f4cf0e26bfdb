"""Known edits give known preservation."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fidelity.toy import BODY, ISA, REAL, TARGETS, body, make, spliced, with_stall
from xtrace.fidelity import LEVELS, compare_instructions
from xtrace.fidelity.addresses import AddressMap
from xtrace.fidelity.blocks import split


def test_a_kernel_is_wholly_preserved_in_itself() -> None:
    result = compare_instructions(ISA, body(), body())
    assert [getattr(result, level) for level in LEVELS] == [1.0] * 5
    assert (result.instructions, result.inserted, result.removed) == (REAL, 0, 0)
    assert (result.changed_blocks, result.control_fields_changed, result.retargeted) == (0, 0, 0)


def test_trailing_padding_does_not_count() -> None:
    longer = make([*BODY, ("NOP", ()), ("NOP", ())], targets=TARGETS)
    assert compare_instructions(ISA, body(), longer).other_instructions == REAL


@pytest.mark.parametrize("before", range(1, REAL))
@pytest.mark.parametrize("use_map", [False, True])
def test_insertion_keeps_everything_but_the_moved_branch(before: int, use_map: bool) -> None:
    addresses = AddressMap([(16 * before, 2)], sites=1) if use_map else None
    result = compare_instructions(ISA, body(), spliced(before), addresses=addresses)
    distance_changed = 1 < before <= 4 or before == 1  # the island lies between the branch and its target
    assert result.relocated == 1.0
    assert result.strict == pytest.approx(1 - distance_changed / REAL)
    assert result.retargeted == distance_changed
    assert (result.inserted, result.changed_blocks) == (2, 0)
    assert (result.method, result.sites) == (("map", 1) if use_map else ("lcs", None))


@pytest.mark.parametrize("use_map", [False, True])
def test_branch_to_another_instruction_is_not_relocated(use_map: bool) -> None:
    wrong = spliced(3)
    k = 6  # the moved branch
    wrong[k] = make([*[("NOP", ())] * k, ("BRA", ())], targets={k: 2})[k]
    addresses = AddressMap([(48, 2)], sites=1) if use_map else None
    result = compare_instructions(ISA, body(), wrong, addresses=addresses)
    assert result.relocated == pytest.approx(1 - 1 / REAL)
    assert result.operands == 1.0  # the label is blanked there
    assert result.changed_blocks == 1


def test_branch_that_skips_the_island_is_relocated_too_but_not_one_past_the_target() -> None:
    behind = spliced(1)  # island at 1..2, target of the loop moved to 3
    for target, kept in ((1, True), (3, True), (4, False), (0, False)):
        edited = list(behind)
        edited[6] = make([*[("NOP", ())] * 6, ("BRA", ())], targets={6: target})[6]
        assert (compare_instructions(ISA, body(), edited).relocated == 1.0) is kept, target


def test_renamed_registers_lower_operands_but_not_form() -> None:
    renamed = make([(op, tuple(r + 20 for r in registers)) for op, registers in BODY], targets=TARGETS)
    result = compare_instructions(ISA, body(), renamed)
    assert result.form == result.opcode == 1.0
    assert result.operands == pytest.approx(2 / REAL)  # the branch and EXIT have no registers
    assert result.strict == result.relocated == result.operands


def test_a_control_only_edit_lowers_strict_and_is_counted() -> None:
    edited = body()
    edited[2] = with_stall(edited[2], 1)
    result = compare_instructions(ISA, body(), edited)
    assert result.control_fields_changed == 1
    assert result.strict == result.relocated == pytest.approx(1 - 1 / REAL)
    assert result.operands == 1.0
    assert result.changed_blocks == 1


def test_a_reuse_flag_is_a_scheduling_field_not_an_operand() -> None:
    edited = body()
    edited[3] = replace(edited[3], word=edited[3].word | 1 << 126, text=edited[3].text.replace("R4", "R4.reuse"))
    result = compare_instructions(ISA, body(), edited)
    assert result.operands == 1.0
    assert result.strict < 1.0


def test_a_replaced_opcode_lowers_every_level() -> None:
    edited = body()
    edited[3] = make([*[("NOP", ())] * 3, ("IADD3", (5, 4, 2))])[3]
    result = compare_instructions(ISA, body(), edited)
    assert [getattr(result, level) for level in LEVELS] == [pytest.approx(1 - 1 / REAL)] * 5
    assert (result.inserted, result.removed) == (1, 1)


def test_a_guard_counts_for_operands_and_form() -> None:
    edited = body()
    edited[3] = replace(edited[3], guard="@P0", word=edited[3].word | 1 << 60)
    result = compare_instructions(ISA, body(), edited)
    assert result.form == pytest.approx(1 - 1 / REAL)
    assert result.opcode == 1.0


def test_an_empty_kernel_is_preserved() -> None:
    assert compare_instructions(ISA, [], []).strict == 1.0


Line = tuple[str, tuple[int, ...]]
registers = st.lists(st.integers(0, 3), min_size=2, max_size=3).map(tuple)
lines = st.lists(st.tuples(st.sampled_from(["IADD3", "FFMA", "LDG.E", "MOV"]), registers), max_size=30)


@given(lines, lines)
def test_levels_are_ordered_and_matches_symmetric(a: list[Line], b: list[Line]) -> None:
    forth = compare_instructions(ISA, make(a), make(b))
    back = compare_instructions(ISA, make(b), make(a))
    shares = [getattr(forth, level) for level in LEVELS]
    assert shares == sorted(shares)
    for level in LEVELS:
        matched = getattr(forth, level) * len(a) if a else 0
        assert matched == pytest.approx(getattr(back, level) * len(b) if b else 0)
    assert (forth.inserted, forth.removed) == (back.removed, back.inserted)


def test_random_insertions_never_cost_preservation() -> None:
    rng = random.Random(7)
    for _ in range(50):
        original = [("IADD3", (rng.randrange(4), rng.randrange(4))) for _ in range(40)]
        other = list(original)
        for _ in range(rng.randrange(1, 10)):
            other.insert(rng.randrange(len(other) + 1), ("FFMA", (rng.randrange(250), 1, 1)))
        result = compare_instructions(ISA, make(original), make(other))
        assert result.strict == 1.0
        assert result.inserted == len(other) - len(original)


def test_blocks_start_at_targets_and_behind_jumps() -> None:
    assert split(body()[:REAL]) == [range(1), range(1, 5), range(5, 7)]
    assert split([]) == []
