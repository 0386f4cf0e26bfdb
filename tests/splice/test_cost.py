"""Predicted costs: exact on programs that can be counted by hand, consistent with the spliced code of real kernels."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from tests.analysis.programs import ins, program
from tests.splice.conftest import GOLDEN, analysed, image
from xtrace.analysis import KernelAnalysis, analyse
from xtrace.analysis.ways import longest_way
from xtrace.cli.main import cli
from xtrace.image import Kernel, parse
from xtrace.isa import for_arch
from xtrace.isa.model import Flow, Instruction
from xtrace.isa.nvidia import encode as e
from xtrace.isa.nvidia.emit import UniformState
from xtrace.isa.nvidia.schedule import Scheduler
from xtrace.splice import Options, apply, plan
from xtrace.splice.apply import splice_kernel
from xtrace.splice.cost import Cost, KernelCost, kernel_cost
from xtrace.splice.report import plan_document

STATE = UniformState(address=60, offset=59, header=56, timer=55, clock=54, smid=53)
STORE, WAIT = e.store(60, 0, 20, 4, 2), e.nop().waiting(1 << 2)


def made_up(*instructions: Instruction) -> KernelAnalysis:
    return KernelAnalysis(cast(Kernel, SimpleNamespace(info=())), for_arch("sm_90a"), instructions, "made up")


def words(*ops: e.Op) -> tuple[int, ...]:
    return Scheduler().island(list(ops)).words


def looping(stall: int) -> KernelAnalysis:
    """A loop of three instructions, 2 + 2 + ``stall`` cycles, then an exit."""
    return made_up(
        ins(0),
        ins(1, stall=2),
        ins(2, stall=2),
        ins(3, target=1, guard="@P0", stall=stall),
        ins(4, flow=Flow.EXIT),
    )


@pytest.mark.parametrize(("stall", "exposed"), [(1, 29), (15, 15), (40, 0)])
def test_a_wait_is_exposed_as_far_as_stalls_do_not_cover_the_release(stall: int, exposed: int) -> None:
    one_lane = STORE.guarded(3)
    islands = {1: words(WAIT), 2: words(one_lane)}
    cost = kernel_cost(looping(stall), islands, STATE)
    # Around the back edge: two cycles behind the store, two of the instruction at the site, and the branch.
    assert cost.islands[1] == Cost(words=1, issue=1, wait=exposed)
    assert cost.islands[2] == Cost(words=1, issue=2, slots=1)


def test_one_iteration_is_a_share_of_the_loops_own_issue_cycles() -> None:
    island = words(e.cs2r32(20, e.SpecialRegister.CLOCK_LO), e.uiadd_imm(59, 59, 32), e.uiadd_imm(53, 53, 5 << 8))
    cost = kernel_cost(looping(6), {2: island}, STATE)
    (way,) = cost.loops
    assert cost.hot == way
    assert (way.own, way.cost) == (10, Cost(words=3, issue=3, emitted=32, events=5))
    assert way.share == 0.3
    assert cost.once.cost == Cost()
    assert cost.once.own == 2  # the first instruction and the exit


def test_a_store_of_all_lanes_takes_sixteen_slots_and_its_wait_is_long() -> None:
    islands = {1: words(STORE, WAIT), 2: words(STORE.guarded(3), WAIT)}
    cost = kernel_cost(looping(1), islands, STATE)
    assert cost.islands[1].slots == 16 * cost.islands[2].slots == 16
    assert cost.islands[1].wait > 100 > cost.islands[2].wait == 32


def test_the_longest_way_passes_inner_loops_once_and_goes_one_way_at_forks() -> None:
    # 0 -> 1 -> (2 | 3) -> 4 (loops on itself) -> 1 or 5
    cfg = program(
        ins(0),
        ins(1, target=4, guard="@P0"),
        ins(2),
        ins(3, target=5),
        ins(4),
        ins(5, target=5, guard="@P1"),
        ins(6, target=1, guard="@P2"),
        ins(7, flow=Flow.EXIT),
    )
    at = {b.first: b.number for b in cfg.blocks}
    loop = {at[k] for k in (1, 2, 4, 5, 6)}
    heavy_left = {at[2]: 9, at[4]: 5, at[5]: 1}
    assert longest_way(cfg, at[1], loop, heavy_left, [at[6]]) == [at[1], at[2], at[5], at[6]]
    assert longest_way(cfg, at[1], loop, {at[4]: 1}, [at[6]]) == [at[1], at[4], at[5], at[6]]
    assert longest_way(cfg, at[1], loop, heavy_left, [at[7]]) == []


def costs(name: str, probes: str = "pp") -> tuple[Any, KernelCost]:
    loaded = image(name)
    (k,) = plan(loaded, loaded.kernels[:1], probes, Options()).kernels
    spliced = splice_kernel(k)
    return spliced, kernel_cost(k.analysis, {i: x.words for i, x in spliced.islands.items()}, k.state)


@pytest.mark.parametrize("name", ["triton_fa_fwd", "triton_moe_gemm", "warp_specialised"])
def test_issue_cycles_are_what_the_traced_code_has_more(name: str) -> None:
    loaded = image(name)
    done = apply(plan(loaded, loaded.kernels[:1], "pp", Options()))
    traced = parse(done.data, name)
    before, after = analysed(name).instructions, analyse(traced, traced.kernels[0]).instructions

    def cycles(instructions: tuple[Instruction, ...]) -> int:
        return sum(max(x.control.stall, 1) for x in instructions)

    _, cost = costs(name)
    words_added = sum(c.words for c in cost.islands.values())
    padding = len(after) - len(before) - words_added  # NOPs behind the code, one cycle each
    assert cycles(after) - cycles(before) - padding == sum(c.issue for c in cost.islands.values())


@pytest.mark.parametrize("name", ["triton_fa_fwd", "triton_gemm", "triton_moe_gemm", "triton_softmax"])
def test_bytes_and_events_of_a_loop_are_those_of_its_packets(name: str) -> None:
    spliced, cost = costs(name)
    a = spliced.plan.analysis
    for way in cost.loops:
        inside = [
            p
            for p in spliced.plan.packets
            if all((x := a.loop_of(r.site.index)) is not None and x.id == way.loop for r in p.records)
        ]
        assert way.cost.emitted == sum(p.size for p in inside)
        assert way.cost.events == sum(len(p.records) for p in inside)


def test_the_document_gives_costs_of_sites_islands_and_iterations() -> None:
    loaded = image("triton_fa_fwd")
    document = plan_document(plan(loaded, loaded.kernels[:1], "pp", Options()))
    (kernel,) = document["kernels"]
    of_pc = {i["pc"]: i for i in kernel["islands"]}
    placed = [s for s in document["sites"] if s["status"] == "placed"]
    for site in placed:
        assert site["added_cycles"] == site["cycles"] + site["wait_cycles"] == of_pc[site["pc"]]["added_cycles"]
    (loop,) = (x for x in kernel["loops"] if x["id"] == kernel["hot"]["loop"])
    assert {k: v for k, v in kernel["hot"].items() if k != "loop"} == loop["trip"]
    assert loop["trip"]["added_share"] == loop["trip"]["added_cycles"] / loop["trip"]["own_cycles"]
    assert loop["trip"]["events"] == loop["records_per_trip"] > 0
    assert sum(i["words"] for i in kernel["islands"]) == kernel["added_words"]


def run(*more: str) -> Any:
    return CliRunner().invoke(cli, ["plan", str(GOLDEN / "triton_fa_fwd.cubin"), "--probes", "pp", *more])


def test_a_rate_needs_a_time_and_is_not_made_up() -> None:
    assert "rate not measured" in run().stdout
    assert json.loads(run("--json").stdout)["kernels"][0]["launch"] is None
    refused = run("--duration-us", "10", "--warps", "4")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--iterations" in refused.stderr


def test_the_rate_counts_headers_what_runs_once_and_every_iteration() -> None:
    done = run("--json", "--duration-us", "100", "--warps", "64", "--iterations", "1000")
    (kernel,) = json.loads(done.stdout)["kernels"]
    launch = kernel["launch"]
    assert launch["bytes_per_warp"] == 32 + kernel["once"]["bytes"] + 1000 * kernel["hot"]["bytes"]
    assert launch["bytes_per_launch"] == 64 * launch["bytes_per_warp"]
    assert launch["bytes_per_second"] == pytest.approx(launch["bytes_per_launch"] / 100e-6)


def test_tables_list_sites_and_iterations_with_their_cycles() -> None:
    few, every = run().stdout, run("--all").stdout
    assert "iteration of loop" in few
    assert "added" in few
    placed = [s["pc"] for s in json.loads(run("--json").stdout)["sites"] if s["status"] == "placed"]
    assert all(pc in every for pc in placed)
