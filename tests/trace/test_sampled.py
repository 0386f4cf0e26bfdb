"""Traces of sampled launches: warps that the rule leaves out are neither lost nor counted, and must leave nothing."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.trace.synthetic import KERNEL, Launch, attention, buffer_of
from xtrace.cli.main import cli
from xtrace.errors import BadInput
from xtrace.sampling import Sampling
from xtrace.trace import TraceTables, decode, save

WARPS = 12  # per CTA


def sampled(text: str, *, ctas: int = 7) -> Launch:
    """The model's launch with all warps silent that the rule does not take."""
    launch, rule = attention(ctas=ctas), Sampling.parse(text)
    document = copy.deepcopy(launch.map)
    document["kernels"][0]["sample"] = rule.document()
    for warp in launch.warps:
        if not rule.takes(warp.slot // WARPS, warp.slot % WARPS):
            warp.data, warp.header = bytearray(len(warp.data)), bytearray(len(warp.header))
    return Launch(document, buffer_of(launch.warps), launch.warps, launch.grid, launch.block, launch.start_ns)


def tables_of(launch: Launch) -> TraceTables:
    return decode(launch.buffer, launch.map, KERNEL, grid=launch.grid, block=launch.block)


@pytest.mark.parametrize("text", ["cta=3", "cta=3/2", "warp=1", "warpgroup=1,2", "cta=2,warp=0,4-7"])
def test_exactly_the_sampled_warps_are_there_and_nothing_is_missing(text: str) -> None:
    launch, rule = sampled(text), Sampling.parse(text)
    tables = tables_of(launch)
    wanted = {(w.slot // WARPS, w.slot % WARPS) for w in launch.warps}
    wanted = {(cta, warp) for cta, warp in wanted if rule.takes(cta, warp)}
    assert set(zip(tables.warps["cta"], tables.warps["warp"], strict=True)) == wanted
    s = tables.summary
    assert s["complete"]
    assert not s["warnings"]
    assert s["sample"] == str(rule)
    assert (s["warps_expected"], s["warps_not_sampled"]) == (len(wanted), 7 * WARPS - len(wanted))
    assert (s["warps_never_ran"], s["warps_without_slot"], s["headless_warps"]) == (0, 0, 0)
    assert s["emitted"] == sum(len(w.records) for w in launch.warps if (w.slot // WARPS, w.slot % WARPS) in wanted)


def test_a_sampled_warp_without_a_header_is_still_missed() -> None:
    launch = sampled("cta=3")
    silent = launch.warps[3 * WARPS + 5]
    silent.data, silent.header = bytearray(len(silent.data)), bytearray(len(silent.header))
    tables = decode(buffer_of(launch.warps), launch.map, KERNEL, grid=launch.grid, block=launch.block)
    assert tables.summary["warps_never_ran"] == 1
    assert not tables.summary["complete"]


@pytest.mark.parametrize("part", ["header", "data"])
def test_a_trace_of_a_warp_that_is_left_out_is_an_error(part: str) -> None:
    launch, whole = sampled("cta=3"), attention(ctas=7)
    stray = 4 * WARPS + 2
    setattr(launch.warps[stray], part, getattr(whole.warps[stray], part))
    with pytest.raises(BadInput) as caught:
        decode(buffer_of(launch.warps), launch.map, KERNEL, grid=launch.grid, block=launch.block)
    assert caught.value.code == "XT8204"
    assert "warp 2 of CTA 4 left a trace" in caught.value.what
    with pytest.raises(BadInput, match="left a trace"):  # another block size is the likeliest mistake
        decode(sampled("warp=1").buffer, launch.map, KERNEL, block=(96, 1, 1))


def test_a_rule_that_takes_no_warp_of_the_launch_is_named() -> None:
    launch = sampled("cta=100/50")
    with pytest.raises(BadInput, match="cta=100/50 takes no warp of this launch"):
        tables_of(launch)


def test_a_launch_larger_than_the_buffer_misses_sampled_warps_only() -> None:
    launch = sampled("cta=3")
    tables = decode(launch.buffer, launch.map, KERNEL, grid=(10, 1, 1), block=launch.block)
    assert tables.summary["warps_without_slot"] == WARPS  # CTA 9; 7 and 8 are not sampled


def test_a_map_without_a_sensible_rule_is_refused() -> None:
    launch = sampled("cta=3")
    launch.map["kernels"][0]["sample"]["cta_offset"] = 3
    with pytest.raises(BadInput, match="sampling rule is malformed"):
        tables_of(launch)


def test_show_and_export_say_what_was_sampled_and_scale_nothing(tmp_path: Path) -> None:
    launch = sampled("cta=3,warp=4-7")
    tables = tables_of(launch)
    path = save(tmp_path / "t.xtrace", tables, launch.map, {"device": "model"})
    shown = CliRunner().invoke(cli, ["show", str(path)])
    assert shown.exit_code == 0, shown.output
    assert "sampled: cta=3,warp=4-7 (12 of 84 warps)" in shown.stdout
    assert "nothing is scaled up" in shown.stdout
    document = json.loads(CliRunner().invoke(cli, ["show", str(path), "--json"]).stdout)
    assert document["summary"]["sample"] == "cta=3,warp=4-7"
    assert sum(site["records"] for site in document["sites"]) == tables.summary["written"]
    out = CliRunner().invoke(cli, ["export", str(path), "--format", "csv", "-o", str(tmp_path / "t.csv")])
    assert out.exit_code == 0
    assert "sampled: cta=3,warp=4-7" in out.stderr
    assert "sampled" not in CliRunner().invoke(cli, ["show", str(_whole(tmp_path))]).stdout


def _whole(folder: Path) -> Path:
    launch = attention()
    return save(folder / "whole.xtrace", tables_of(launch), launch.map, {"device": "model"})
