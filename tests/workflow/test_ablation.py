"""The ablation: its images, its measurement on the simulated device, its table and figure."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from workflow.scripts import ablation_images
from workflow.scripts.ablation_images import ARMS, STEPS
from workflow.scripts.gpu_files import Folders
from xtrace.errors import BadInput
from xtrace.image import load

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A corpus of one small kernel, under the name of a workload that has a layout of its own."""
    image = GOLDEN / "triton_gemm.cubin"
    folder = tmp_path / "corpus" / "gemm_bf16_triton"
    folder.mkdir(parents=True)
    (folder / "original.cubin").write_bytes(image.read_bytes())
    meta = {"kernel": load(image).kernels[0].name, "sha256": hashlib.sha256(image.read_bytes()).hexdigest()}
    (folder / "meta.json").write_text(json.dumps(meta))
    return tmp_path / "corpus"


def test_every_image_is_written_with_what_is_in_it(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "images"
    ablation_images.main(["--out", str(out), "--corpus", str(corpus), "--workloads", "gemm_bf16_triton"])
    folder = out / "gemm_bf16_triton"
    document = json.loads((folder / "images.json").read_text())
    arms = document["arms"]
    assert list(arms) == [arm.name for arm in ARMS]
    folders = Folders(corpus, out, out)
    for name, facts in arms.items():
        data, trace_map = folders.traced_image("gemm_bf16_triton", name)
        assert hashlib.sha256(data).hexdigest() == facts["sha256"] == trace_map["output"]["sha256"]
        assert facts["words"] > 0
    assert len({facts["sha256"] for facts in arms.values()}) == len(ARMS)
    for step in STEPS:
        assert set(arms[step]["promises"].values()) == {"PASS"}
        assert arms[step]["events"] > 0
    assert arms["packed"]["packets"] < arms["lane"]["packets"] == arms["lane"]["events"]
    assert arms["prologue"]["words"] < arms["ends"]["words"] < arms["clocks"]["words"] < arms["nops"]["words"]
    assert arms["nops"]["words"] == arms["scheduled"]["words"]
    assert document["layout"] == 1


def test_an_image_that_is_not_proved_is_not_written(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = type("Certificate", (), {"promises": {"instructions": "PASS", "hazards": "FAIL"}})
    monkeypatch.setattr(ablation_images, "verify", lambda *_: broken)
    with pytest.raises(BadInput, match="naive: not proved: hazards"):
        ablation_images.main(["--out", str(tmp_path), "--corpus", str(corpus), "--workloads", "gemm_bf16_triton"])
    assert not list((tmp_path / "gemm_bf16_triton").glob("*"))
