"""Building pairs: what cannot be built says why, what is built is complete and reproducible."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from baselines.api import BuildResult, Workload, create, tracers, write_result
from xtrace.errors import BadInput

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "workflow" / "scripts" / "build_baseline.py"


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A workload of which only the machine code is there, as for a shipped library."""
    folder = tmp_path / "closed"
    folder.mkdir()
    (folder / "original.cubin").write_bytes(b"\x7fELF")
    (folder / "meta.json").write_text(json.dumps({"workload": "closed", "arch": "sm_90a"}))
    return folder


@pytest.mark.parametrize("tracer", tracers())
def test_a_library_kernel_is_unsupported_with_a_reason(tracer: str, closed: Path, tmp_path: Path) -> None:
    result = create(tracer).build(Workload.open(closed), "pp", tmp_path / "out")
    assert result.status == "unsupported"
    assert ("no PTX" if "ptx" in tracer else "not a Triton kernel") in result.reason
    document = json.loads(write_result(result, tmp_path / "out").read_text())
    assert document["schema"] == "xtrace/baseline/1"
    assert document["reason"]
    assert document["files"] == {"original": None, "instrumented": None, "reference": None}


@pytest.mark.parametrize("tracer", tracers())
def test_text_that_is_not_a_kernel_fails_with_a_reason(tracer: str, closed: Path, tmp_path: Path) -> None:
    (closed / "kernel.ptx").write_text("not PTX `")
    (closed / "kernel.ttgir").write_text("}")
    result = create(tracer).build(Workload.open(closed), "pp", tmp_path / "out")
    assert result.status == "failed"
    assert "XT73" in result.reason


def test_a_result_that_is_not_ok_needs_a_reason() -> None:
    with pytest.raises(ValueError, match="reason"):
        BuildResult("t", "T", "w", "pp", "unsupported")


def test_unknown_names_list_the_known_ones(closed: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="unknown tracer") as caught:
        create("nvbit")
    assert "ptx-probe" in caught.value.hint
    assert "unknown site group" in create("proton").build(Workload.open(closed), "all", tmp_path / "o").reason
    with pytest.raises(BadInput, match="no such workload"):
        Workload.open(tmp_path / "nothing")


def test_broken_meta_is_one_clear_error(closed: Path) -> None:
    (closed / "meta.json").write_text("[")
    with pytest.raises(BadInput, match="JSON"):
        Workload.open(closed)


def test_script_writes_a_result_for_what_is_unsupported(closed: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--tracer", "proton", "--workload-dir", str(closed)]
    done = subprocess.run([*command, "--probes", "pp", "--out", str(tmp_path / "o")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "unsupported" in done.stdout
    assert json.loads((tmp_path / "o" / "result.json").read_text())["status"] == "unsupported"
    (closed / "kernel.ttgir").write_text("}")
    done = subprocess.run([*command, "--probes", "pp", "--out", str(tmp_path / "o")], capture_output=True, text=True)
    assert done.returncode == 0
    assert json.loads((tmp_path / "o" / "result.json").read_text())["status"] == "failed"
    done = subprocess.run([*command, "--probes", "nope", "--out", str(tmp_path / "p")], capture_output=True, text=True)
    assert done.returncode == 2
    assert "matrix" in done.stderr
    assert not (tmp_path / "p").exists()


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Workload]:
    """Suite kernels, compiled once per session."""
    pytest.importorskip("triton")
    from workflow.kernels.build import build
    from workflow.kernels.registry import spec

    base = tmp_path_factory.mktemp("corpus")

    def workload(name: str) -> Workload:
        folder = base / name
        if not folder.is_dir():
            built = build(spec(name))
            folder.mkdir()
            (folder / "original.cubin").write_bytes(built.cubin)
            (folder / "kernel.ptx").write_text(built.ptx)
            (folder / "kernel.ttgir").write_text(built.ttgir)
            (folder / "meta.json").write_text(json.dumps(built.meta))
        return Workload.open(folder)

    return workload


@pytest.mark.golden
@pytest.mark.parametrize("tracer", tracers())
@pytest.mark.parametrize(("name", "group"), [("gemm_bf16_triton", "waits"), ("softmax_triton", "sche")])
def test_built_pairs(tracer: str, name: str, group: str, compiled: Callable[[str], Workload], tmp_path: Path) -> None:
    result = create(tracer).build(compiled(name), group, tmp_path)
    assert (result.status, result.reason) == ("ok", "")
    assert result.counts.source == result.counts.sass == len(result.sites) > 0
    assert result.counts.sass_original == 0
    # With the same assembler, no probes means the shipped machine code: all differences are the probes' doing.
    assert result.controls["reference_equals_shipped"] is True
    assert result.launch is not None
    assert all(b.bytes_per_unit > 0 for b in result.launch.buffers)
    first = (tmp_path / "instrumented.cubin").read_bytes()
    assert create(tracer).build(compiled(name), group, tmp_path / "again").status == "ok"
    assert (tmp_path / "again" / "instrumented.cubin").read_bytes() == first


@pytest.mark.golden
def test_tracers_agree_on_the_sites_of_the_exactly_matched_group(
    compiled: Callable[[str], Workload], tmp_path: Path
) -> None:
    workload = compiled("gemm_bf16_triton")
    places = {}
    for tracer in ("proton", "ptx-probe"):
        result = create(tracer).build(workload, "waits", tmp_path / tracer)
        places[tracer] = sorted((s.place, s.phase) for s in result.sites if not s.closing)
    assert places["proton"] == places["ptx-probe"]


@pytest.mark.golden
def test_proton_scopes_in_the_source_with_the_tool_off_change_nothing(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    source = Path(__file__).with_name("scoped_kernel.py")
    shutil.copy(source, tmp_path / "scoped_kernel.py")
    for name, scopes in (("plain", "0"), ("off", "1")):
        done = subprocess.run(
            [sys.executable, str(tmp_path / "scoped_kernel.py"), scopes, str(tmp_path / f"{name}.cubin")],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "plain.cubin").read_bytes() == (tmp_path / "off.cubin").read_bytes()
