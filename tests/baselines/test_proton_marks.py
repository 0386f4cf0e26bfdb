"""Proton records go around the named operations, in closed scopes, and change nothing else."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.proton.marks import mark, operations
from baselines.sites import load_groups
from tests.baselines.samples import TTGIR
from xtrace.errors import BadInput, Unsupported, XtraceError

GROUPS = load_groups()


def record_lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip().startswith("proton.record")]


def test_operations_know_their_regions_and_extent() -> None:
    ops = {op.name: op for op in operations(TTGIR)}
    lines = TTGIR.splitlines()
    assert ops["ttg.async_wait"].region == ops["ttng.warp_group_dot"].region != ops["tt.return"].region
    assert ops["arith.maxnumf"].region != ops["scf.yield"].region
    assert lines[ops["scf.for"].last].strip().startswith("} loc")
    assert ops["scf.for"].last > ops["scf.yield"].first


@pytest.mark.parametrize("group", ["sche", "matrix", "waits", "pp"])
def test_every_other_line_stays(group: str) -> None:
    text = mark(TTGIR, GROUPS[group]).text
    kept = [line for line in text.splitlines() if not line.strip().startswith("proton.record")]
    assert kept == TTGIR.splitlines()


@pytest.mark.parametrize("group", ["sche", "matrix", "waits", "pp"])
def test_every_scope_is_opened_and_then_closed_in_its_region(group: str) -> None:
    marked = mark(TTGIR, GROUPS[group])
    open_in: dict[str, int] = {}
    depth = 0
    for raw in marked.text.splitlines():
        line = raw.strip()
        depth -= line.startswith("}")
        if line.startswith("proton.record start"):
            open_in[line.removeprefix("proton.record start ")] = depth
        elif line.startswith("proton.record end"):
            assert open_in.pop(line.removeprefix("proton.record end ")) == depth
        depth += line.split(" loc(")[0].endswith("{")
    assert not open_in
    assert len(record_lines(marked.text)) == len(marked.sites)


def test_waits_are_marked_at_both_sides() -> None:
    marked = mark(TTGIR, GROUPS["waits"])
    assert [(s.place, s.phase, s.op) for s in marked.sites] == [
        ("before", "copy wait", "ttg.async_wait"),
        ("after", "compute", "ttg.async_wait"),
        ("before", "matrix wait", "ttng.warp_group_dot_wait"),
        ("after", "compute", "ttng.warp_group_dot_wait"),
    ]
    assert all(s.exact and not s.closing for s in marked.sites)


def test_an_odd_mark_is_closed_by_a_counted_extra_record() -> None:
    text = TTGIR.replace("      %e:2 = ttng.warp_group_dot_wait", "      %e:2 = other.wait")
    sites = mark(text, GROUPS["matrix"]).sites
    assert [(s.place, s.closing) for s in sites] == [("before", False), ("after", True)]


def test_only_reductions_over_warps_count_as_barriers() -> None:
    marked = mark(TTGIR, GROUPS["pp"])
    reduces = [s for s in marked.sites if s.op == "tt.reduce" and not s.closing]
    assert len(reduces) == 2  # the one in the loop stays inside a warp
    assert not any(s.exact for s in reduces)
    after = marked.text.splitlines()
    end = next(i for i, line in enumerate(after) if "}) : (tensor<1x4096xf32" in line)
    assert "proton.record" in after[end + 1]  # behind the whole operation, not inside it


def test_a_run_of_copies_is_marked_once() -> None:
    assert Counter(s.phase for s in mark(TTGIR, GROUPS["pp"]).sites)["copy issue"] == 1


def test_whole_kernel_scope() -> None:
    marked = mark(TTGIR, GROUPS["sche"])
    assert [s.place for s in marked.sites] == ["entry", "exit"]
    lines = [line.strip() for line in marked.text.splitlines()]
    assert lines[lines.index('proton.record start "0 kernel"') + 1].startswith("%c0 = arith.constant")
    assert lines[lines.index('proton.record end "0 kernel"') + 1].startswith("tt.return")


def test_each_returning_block_has_a_scope_of_its_own() -> None:
    early = TTGIR.replace(
        "    %c0 = arith", "    cf.cond_br %p, ^bb1, ^bb2\n  ^bb1:\n    tt.return loc(#loc)\n  ^bb2:\n    %c0 = arith"
    )
    marked = mark(early, GROUPS["sche"])
    assert [(s.place, s.exact) for s in marked.sites] == [("entry", False), ("exit", True)] * 2
    assert len(set(record_lines(marked.text))) == 4


def test_a_kernel_without_such_operations_is_unsupported() -> None:
    softmax = "\n".join(line for line in TTGIR.splitlines() if "async" not in line and "warp_group" not in line)
    with pytest.raises(Unsupported, match="'matrix'"):
        mark(softmax, GROUPS["matrix"])


@pytest.mark.parametrize("text", ["}", TTGIR.replace("    } loc(#loc)\n    %f", "    %f"), "tt.func @f() {\n"])
def test_regions_must_close(text: str) -> None:
    with pytest.raises(BadInput, match="region"):
        mark(text, GROUPS["pp"])


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(TTGIR) - 1), st.integers(0, 60), st.text(alphabet='{}()^%"=\n :', max_size=5))
def test_damaged_text_never_crashes(at: int, cut: int, put: str) -> None:
    for group in ("sche", "pp"):
        try:
            mark(TTGIR[:at] + put + TTGIR[at + cut :], GROUPS[group])
        except XtraceError:
            continue
