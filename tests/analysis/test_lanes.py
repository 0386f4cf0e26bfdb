"""Regions in which one side of a branch works while the other waits, as the planner and the verifier see them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.analysis.programs import ins, program
from xtrace.analysis.divergence import lanes
from xtrace.isa import for_arch
from xtrace.isa.model import Flow, Instruction
from xtrace.verify import lanes as verified
from xtrace.verify.program import build

LAYOUT = for_arch("sm_90a").layout
R, P = LAYOUT["R"].bit, LAYOUT["P"].bit


def elect(i: int, p: int = 0) -> Instruction:
    return ins(i, opcode="ELECT", writes=P(p), text=f"ELECT P{p}, URZ, PT")


def branch(i: int, target: int, guard: str = "@!P0") -> Instruction:
    text = f"{guard} BRA {16 * target:#x}"
    return ins(i, opcode="BRA", target=target, guard=guard, reads=P(int(guard[-1])), text=text)


def opens(i: int, meeting: int, b: int = 0) -> Instruction:
    return ins(i, opcode="BSSY", tags=["converge"], text=f"BSSY B{b}, {16 * meeting:#x}")


def meets(i: int, b: int = 0) -> Instruction:
    return ins(i, opcode="BSYNC", tags=["converge"], text=f"BSYNC B{b}")


def thread(i: int, r: int = 9) -> Instruction:
    return ins(i, opcode="S2R", writes=R(r), text=f"S2R R{r}, SR_TID.X")


def differs(i: int, p: int, r: int = 9) -> Instruction:
    return ins(i, opcode="ISETP", writes=P(p), reads=R(r), text=f"ISETP.NE.AND P{p}, PT, R{r}, RZ, PT")


def end(i: int) -> Instruction:
    return ins(i, opcode="EXIT", flow=Flow.EXIT, text="EXIT")


def seen(items: Sequence[Instruction], busy: Sequence[int] = ()) -> tuple[str, str]:
    """A letter per instruction: lanes together (.), apart (D); and whether one lane at most is there (1)."""
    cfg = program(*items)
    found = lanes(cfg, LAYOUT, frozenset(busy))
    apart = verified.parted(build(items, LAYOUT), frozenset(busy))
    reached = [cfg.block_of[i.index] in cfg.reachable for i in items]
    assert [a for a, r in zip(apart, reached, strict=True) if r] == [
        a for a, r in zip(found.apart, reached, strict=True) if r
    ], "planner and verifier do not agree"
    letters = "".join("D" if a else "." for a in found.apart)
    return letters, "".join("1" if one else "." for one in found.sole)


def elected(body: Sequence[Instruction] = ()) -> list[Instruction]:
    """An elected lane runs 3 to 5 while the others wait at 6."""
    items = [elect(0), opens(1, 6), branch(2, 6), ins(3), ins(4), ins(5), meets(6), end(7)]
    for x in body:
        items[x.index] = x
    return items


def test_an_elected_lane_whose_others_wait_is_alone() -> None:
    assert seen(elected()) == ("......D.", "...111..")


def test_one_lane_cannot_part() -> None:
    retry = [thread(3), differs(4, 1), branch(5, 4, "@!P1")]
    assert seen(elected(retry)) == ("......D.", "...111..")


def test_several_lanes_within_part_again() -> None:
    items = [thread(0), differs(1, 0), opens(2, 8), branch(3, 8), differs(4, 1, 9), branch(5, 7, "@!P1"), ins(6)]
    assert seen([*items, ins(7), meets(8), end(9)], [7])[0] == "......DDD."


@pytest.mark.parametrize(
    ("busy", "extra"),
    [
        ([6], []),  # a record where the others wait: they run it whenever they like
        ([], [opens(1, 6, 1)]),  # the barrier that is waited for was not set by all
        ([], [ins(4, opcode="WARPSYNC.ALL", tags=["converge"], text="WARPSYNC.ALL")]),  # waits for the waiting
        ([], [ins(5, opcode="EXIT", flow=Flow.EXIT, guard="@P3", reads=P(3), text="@P3 EXIT")]),
    ],
)
def test_lanes_are_apart_where_the_others_do_more_than_wait(busy: list[int], extra: list[Instruction]) -> None:
    letters, _ = seen(elected(extra), busy)
    assert letters[3] == "D"


def test_a_claim_on_the_way_to_the_meeting_point_makes_no_region() -> None:
    items = [elect(0), branch(1, 4), ins(2), ins(3), ins(4, read_sb=1)]
    sync = ins(5, opcode="WARPSYNC.ALL", tags=["converge"], text="WARPSYNC.ALL")
    assert seen([*items, sync, end(6)])[0] == "..DDDD."


def test_what_one_side_wrote_differs_behind_the_meeting_point() -> None:
    write = ins(4, opcode="MOV", writes=R(5), text="MOV R5, 0x1")
    items = [*elected([write])[:7], differs(7, 2, 5), branch(8, 10, "@!P2"), ins(9), end(10)]
    assert seen(items)[0] == "......D..DD"


def spill(i: int, r: int, at: int) -> Instruction:
    return ins(i, opcode="STL", reads=R(r) | R(1), tags=["local_store"], text=f"STL [R1+{at:#x}], R{r}")


def fill(i: int, r: int, at: int) -> Instruction:
    return ins(i, opcode="LDL", reads=R(1), writes=R(r), tags=["local_load"], text=f"LDL R{r}, [R1+{at:#x}]")


@pytest.mark.parametrize(("register", "apart"), [(5, "."), (9, "D")])
def test_a_spilled_number_differs_between_lanes_if_it_did(register: int, apart: str) -> None:
    uniform = ins(2, opcode="MOV", writes=R(5), text="MOV R5, 0x1")
    start = [ins(0, opcode="LDC", writes=R(1), text="LDC R1, c[0x0][0x28]"), thread(1), uniform]
    items = [
        *start,
        spill(3, 9, 4),
        spill(4, register, 8),
        fill(5, 6, 8),
        differs(6, 0, 6),
        branch(7, 9),
        ins(8),
        end(9),
    ]
    assert seen(items)[0] == "." * 8 + 2 * apart


def test_a_stack_pointer_that_gets_away_hides_what_is_spilled() -> None:
    uniform = ins(2, opcode="MOV", writes=R(5), text="MOV R5, 0x1")
    start = [ins(0, opcode="LDC", writes=R(1), text="LDC R1, c[0x0][0x28]"), ins(1, reads=R(1), writes=R(7)), uniform]
    items = [*start, spill(3, 5, 4), fill(4, 6, 4), differs(5, 0, 6), branch(6, 8), ins(7), end(8)]
    assert seen(items)[0] == "." * 7 + "DD"


def test_a_branch_that_the_whole_warp_votes_on_parts_nobody() -> None:
    vote = ins(2, opcode="BRA.U.ANY", target=4, guard="@P0", reads=P(0), text="@P0 BRA.U.ANY 0x40")
    assert seen([thread(0), differs(1, 0), vote, ins(3), end(4)])[0] == "....."


def test_a_shuffle_from_one_lane_gives_all_the_same() -> None:
    shuffle = ins(1, opcode="SHFL.IDX", reads=R(9), writes=R(5), text="SHFL.IDX PT, R5, R9, RZ, 0x1f")
    assert seen([thread(0), shuffle, differs(2, 0, 5), branch(3, 5), ins(4), end(5)])[0] == "......"
