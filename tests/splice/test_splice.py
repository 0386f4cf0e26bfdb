"""Splicing: the kernel is still the kernel, and the map says truly where everything went."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.splice.conftest import GOLDEN, TRACEABLE, analysed, image
from xtrace.cli.main import cli
from xtrace.errors import BadInput, Refused
from xtrace.image import parse
from xtrace.isa import for_arch
from xtrace.splice import Options, apply, plan, plan_kernel
from xtrace.splice.model import LAYOUTS
from xtrace.verify import verify

SETS = ("sche", "pp")


def spliced(name: str, probes: str, **options: int):  # type: ignore[no-untyped-def]
    loaded = image(name)
    return apply(plan(loaded, loaded.kernels, probes, Options(**options)))


@pytest.mark.parametrize("probes", SETS)
@pytest.mark.parametrize("name", TRACEABLE)
def test_every_promise_holds_on_the_golden_kernels(name: str, probes: str) -> None:
    result = spliced(name, probes)
    certificate = verify(image(name).data, result.data, result.map)
    assert certificate.ok, certificate.to_json()


@pytest.mark.parametrize("name", TRACEABLE)
def test_original_words_stand_where_the_map_says(name: str) -> None:
    result = spliced(name, "pp")
    isa = for_arch(image(name).arch)
    out = parse(result.data, name)
    for entry in result.map["kernels"]:
        old, new = image(name).kernel(entry["name"]).text, out.kernel(entry["name"]).text
        shift, islands = 0, {i["pc"]: i["words"] for i in entry["islands"]}
        for pc in range(0, len(old), 16):
            shift += 16 * islands.get(pc, 0)
            a = int.from_bytes(old[pc : pc + 16], "little")
            b = int.from_bytes(new[pc + shift : pc + shift + 16], "little")
            mask = isa.code_field_mask(a)
            assert a & ~mask == b & ~mask, hex(pc)
        assert entry["instructions"]["after"] * 16 == len(new)


@pytest.mark.parametrize("name", ["triton_fa_fwd", "triton_softmax", "warp_specialised"])
def test_every_layout_keeps_every_promise_and_the_same_sites(name: str) -> None:
    layouts = [spliced(name, "pp", layout=n, records=64) for n in range(LAYOUTS)]
    assert len({result.data for result in layouts}) >= 3
    for result in layouts:
        assert [s["pc"] for s in result.map["kernels"][0]["sites"]] == [
            s["pc"] for s in layouts[0].map["kernels"][0]["sites"]
        ]
        certificate = verify(image(name).data, result.data, result.map)
        assert certificate.ok, certificate.to_json()


@pytest.mark.parametrize("layout", [-1, LAYOUTS])
def test_a_layout_that_does_not_exist_is_refused(layout: int) -> None:
    with pytest.raises(BadInput, match="layouts go from 0"):
        spliced("triton_gemm", "pp", layout=layout)


def test_the_same_request_gives_the_same_bytes() -> None:
    first, second = spliced("triton_moe_gemm", "pp"), spliced("triton_moe_gemm", "pp")
    assert first.data == second.data
    assert first.map == second.map


@pytest.mark.parametrize("name", ["call_rel", "two_kernels"])
def test_a_kernel_that_cannot_be_traced_safely_is_refused_with_the_instruction(name: str) -> None:
    with pytest.raises(Refused, match=r"nothing to trace: .*CALL\.REL.* at pc 0x"):
        spliced(name, "pp")


def test_setmaxnreg_kernels_keep_their_register_count() -> None:
    result = spliced("warp_specialised", "pp")
    registers = result.map["kernels"][0]["registers"]
    assert registers["before"] == registers["after"]


def test_probes_of_a_starved_role_stay_below_its_cap() -> None:
    a = analysed("warp_specialised")
    caps = set(a.caps)
    assert len(caps) > 1, "the kernel has roles with different budgets"
    result = spliced("warp_specialised", "pp")
    for site in result.map["kernels"][0]["sites"]:
        cap = a.caps[site["pc"] // 16]
        for name in site["registers"]:
            if name.startswith("R"):
                assert int(name[1:]) < cap - a.isa.reserved_registers


@pytest.mark.parametrize("records", [-1, 0, 8, 3 << 20])
def test_ring_sizes_that_cannot_work_are_refused(records: int) -> None:
    with pytest.raises(BadInput, match="a ring keeps"):
        spliced("triton_gemm", "pp", records=records)


def test_patches_are_zero_words_of_probe_immediates() -> None:
    result = spliced("triton_gemm", "pp")
    entry = result.map["kernels"][0]
    wanted = {"buffer_lo", "buffer_hi", "header_lo", "header_hi", "slot_count"}
    assert {p["value"] for p in entry["patches"]} == wanted
    for patch in entry["patches"]:
        assert result.data[patch["offset"] : patch["offset"] + 4] == bytes(4)


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner()


def test_plan_json_has_the_keys_that_checks_read(runner: CliRunner) -> None:
    done = runner.invoke(cli, ["plan", str(GOLDEN / "triton_fa_fwd.cubin"), "--probes", "pp", "--json"])
    document = json.loads(done.stdout)
    assert document["placed"] + document["refused"] == len(document["sites"])
    for site in document["sites"]:
        assert {"pc", "op", "probe", "status", "reason"} <= site.keys()
        assert site["status"] in ("placed", "refused")
        assert (site["status"] == "refused") == bool(site["reason"])


def test_splice_writes_image_and_map_and_says_how_to_check(runner: CliRunner, tmp_path: Path) -> None:
    out = tmp_path / "t.cubin"
    done = runner.invoke(cli, ["splice", str(GOLDEN / "triton_gemm.cubin"), "--probes", "sche", "-o", str(out)])
    assert done.exit_code == 0
    assert "xtrace verify" in done.stdout.replace("\n", " ")
    trace_map = json.loads((tmp_path / "t.cubin.map.json").read_text())
    assert trace_map["schema"] == "xtrace/map/2"


def test_the_input_is_never_overwritten(runner: CliRunner, tmp_path: Path) -> None:
    copy = tmp_path / "a.cubin"
    copy.write_bytes((GOLDEN / "triton_gemm.cubin").read_bytes())
    before = copy.read_bytes()
    done = runner.invoke(cli, ["splice", str(copy), "--probes", "pp", "-o", str(copy)])
    assert done.exit_code == 2
    assert copy.read_bytes() == before


@pytest.mark.parametrize("spec", ["", "nothing", "op:", "pc:12", "pp;sche", "after:pc:0x10"])
def test_a_bad_selection_leaves_nothing_behind(runner: CliRunner, tmp_path: Path, spec: str) -> None:
    out = tmp_path / "t.cubin"
    done = runner.invoke(cli, ["splice", str(GOLDEN / "triton_gemm.cubin"), "--probes", spec, "-o", str(out)])
    assert done.exit_code == 2
    assert "XT301" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_packet_ends_where_lanes_join() -> None:
    # Lane groups that come one after the other to a WARPSYNC each move the cursor; behind it they store once.
    a = analysed("spin")
    placed = plan_kernel(a, "op:*", Options())
    for packet in placed.packets:
        first, last = packet.islands[0].site.index, packet.islands[-1].site.index
        assert not any("converge" in ins.tags for ins in a.instructions[first:last])
