"""The slowed probe for the gate's test: whole kernel, whole records, one load more in front of each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import xtrace
from workflow.scripts import slow_probe
from xtrace.errors import Refused, XtraceError
from xtrace.fidelity import compare
from xtrace.image import parse
from xtrace.isa import for_arch
from xtrace.runtime.patching import BufferTarget, patch_image
from xtrace.sampling import Sampling
from xtrace.splice import Options, apply, plan


@pytest.mark.parametrize("name", ["triton_softmax", "triton_fa_fwd"])
def test_only_loads_and_waits_are_added(name: str, golden_image: Callable[[str], Path]) -> None:
    original = xtrace.load(golden_image(name))
    traced = xtrace.splice(original, probes="pp")
    slowed = slow_probe.slow(traced.data, traced.map)
    image = parse(slowed.data, "slowed")
    (count,) = slowed.sites.values()
    assert count > 0
    (result,) = compare(original, image, map=slowed.map)
    assert result.relocated == 1.0
    certificate = xtrace.verify(original, slowed.data, slowed.map)
    failed = {name for name, status in certificate.promises.items() if status != "PASS"}
    assert "effects" in failed  # a probe that loads: what makes it slow
    assert certificate.failure_counts["effects"] >= count
    assert slow_probe.check(original.data, traced.data, traced.map, 1, name) == slowed
    isa = for_arch(image.arch)
    after = isa.decode(image.kernels[0].text)
    loads = [ins for ins in after if ins.opcode == "LDG.E.STRONG.GPU"]
    assert len(loads) == count
    for load in loads:
        wait = after[load.index + 1]
        assert wait.base == "NOP"
        assert wait.control.wait_mask >> load.control.write_sb & 1


def test_the_slowed_image_can_be_patched(golden_image: Callable[[str], Path]) -> None:
    traced = xtrace.splice(xtrace.load(golden_image("triton_softmax")), probes="pp")
    slowed = slow_probe.slow(traced.data, traced.map, loads=3)
    (entry,) = slowed.map["kernels"]
    target = BufferTarget(entry["slot"]["stride"], 7, 1 << 20)
    patched = patch_image(slowed.data, slowed.map, {entry["name"]: target})
    isa = for_arch("sm_90a")
    moves = [i.text for i in isa.decode(parse(patched, "patched").kernels[0].text) if i.base == "UMOV"]
    assert any(hex(entry["slot"]["stride"]) in text for text in moves)
    assert any("0x100000" in text for text in moves)


def test_without_records_there_is_nothing_to_slow(golden_image: Callable[[str], Path]) -> None:
    traced = xtrace.splice(xtrace.load(golden_image("triton_softmax")), probes="sche")
    with pytest.raises(Refused, match="no record can be slowed"):
        slow_probe.slow(traced.data, traced.map)


def test_a_sampled_kernel_is_refused(golden_image: Callable[[str], Path]) -> None:
    image = xtrace.load(golden_image("triton_softmax"))
    traced = apply(plan(image, image.kernels, "pp", Options(sample=Sampling.parse("cta=2"))))
    with pytest.raises(Refused, match="sampled"):
        slow_probe.slow(traced.data, traced.map)


def test_a_folder_is_done_image_by_image(tmp_path: Path, golden_image: Callable[[str], Path], capsys) -> None:
    image = xtrace.load(golden_image("triton_softmax"))
    folder = tmp_path / "traced" / "toy"
    folder.mkdir(parents=True)
    for probes in ("pp", "sche"):
        traced = xtrace.splice(image, probes=probes)
        (folder / f"{probes}.cubin").write_bytes(traced.data)
        (folder / f"{probes}.cubin.map.json").write_text(json.dumps(traced.map))
    slow_probe.main([str(tmp_path / "traced"), "-o", str(tmp_path / "slow"), "--corpus", str(tmp_path / "none")])
    said = capsys.readouterr().out
    assert "records wait for 1 load more; promises not checked" in said
    assert f"unsupported {folder / 'sche.cubin'}" in said
    assert sorted(p.name for p in (tmp_path / "slow" / "toy").iterdir()) == ["pp.cubin", "pp.cubin.map.json"]


def test_promises_are_checked_where_the_original_is(
    tmp_path: Path, golden_image: Callable[[str], Path], capsys
) -> None:
    path = golden_image("triton_softmax")
    traced = xtrace.splice(xtrace.load(path), probes="pp")
    corpus, image = tmp_path / "corpus" / "toy", tmp_path / "traced" / "toy" / "pp.cubin"
    corpus.mkdir(parents=True)
    image.parent.mkdir(parents=True)
    (corpus / "original.cubin").write_bytes(path.read_bytes())
    image.write_bytes(traced.data)
    image.with_name("pp.cubin.map.json").write_text(json.dumps(traced.map))
    arguments = [str(image), "-o", str(tmp_path / "slow.cubin"), "--corpus", str(tmp_path / "corpus")]
    slow_probe.main(arguments)
    assert "sound but for the loads" in capsys.readouterr().out
    (corpus / "original.cubin").write_bytes(golden_image("spin").read_bytes())
    with pytest.raises(XtraceError):
        slow_probe.main(arguments)
