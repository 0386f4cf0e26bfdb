"""Probing PTX only inserts: everything else stays byte for byte, and the result is what the rules promise."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.ptx_probe.module import parse_entry
from baselines.ptx_probe.rewrite import Probed, rewrite
from baselines.ptx_probe.select import PtxSite, exit_sites, mark_sites
from baselines.sites import load_groups
from tests.baselines.samples import NO_LIST, NO_PARAMETERS, PTX

GROUPS = load_groups()


def probe(text: str, group: str = "pp", **options: object) -> Probed:
    entry = parse_entry(text)
    whole = GROUPS[group].whole_kernel
    sites = exit_sites(entry) if whole else mark_sites(entry, GROUPS[group].marks)
    return rewrite(entry, sites, sched=whole, **options)  # type: ignore[arg-type]


def taken_out(probed: Probed) -> str:
    """The probed text without its insertions, each checked to be where it is said to be."""
    text = probed.text
    for offset, piece in probed.insertions:  # earlier ones are out already: input offsets are right
        assert text[offset : offset + len(piece)] == piece
        text = text[:offset] + text[offset + len(piece) :]
    return text


@pytest.mark.parametrize("group", ["sche", "matrix", "waits", "pp"])
@pytest.mark.parametrize("mode", ["exact", "charitable"])
@pytest.mark.parametrize("bounds", [False, True])
def test_insertions_only(group: str, mode: str, bounds: bool) -> None:
    probed = probe(PTX, group, mode=mode, bounds_check=bounds)
    assert taken_out(probed) == PTX


def test_untouched_lines_are_byte_equal() -> None:
    lines = probe(PTX).text.splitlines()
    position = -1
    for line in PTX.splitlines():
        if "kern_param_1 //" in line:  # the parameter that is no longer the last one
            continue
        if line.lstrip().startswith("setp"):  # two statements on one line may be parted
            continue
        position = lines.index(line, position + 1)


def test_parameter_is_appended_behind_the_comment_free_end() -> None:
    probed = probe(PTX)
    assert probed.parameter == 2
    assert parse_entry(probed.text).parameters == 3
    assert re.search(r"kern_param_1,\s*\.param \.u64 kern_xtp_map // the last one", probed.text)


@pytest.mark.parametrize("text", [NO_PARAMETERS, NO_LIST])
def test_kernels_without_parameters_get_one(text: str) -> None:
    probed = probe(text, "sche")
    assert parse_entry(probed.text).parameters == 1
    assert probed.text.count(".param .u64") == 1
    assert ", )" not in probed.text


def test_prologue_stands_between_declarations_and_code() -> None:
    text = probe(PTX).text
    assert text.index(".reg .b64 \t%rd<4>") < text.index("%clock64") < text.index("ld.param.b64 \t%rd1")


def test_one_clock_read_per_site_and_one_at_entry() -> None:
    entry = parse_entry(PTX)
    sites = mark_sites(entry, GROUPS["pp"].marks)
    assert probe(PTX, "pp").text.count("%clock64") == len(sites) + 1


def test_exits_are_probed_under_their_guard() -> None:
    text = probe(PTX, "sche").text
    assert re.search(r"not\.pred %xtpp2, %p2;\s+and\.pred %xtpp1, %xtpp2, %xtpp0;", text)
    guarded, last = text.index("@!%p2 ret"), text.rindex("\tret;\n}\n\t.file")
    assert text.count("%smid", 0, guarded) == 1
    assert text.count("%smid", guarded, last) == 1


def test_new_names_avoid_all_names_of_the_module() -> None:
    probed = probe(PTX.replace("%r1", "%xtpr1"))
    assert "%xtpxd2" in probed.text
    assert taken_out(probed) == PTX.replace("%r1", "%xtpr1")


def test_exact_mode_guards_and_divides_signed() -> None:
    exact, charitable = probe(PTX, mode="exact").text, probe(PTX, mode="charitable").text
    assert "@%xtpp0 div.s32" in exact
    assert "div." not in charitable
    assert "shr.u32" in charitable


def test_no_barriers_fences_atomics_or_shared_memory_are_added() -> None:
    for group in GROUPS:
        added = "".join(piece for _, piece in probe(PTX, group).insertions)
        assert not re.search(r"\b(bar|barrier|fence|membar|atom|red|st\.shared|ld\.shared|volatile)\b", added)


def test_bounds_check_only_on_request() -> None:
    assert "setp.lt.and.u64" not in probe(PTX).text
    checked = probe(PTX, bounds_check=True, capacity=16)
    assert "setp.lt.and.u64" in checked.text
    assert checked.bytes_per_warp == 128


def test_the_same_input_gives_the_same_text() -> None:
    assert probe(PTX).text == probe(PTX).text


STATEMENTS = st.lists(
    st.sampled_from(
        [
            "\tbar.sync 0;\n",
            "\twgmma.wait_group.sync.aligned 0; // done\n",
            "  cp.async.wait_all; bar.sync 1; ret;\n",
            "$L__B{n}: bar.sync 0;\n",
            "\t@%p1 bra $L__B{n};\n",
            "/* bar.sync */ add.s32 %r1, %r1, 1;\n",
            "\t.loc 1 2 3 // bar.sync 0;\n",
            "{\n bar.sync 0; }\n",
            "\tmma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1,%r2}, {%r3}, {%r4}, {%r5};\n",
            "\tcp.async.cg.shared.global [%r1], [%rd1], 16;\n",
        ]
    ),
    max_size=25,
)


@settings(max_examples=100, deadline=None)
@given(STATEMENTS, st.sampled_from(["exact", "charitable"]), st.sampled_from(["\n", ""]))
def test_any_body_keeps_every_byte(parts: list[str], mode: str, tail: str) -> None:
    body = "".join(part.replace("{n}", str(i)) for i, part in enumerate(parts))
    text = f".version 8.7\n.target sm_90a\n.entry k(.param .u64 a) {{ .reg .b32 %r<9>;\n{body}ret; }}{tail}"
    entry = parse_entry(text)
    sites: list[PtxSite] = mark_sites(entry, GROUPS["pp"].marks)
    probed = rewrite(entry, sites, mode=mode)  # type: ignore[arg-type]
    assert taken_out(probed) == text
    again = parse_entry(probed.text)  # still well formed, and every old instruction still there, in order
    old = [s.opcode for s in entry.statements if s.kind == "instruction"]
    new = iter(s.opcode for s in again.statements if s.kind == "instruction")
    assert all(opcode in new for opcode in old)
