"""The measuring script from the first argument to the raw sample files, on the simulated device."""

import hashlib
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.stand_ins import KERNEL, images, toy_kernel, trace_map, warp_traces
from workflow.scripts import extra_arms, gpu_cells, gpu_files, measure_overhead, processes, trace_workload
from workflow.scripts.gpu_files import CellName
from xtrace.errors import BadInput, XtraceError
from xtrace.runtime import older
from xtrace.runtime.device import LaunchConfig
from xtrace.runtime.simulated import SimulatedDevice, simulated_image
from xtrace.sampling import Sampling
from xtrace.splice import SpliceResult
from xtrace.stats import samples
from xtrace.trace import load

CELL = CellName("toy", "xtrace", "pp")
SCRIPT = Path(measure_overhead.__file__)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    original, traced = images()
    corpus, built = tmp_path / "corpus" / "toy", tmp_path / "traced" / "toy"
    corpus.mkdir(parents=True)
    built.mkdir(parents=True)
    meta = {
        "workload": "toy",
        "kernel": KERNEL,
        "variant": "default",
        "dtype": "i32",
        "seed": 1,
        "sha256": hashlib.sha256(original).hexdigest(),
        "launch": {
            "block": [64, 1, 1],
            "cluster": [1, 1, 1],
            "shared": 0,
            "parameters": [
                {"name": "OUT", "type": "*i8", "role": "buffer"},
                {"name": "n", "type": "i32", "role": "scalar"},
                {"name": "IN", "type": "*i32", "role": "buffer"},
                {"name": "global_scratch", "type": "*i8", "role": "scratch"},
            ],
            "shapes": {
                "default": {
                    "sizes": {"n": 5},
                    "grid": [4, 1, 1],
                    "buffers": {"OUT": {"bytes": 8, "role": "output"}, "IN": {"bytes": 64, "role": "input"}},
                    "scalars": {"n": 5},
                }
            },
        },
    }
    (corpus / "meta.json").write_text(json.dumps(meta))
    (corpus / "original.cubin").write_bytes(original)
    (built / "pp.cubin").write_bytes(traced)
    (built / "pp.cubin.map.json").write_text(json.dumps(trace_map(traced)))
    made = type("Made", (), {"inputs": {"IN": np.arange(16, dtype=np.int32)}})
    monkeypatch.setattr(gpu_files.cases, "make", lambda workload, sizes, seed: made)
    expected = gpu_cells.Expected({"loop": [1, 1, 1, 1]}, lambda entry, cta: 4)
    monkeypatch.setattr(gpu_cells, "source_expectation", lambda *_: expected)
    return tmp_path


def _arguments(files: Path, *more: str):
    options = ["--corpus", str(files / "corpus"), "--traced", str(files / "traced"), "--warm-up", "0.1"]
    return measure_overhead.parse([*options, "--out", str(files / "out"), *more])


def _measure(files: Path, behaviour, *more: str, full: bool = True) -> tuple[int, Path]:
    args = _arguments(files, "--blocks", "3", "--control-blocks", "2", *more)
    args.full_checks = full
    device = SimulatedDevice({KERNEL: behaviour})
    (files / "out").mkdir(exist_ok=True)
    code = measure_overhead.replicate(
        args, [CELL], 2, lambda c: c.file(args.out, 2), stop_at_error=False, device=device
    )
    return code, CELL.file(args.out, 2)


def test_a_cell_becomes_a_document_that_the_statistics_read(files: Path) -> None:
    code, path = _measure(files, toy_kernel(slow_down=1.03))
    assert code == 0
    document = json.loads(path.read_text())
    (cell,) = samples.group([document])
    summary = samples.summarise(cell)
    assert summary.voided == 0
    assert summary.median_a_ns == 100_000
    assert document["process"] == 2
    assert document["cell"]["tracer"] == "xtrace"
    checks = document["checks"]
    assert checks["bit_identical"] is True
    assert checks["records_lost"] == 0
    assert checks["monotonic"] is True
    assert checks["warps_seen"] == checks["warps_expected"] == 8
    assert checks["records_emitted"] == 8 * (4 + 2)
    assert checks["records_expected"] is None  # site 1 is passed twice, the others once: not what the trips say
    assert checks["sites_unexplained"] == {KERNEL: [1]}
    assert (checks["ctas_predicted"], checks["ctas_wrong"]) == (4, 0)
    assert len(document["blocks"]) == 5


def test_of_a_sampled_cell_only_the_sampled_warps_are_expected(files: Path, capsys) -> None:
    """Two warps in each of four CTAs, every second CTA traced: four warps leave a trace, and no other may."""
    path = files / "traced" / CELL.workload / "pp.cubin.map.json"
    document = json.loads(path.read_text())
    document["kernels"][0]["sample"] = Sampling.parse("cta=2").document()
    path.write_text(json.dumps(document))
    every = warp_traces(LaunchConfig((4, 1, 1), (64, 1, 1)))
    sampled = [warp if n // 2 % 2 == 0 else None for n, warp in enumerate(every)]
    for full in (True, False):
        _, written = _measure(files, toy_kernel(traces=sampled), full=full)
        checks = json.loads(written.read_text())["checks"]
        assert checks["warps_seen"] == checks["warps_expected"] == 4
    _, written = _measure(files, toy_kernel(traces=sampled))
    checks = json.loads(written.read_text())["checks"]
    assert checks["records_emitted"] == 4 * (4 + 2)
    assert (checks["ctas_predicted"], checks["ctas_wrong"]) == (4, 0)
    assert "CHECK" not in capsys.readouterr().out
    others = [warp if n // 2 % 2 else None for n, warp in enumerate(every)]  # as many, but the wrong ones
    _measure(files, toy_kernel(traces=others))
    assert "warps_stray" in capsys.readouterr().out


def test_record_counts_that_the_source_does_not_predict_fail(files: Path, capsys, monkeypatch) -> None:
    wrong = gpu_cells.Expected({"loop": [1, 2, 1, 1]}, lambda entry, cta: 5 if cta == 1 else 4)
    monkeypatch.setattr(gpu_cells, "source_expectation", lambda *_: wrong)
    _, path = _measure(files, toy_kernel())
    assert json.loads(path.read_text())["checks"]["ctas_wrong"] == 1
    assert "CHECK toy:xtrace:pp: ctas_wrong" in capsys.readouterr().out


def test_further_processes_check_outputs_and_headers_only(files: Path, capsys) -> None:
    _, path = _measure(files, toy_kernel(), full=False)
    checks = json.loads(path.read_text())["checks"]
    assert checks["bit_identical"] is True
    assert checks["warps_seen"] == checks["warps_expected"] == 8
    assert checks["records_lost"] == 0
    assert "records_emitted" not in checks
    _, path = _measure(files, toy_kernel(corrupt=True, traces=[]), full=False)
    assert "bit_identical, warps_seen" in capsys.readouterr().out


def test_inputs_are_uploaded_and_cached(files: Path) -> None:
    seen = []

    def behaviour(device, image, config, packed):
        seen.append(device.download(packed.params[2][1], 64))
        return toy_kernel()(device, image, config, packed)

    _measure(files, behaviour, "--input-cache", str(files / "cache"))
    assert set(seen) == {np.arange(16, dtype=np.int32).tobytes()}
    assert len(list((files / "cache").glob("toy-*/IN.npy"))) == 1
    seen.clear()
    _measure(files, behaviour, "--input-cache", str(files / "cache"))
    assert set(seen) == {np.arange(16, dtype=np.int32).tobytes()}


def test_changed_outputs_are_recorded(files: Path, capsys) -> None:
    _, path = _measure(files, toy_kernel(corrupt=True))
    assert json.loads(path.read_text())["checks"]["bit_identical"] is False
    assert "CHECK toy:xtrace:pp: bit_identical" in capsys.readouterr().out


def test_a_traced_kernel_that_leaves_no_trace_fails_its_checks(files: Path, capsys) -> None:
    _, path = _measure(files, toy_kernel(traces=[]))
    checks = json.loads(path.read_text())["checks"]
    assert checks["warps_seen"] == 0
    assert "warps_seen" in capsys.readouterr().out


def test_a_lost_device_ends_the_process_and_leaves_the_reason(files: Path) -> None:
    def behaviour(device, image, config, packed):
        device.failed = 719
        return 1.0

    code, path = _measure(files, behaviour)
    assert code == measure_overhead.LOST
    assert not path.exists()
    assert "XT5006" in json.loads(processes.error_file(path).read_text())["error"]


def test_checks_without_timing(files: Path) -> None:
    _, path = _measure(files, toy_kernel(), "--check-only")
    assert json.loads(path.read_text())["blocks"] == []


def test_single_cell_mode_reports_errors_and_writes_nothing(files: Path, monkeypatch) -> None:
    monkeypatch.setattr(measure_overhead, "open_device", lambda _: SimulatedDevice({KERNEL: toy_kernel()}))
    out = files / "one.json"
    arguments = ["--corpus", str(files / "corpus"), "--traced", str(files / "traced"), "--out", str(out)]
    single = ["--workload", "toy", "--process", "0", "--blocks", "1", "--control-blocks", "0", "--warm-up", "0.1"]
    with pytest.raises(XtraceError, match="cannot be read"):
        measure_overhead.main([*arguments, *single, "--probes", "absent"])
    assert not out.exists()
    assert measure_overhead.main([*arguments, *single, "--probes", "pp"]) == 0
    assert json.loads(out.read_text())["process"] == 0


def test_an_image_that_is_not_the_described_one_is_refused(files: Path) -> None:
    (files / "corpus" / "toy" / "original.cubin").write_bytes(b"other")
    with pytest.raises(BadInput, match=r"not the one of its meta\.json"):
        gpu_files.Folders(files / "corpus", files, files).original("toy")


def test_cells_are_found_by_their_images(files: Path, monkeypatch) -> None:
    monkeypatch.setattr(measure_overhead, "read_suite", lambda _: {"toy": {}, "other": {}})
    result = files / "baselines" / "proton" / "toy" / "sche" / "result.json"
    result.parent.mkdir(parents=True)
    result.write_text('{"status": "ok"}')
    args = _arguments(files, "--baselines", str(files / "baselines"))
    assert measure_overhead.find_cells(args) == [CELL, CellName("toy", "proton", "sche")]


def test_a_process_that_dies_loses_one_cell_only(files: Path, monkeypatch, capsys) -> None:
    cells = [CellName("toy", "xtrace", p) for p in ("a", "b", "c")]
    calls = []

    def child(args, remaining, script, process, cache):
        calls.append([c.probes for c in remaining])
        for cell in remaining:
            if cell.probes == "b":
                return -9, f"start {cell}\n"
            cell.file(args.out, process).write_text(json.dumps({"cell": cell._asdict(), "blocks": [], "checks": {}}))
        return 0, ""

    monkeypatch.setattr(processes, "_child", child)
    args = _arguments(files, "--processes", "1")
    assert processes.supervise(args, dict.fromkeys(cells, range(1)), SCRIPT) == 1
    assert calls == [["a", "b", "c"], ["c"]]
    assert "ended with -9" in json.loads((args.out / "errors" / "toy.xtrace.b.0.json").read_text())["error"]
    assert "2 of 3 cells" in capsys.readouterr().out


def test_cells_are_measured_in_their_own_processes_only(files: Path, monkeypatch) -> None:
    short, long = (CellName("toy", "xtrace", p) for p in ("a", "b"))
    calls = []

    def child(args, remaining, script, process, cache):
        calls.append((process, [c.probes for c in remaining]))
        for cell in remaining:
            cell.file(args.out, process).write_text(json.dumps({"cell": cell._asdict(), "blocks": [], "checks": {}}))
        return 0, ""

    monkeypatch.setattr(processes, "_child", child)
    args = _arguments(files)
    processes.supervise(args, {short: range(1, 2), long: range(3)}, SCRIPT)
    assert calls == [(0, ["b"]), (1, ["a", "b"]), (2, ["b"])]


def test_the_budget_stops_new_processes(files: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(processes, "_child", lambda *_: pytest.fail("no process may start"))
    args = _arguments(files, "--processes", "3", "--budget", "-1")
    assert processes.supervise(args, {CELL: range(3)}, SCRIPT) == 0
    assert "0 of 3 processes" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["a:b", "a::c", "a:b:c:d"])
def test_cell_names(text: str) -> None:
    with pytest.raises(BadInput, match="not a cell"):
        CellName.parse(text)


def test_a_trace_file_and_facts_are_written(files: Path, monkeypatch) -> None:
    monkeypatch.setattr(trace_workload, "open_device", lambda _: SimulatedDevice({KERNEL: toy_kernel()}))
    monkeypatch.setattr(trace_workload, "read_suite", lambda _: {"toy": {"tolerances": {}}})
    out = files / "traces"
    arguments = ["toy", "--corpus", str(files / "corpus"), "--traced", str(files / "traced"), "--out", str(out)]
    assert trace_workload.main([*arguments, "--ctas", "3"]) == 0
    facts = json.loads((out / "toy.pp.facts.json").read_text())
    assert facts["failures"] == []
    assert facts["decoded"][KERNEL]["warps_ran"] == 6
    tables = load(out / "toy.pp.xtrace").tables
    assert len(tables.events) == 6 * 4
    assert tables.warps["cta"].max() == 2


def _older(files: Path) -> Path:
    """A folder of images that an older revision made."""
    folder = files / "base" / "toy"
    folder.mkdir(parents=True)
    old = simulated_image(KERNEL, "older")
    (folder / "pp.cubin").write_bytes(old)
    (folder / "pp.cubin.map.json").write_text(json.dumps(trace_map(old)))
    return folder.parent


def _slow(device, image, config, packed) -> float:
    """The traced image costs 1 %, the older one 3 %, the pad image 0.4 %; only traced ones are patched."""
    content = json.loads(image[30:])["content"]
    factor = {"original": 1.0, "traced": 1.01, "older": 1.03, "pad": 1.004}[content]
    return toy_kernel(slow_down=1.0)(device, image, config, packed) * factor


def test_old_and_new_run_in_the_same_process(files: Path) -> None:
    _, path = _measure(files, _slow, "--base", str(_older(files)), "--base-revision", "v0.1.0")
    document = json.loads(path.read_text())
    kinds = [b["kind"] for b in document["blocks"]]
    assert Counter(kinds) == {"AB": 3, "AO": 3, "AA": 2}
    (cell,) = samples.group([document])
    summary = samples.summarise(cell)
    assert summary.change is not None
    assert summary.change.percent == pytest.approx(100 * (1.01 / 1.03 - 1), abs=0.01)
    base = document["base"]
    assert (base["revision"], base["identical"]) == ("v0.1.0", False)
    assert base["checks"]["bit_identical"] is True
    assert base["checks"]["warps_seen"] == 8


def _older_format(files: Path, schema: str = "xtrace/map/1", **changes) -> Path:
    """The same with another trace map, as a version with another trace format wrote it."""
    folder = _older(files)
    path = folder / "toy" / "pp.cubin.map.json"
    document = json.loads(path.read_text())
    document["schema"] = schema
    document["kernels"][0]["slot"] |= {"record": 8} | changes
    path.write_text(json.dumps(document))
    return folder


def test_an_older_trace_format_is_no_obstacle(files: Path, monkeypatch) -> None:
    monkeypatch.setattr(older, "SCHEMAS", ("an older one",))
    _, path = _measure(files, _slow, "--base", str(_older_format(files, "an older one")))
    document = json.loads(path.read_text())
    assert Counter(b["kind"] for b in document["blocks"]) == {"AB": 3, "AO": 3, "AA": 2}
    assert document["base"]["format"] == "an older one"
    assert document["base"]["checks"]["trace_written"] is True
    assert document["base"]["checks"]["guards_intact"] is True


def test_an_unknown_trace_format_leaves_its_reason(files: Path) -> None:
    _, path = _measure(files, _slow, "--base", str(_older_format(files, "xtrace/map/0")))
    document = json.loads(path.read_text())
    assert "another version: 'xtrace/map/0'" in document["base"]["unsupported"]
    assert {b["kind"] for b in document["blocks"]} == {"AB", "AA"}


def test_an_older_image_that_writes_nothing_is_not_timed(files: Path, monkeypatch) -> None:
    monkeypatch.setattr(older, "SCHEMAS", ("an older one",))

    def silent(device, image, config, packed) -> float:
        traces = [] if b"older" in image else None
        return toy_kernel(traces=traces)(device, image, config, packed)

    _, path = _measure(files, silent, "--base", str(_older_format(files, "an older one")))
    assert "trace_written" in json.loads(path.read_text())["base"]["unsupported"]


def test_an_impossible_older_layout_is_refused(files: Path, monkeypatch) -> None:
    monkeypatch.setattr(older, "SCHEMAS", ("an older one",))
    _, path = _measure(files, _slow, "--base", str(_older_format(files, "an older one", stride=1 << 40)))
    assert "impossible slot layout" in json.loads(path.read_text())["base"]["unsupported"]


def test_an_older_image_that_cannot_be_had_leaves_its_reason(files: Path) -> None:
    code, path = _measure(files, _slow, "--base", str(files / "nothing"))
    document = json.loads(path.read_text())
    assert code == 0
    assert "cannot be read" in document["base"]["unsupported"]
    assert {b["kind"] for b in document["blocks"]} == {"AB", "AA"}


def test_an_older_image_with_wrong_outputs_is_not_timed(files: Path, capsys) -> None:
    def wrong(device, image, config, packed) -> float:
        return toy_kernel(corrupt=b"older" in image)(device, image, config, packed)

    _, path = _measure(files, wrong, "--base", str(_older(files)))
    document = json.loads(path.read_text())
    assert "bit_identical" in document["base"]["unsupported"]
    assert {b["kind"] for b in document["blocks"]} == {"AB", "AA"}
    assert "CHECK toy:xtrace:pp base" in capsys.readouterr().out


def test_the_pad_control_is_an_arm_of_its_own(files: Path, monkeypatch) -> None:
    padded = SpliceResult(simulated_image(KERNEL, "pad"), {})
    monkeypatch.setattr(extra_arms, "pad", lambda image, trace_map, name: padded)
    _, path = _measure(files, _slow, "--pad", "--base", str(_older(files)))
    document = json.loads(path.read_text())
    assert Counter(b["kind"] for b in document["blocks"]) == {"AB": 3, "AP": 3, "AO": 3, "AA": 2}
    (cell,) = samples.group([document])
    summary = samples.summarise(cell)
    assert summary.pad is not None
    assert summary.pad.percent == pytest.approx(0.4, abs=0.01)
    assert document["pad"]["checks"]["bit_identical"] is True


def test_a_pad_image_that_cannot_be_made_leaves_its_reason(files: Path) -> None:
    _, path = _measure(files, _slow, "--pad")  # a simulated image is no cubin
    document = json.loads(path.read_text())
    assert document["pad"]["unsupported"].startswith("error[XT1")
    assert {b["kind"] for b in document["blocks"]} == {"AB", "AA"}


def test_facts_about_the_machine_are_in_every_document(files: Path) -> None:
    _, path = _measure(files, toy_kernel(), "--clocks", "locked 1500 MHz")
    document = json.loads(path.read_text())
    assert document["machine"]["other_processes"] == 0
    assert document["machine"]["ecc_errors"] == 0
    assert document["machine"]["clocks"]["policy"] == document["provenance"]["clocks"] == "locked 1500 MHz"
    assert document["seconds"]["timing"] >= 0


def _calibration(files: Path, uuid: str) -> Path:
    path = files / "calibration.json"
    derived = {"processes": 12, "blocks": 30, "control_blocks": 9, "flush_factor": 2.5}
    derived |= {"short_ns": 60_000.0, "group_ns": 250_000.0}
    document = {"schema": "xtrace/calibration/1", "provenance": {"uuid": uuid, "device": "a"}, "derived": derived}
    path.write_text(json.dumps(document))
    return path


def test_a_calibration_gives_the_repeats_that_are_not_given(files: Path) -> None:
    path = _calibration(files, SimulatedDevice().info.uuid)
    args = _arguments(files, "--calibration", str(path), "--blocks", "25")
    assert (args.processes, args.blocks, args.control_blocks, args.flush_factor) == (12, 25, 9, 2.5)
    _, out = _measure(files, toy_kernel(), "--calibration", str(path))
    reference = json.loads(out.read_text())["calibration"]
    assert reference["derived"]["blocks"] == 30
    assert reference["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_calibration_of_another_gpu_is_refused(files: Path) -> None:
    with pytest.raises(BadInput, match="this is Simulated GPU"):
        _measure(files, toy_kernel(), "--calibration", str(_calibration(files, "GPU-1")))


def test_a_file_that_is_no_calibration_is_refused(files: Path) -> None:
    path = _calibration(files, "GPU-1")
    path.write_text(path.read_text().replace('"blocks": 30', '"blocks": -1'))
    with pytest.raises(BadInput, match="derived must give"):
        _arguments(files, "--calibration", str(path))


def test_children_are_started_with_the_same_options(files: Path) -> None:
    args = _arguments(files, "--base", "old", "--pad", "--seed", "7", "--clocks", "locked")
    line = processes.command_line(args, [CELL], SCRIPT, 3, files / "cache")
    again = measure_overhead.parse(line[2:])
    for name in (*processes.FORWARDED, *processes.SWITCHES):
        assert getattr(again, name) == getattr(args, name), name
    assert again.replicate == 3


def test_a_measuring_job_needs_few_packages() -> None:
    """Machines with GPUs often have PyTorch's packages and not those of a command line or a schema checker."""
    program = """
import sys
class Absent:
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in {"jsonschema", "click", "rich", "snakemake", "seaborn"}:
            raise ImportError(name)
sys.meta_path.insert(0, Absent())
import workflow.scripts.measure_gate, workflow.scripts.measure_overhead, workflow.scripts.calibrate
"""
    root = Path(measure_overhead.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
