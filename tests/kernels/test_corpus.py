"""The corpus folder: same bytes everywhere, no machine's paths, errors that name their place."""

import json
from pathlib import Path

import pytest

from workflow.kernels.suite import SUITE, make_corpus, read_suite
from xtrace.errors import BadInput, Unsupported

ROOT = Path(__file__).resolve().parents[2]


def quiet(_: str) -> None: ...


@pytest.mark.golden
def test_two_builds_are_identical_and_free_of_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    make_corpus("rmsnorm_triton", tmp_path / "a", say=quiet)
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "1")  # a user's setting must not change the machine code
    monkeypatch.chdir(tmp_path)
    make_corpus("rmsnorm_triton", tmp_path / "b", say=quiet)
    for name in ("original.cubin", "kernel.ptx", "kernel.ttgir", "meta.json"):
        data = (tmp_path / "a" / name).read_bytes()
        assert data == (tmp_path / "b" / name).read_bytes(), name
        assert str(ROOT).encode() not in data
        assert str(tmp_path).encode() not in data
        assert b"site-packages" not in data
    assert b"workflow/kernels" in (tmp_path / "a" / "original.cubin").read_bytes()  # the line table is there


@pytest.mark.golden
def test_meta_describes_a_launch(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    make_corpus("softmax_triton", tmp_path, say=quiet)
    meta = json.loads((tmp_path / "meta.json").read_text())
    launch, shape = meta["launch"], meta["launch"]["shapes"]["default"]
    assert meta["kernel"] == "softmax_rows"
    assert launch["block"] == [256, 1, 1]
    assert shape["grid"] == [528, 1, 1]
    named = {p["name"] for p in launch["parameters"]} - {"global_scratch", "profile_scratch"}
    assert named == shape["buffers"].keys() | shape["scalars"].keys()
    assert shape["buffers"]["Y"] == {"bytes": 16384 * 8192 * 2, "role": "output"}
    line = (ROOT / meta["source"]["path"]).read_text().splitlines()[meta["loops"][0]["line"] - 1]
    assert "for row in tl.range(" in line


@pytest.mark.golden
def test_ttgir_gives_the_same_machine_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tracers that instrument the compiler's last dialect start from the kernel that the suite measures."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget

    from xtrace import image

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    make_corpus("gemm_bf16_triton", tmp_path, say=quiet)
    options = {"num_warps": json.loads((tmp_path / "meta.json").read_text())["options"]["num_warps"]}
    again = triton.compile(str(tmp_path / "kernel.ttgir"), target=GPUTarget("cuda", 90, 32), options=options)
    assert (
        image.parse(again.asm["cubin"], "again").kernels[0].text
        == image.load(tmp_path / "original.cubin").kernels[0].text
    )


@pytest.mark.network
def test_library_image_is_taken_out_of_the_pinned_wheel(tmp_path: Path) -> None:
    make_corpus("fa3_fwd_hd128_causal", tmp_path, say=quiet)
    meta = json.loads((tmp_path / "meta.json").read_text())
    assert len(meta["kernels"]) == 7
    assert "30DynamicPersistentTileScheduler" in meta["kernel"]
    assert (tmp_path / "original.cubin").stat().st_size == 597200


def test_unknown_workload_and_architecture_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"XT7101.*rmsnorm_triton"):
        make_corpus("rmsnrom", tmp_path, say=quiet)
    with pytest.raises(Unsupported, match=r"XT7109.*sm_80"):
        make_corpus("fa3_fwd_hd128_causal", tmp_path, say=quiet, arch="sm_80")
    assert not list(tmp_path.iterdir())


def test_a_suite_with_a_missing_key_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "suite.yaml"
    broken.write_text(SUITE.read_text().replace("    seed: 3\n", ""))
    with pytest.raises(BadInput, match=r"XT7108.*rmsnorm_triton: lacks seed"):
        read_suite(broken)
    broken.write_text("workloads: [")
    with pytest.raises(BadInput, match="XT7108"):
        read_suite(broken)
