"""Selectors name the sites that their words promise."""

from __future__ import annotations

import pytest

from tests.splice.conftest import analysed
from xtrace.analysis import KernelAnalysis
from xtrace.errors import BadInput
from xtrace.isa.model import Flow
from xtrace.probe import Site, select


@pytest.fixture(scope="module")
def attention() -> KernelAnalysis:
    return analysed("triton_fa_fwd")


def _records(a: KernelAnalysis, spec: str) -> list[Site]:
    return [s for s in select(a, spec) if s.kind == "record"]


def test_entry_and_every_reachable_exit_are_always_there(attention: KernelAnalysis) -> None:
    sites = select(attention, "sche")
    exits = [i.index for i in attention.instructions if i.flow is Flow.EXIT and attention.reachable(i.index)]
    assert [s.index for s in sites if s.kind == "exit"] == exits
    assert sites[0].kind == "entry"
    assert _records(attention, "sche") == []


def test_op_matches_opcodes_with_modifiers(attention: KernelAnalysis) -> None:
    wanted = [i.index for i in attention.instructions if i.opcode.startswith("HGMMA.")]
    assert wanted
    assert [s.index for s in _records(attention, "op:HGMMA*")] == wanted
    assert [s.index for s in _records(attention, "after:op:HGMMA*")] == [i + 1 for i in wanted]


def test_pc_must_be_an_instruction(attention: KernelAnalysis) -> None:
    assert [s.index for s in _records(attention, "pc:0x20")] == [2]
    for bad in ("pc:0x21", "pc:0xfffff0"):
        with pytest.raises(BadInput, match="XT3010") as error:
            select(attention, bad)
        assert "multiples of 16" in str(error.value)


def test_block_and_loop_mark_heads(attention: KernelAnalysis) -> None:
    heads = {attention.cfg.blocks[x.head].first for x in attention.loops}
    assert {s.index for s in _records(attention, "loop")} == heads
    blocks = {b.first for b in attention.cfg.blocks if b.number in attention.cfg.reachable}
    assert {s.index for s in _records(attention, "block")} >= blocks - {s.index for s in select(attention, "exit")}


def test_a_list_is_the_union_without_doubles(attention: KernelAnalysis) -> None:
    both = _records(attention, "op:WARPGROUP.ARRIVE, op:WARPGROUP.*")
    assert len({s.index for s in both}) == len(both)
    assert {s.index for s in both} == {s.index for s in _records(attention, "op:WARPGROUP.*")}


def test_pipeline_phases_of_flash_attention(attention: KernelAnalysis) -> None:
    phases = {s.phase for s in _records(attention, "pp")}
    assert phases == {"matrix issue", "matrix wait", "copy issue", "copy wait", "barrier wait", "compute"}
    in_loop = [s for s in _records(attention, "pp") if attention.loop_of(s.index)]
    assert 4 <= len(in_loop) <= 40


def test_a_copy_wait_takes_in_the_barrier_that_completes_it(attention: KernelAnalysis) -> None:
    sites = {s.index: s.phase for s in _records(attention, "pp")}
    for ins in attention.instructions:
        if "copy_wait" in ins.tags and ins.index in sites:
            barrier = next(
                (k for k in range(ins.index + 1, ins.index + 5) if "barrier" in attention.instructions[k].tags), None
            )
            assert sites[ins.index] == "copy wait"
            if barrier is not None:
                assert barrier not in sites
                assert barrier + 1 in sites, "the wait ends behind the barrier"


def test_no_boundary_is_lost_between_waits(attention: KernelAnalysis) -> None:
    # Every instruction that can block begins a phase, or stands in one that began a few instructions before.
    sites = {s.index for s in _records(attention, "pp")}
    for ins in attention.instructions:
        if ins.tags & {"barrier", "matrix_wait", "copy_wait"} and attention.reachable(ins.index):
            assert any(k in sites for k in range(ins.index - 7, ins.index + 1)), ins.text


def test_retries_of_a_spinning_wait_are_not_sites() -> None:
    # How often a wait is retried is not known beforehand: a record per try could fill any buffer.
    for name in ("warp_specialised", "tma_tile"):
        a = analysed(name)
        waits = [s for s in _records(a, "pp") if s.phase == "mbarrier wait"]
        assert waits
        for site in waits:
            loop = a.loop_of(site.index)
            tries = [i for i in a.instructions if "mbarrier_wait" in i.tags]
            assert len(waits) < len(tries)
            if loop is not None:
                assert len(loop.blocks) > 3, "the site's loop is the kernel's own, not the retry"


def test_moved_boundaries_pass_over_plain_arithmetic_only(attention: KernelAnalysis) -> None:
    for site in _records(attention, "pp"):
        for place in site.alternatives:
            low, high = sorted((site.index, place))
            assert attention.cfg.block_of[low] == attention.cfg.block_of[high]
            for ins in attention.instructions[low:high]:
                assert not ins.tags & {"barrier", "matrix_wait", "copy_async", "matrix_fence", "mbarrier_wait"}
