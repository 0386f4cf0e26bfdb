"""PTX is read by grammar: comments, strings, labels and longer opcodes are never mistaken for instructions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.ptx_probe.module import entry_names, parse_entry
from baselines.ptx_probe.select import exit_sites, mark_sites
from baselines.ptx_probe.tokens import tokenise
from baselines.sites import load_groups
from tests.baselines.samples import NO_LIST, NO_PARAMETERS, PTX
from xtrace.errors import BadInput, Unsupported, XtraceError

GROUPS = load_groups()


def test_only_real_entries_are_kernels() -> None:
    assert entry_names(PTX) == ["kern"]


def test_statements_of_the_kernel_only() -> None:
    entry = parse_entry(PTX)
    assert entry.parameters == 2
    opcodes = [s.opcode for s in entry.statements if s.kind == "instruction"]
    assert opcodes[0] == "ld.param.b64"
    assert opcodes.count("bar.sync") == 1  # not the ones in a comment, a string, a directive or a device function
    assert [s.guard for s in entry.statements if s.opcode in ("bra", "ret")] == ["%p1", "!%p2", ""]


def test_statement_text_is_exact() -> None:
    entry = parse_entry(PTX)
    mma = next(s for s in entry.statements if s.matches("wgmma.mma_async"))
    text = PTX[mma.start : mma.end]
    assert text.startswith("wgmma.mma_async")
    assert text.endswith("0, 0;")
    assert text.count("\n") == 1
    assert PTX.count("\n", 0, mma.start) + 1 == mma.line


def test_opcode_patterns_match_whole_parts() -> None:
    entry = parse_entry(PTX)
    assert sum(s.matches("bar.sync") for s in entry.statements) == 1
    assert sum(s.matches("cp.async.c") for s in entry.statements) == 0
    assert sum(s.matches("cp.async") for s in entry.statements) == 4


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("matrix", [("before", "matrix issue"), ("after", "compute")]),
        ("waits", [("before", "copy wait"), ("after", "compute"), ("before", "matrix wait"), ("after", "compute")]),
        (
            "pp",
            [
                ("before", "copy issue"),
                ("before", "copy wait"),
                ("before", "barrier wait"),  # nothing stands between the two waits: one site
                ("after", "compute"),
                ("before", "matrix issue"),
                ("before", "matrix wait"),
                ("after", "compute"),
            ],
        ),
    ],
)
def test_sites_of_the_groups(group: str, expected: list[tuple[str, str]]) -> None:
    sites = mark_sites(parse_entry(PTX), GROUPS[group].marks)
    assert [(s.place, s.phase) for s in sites] == expected


def test_a_jump_target_keeps_two_sites_apart() -> None:
    text = PTX.replace("\tbar.sync \t0;\n\tbar.warp", "\tbra $L__X;\n$L__X:\n\tbar.sync \t0;\n\tbar.warp")
    sites = mark_sites(parse_entry(text), GROUPS["pp"].marks)
    assert [s.phase for s in sites][1:4] == ["copy wait", "compute", "barrier wait"]


def test_debug_labels_do_not_end_a_run_of_copies() -> None:
    text = PTX.replace("\tadd.s32 \t%r1, %r1, 16;", "$L__tmp9:\n\tadd.s32 \t%r1, %r1, 16;")
    assert [s.phase for s in mark_sites(parse_entry(text), GROUPS["pp"].marks)].count("copy issue") == 1
    far = PTX.replace("\tadd.s32 \t%r1, %r1, 16;", "\tadd.s32 \t%r1, %r1, 16;\n" * 30)
    assert [s.phase for s in mark_sites(parse_entry(far), GROUPS["pp"].marks)].count("copy issue") == 2


def test_every_return_is_an_exit_site() -> None:
    assert len(exit_sites(parse_entry(PTX))) == 2


@pytest.mark.parametrize("text", [NO_PARAMETERS, NO_LIST])
def test_kernels_without_parameters(text: str) -> None:
    entry = parse_entry(text)
    assert entry.parameters == 0
    assert len(exit_sites(entry)) == 1


def test_the_kernel_asked_for_must_be_there_once() -> None:
    with pytest.raises(BadInput, match="'other'"):
        parse_entry(PTX, "other")
    with pytest.raises(BadInput, match="exactly one"):
        parse_entry(NO_LIST + NO_LIST)


def test_a_declaration_is_not_a_kernel() -> None:
    with pytest.raises(Unsupported, match="no body"):
        parse_entry(".version 8.7\n.target sm_90a\n.entry k(.param .u64 a);\n")


@pytest.mark.parametrize(
    "text",
    ["", "\x00\x01", ".entry", ".entry k {", ".entry k { add.s32 %r1", ".entry k ) {", ".entry k { ( } )", "}"],
)
def test_what_is_not_ptx_is_one_clear_error(text: str) -> None:
    with pytest.raises(XtraceError) as caught:
        parse_entry(text)
    assert caught.value.code.startswith("XT731")


def test_error_names_the_line() -> None:
    with pytest.raises(BadInput) as caught:
        tokenise("a\nb\n`", "kernel.ptx")
    assert caught.value.where == "kernel.ptx:3"


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(PTX) - 1), st.integers(0, 40), st.text(alphabet='{}()[];:@!.,"/*%ab0\n\x00', max_size=6))
def test_damaged_text_never_crashes(at: int, cut: int, put: str) -> None:
    text = PTX[:at] + put + PTX[at + cut :]
    try:
        entry = parse_entry(text)
    except XtraceError:
        return
    mark_sites(entry, GROUPS["pp"].marks)
