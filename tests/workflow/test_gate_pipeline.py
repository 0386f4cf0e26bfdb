"""`snakemake gate` from kernels to a verdict: an older revision beside the new one, on the simulated device."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from workflow.scripts import base_images, measure_gate
from workflow.scripts.common import write_json
from workflow.scripts.gpu_files import CellName, Folders
from xtrace.errors import BadInput, Unsupported

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("Snakefile", "workflow", "configs", "baselines", "xtrace", "profiles")


def git(*arguments: str, folder: Path) -> str:
    names = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", "-C", folder, *names, *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small repository of its own: the sources, committed, and one budget that no kernel can keep."""
    folder = tmp_path_factory.mktemp("gate")
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / part)
    (folder / "results" / "recorded").mkdir(parents=True)
    (folder / "configs" / "small.yaml").write_text(
        (folder / "configs" / "quick.yaml")
        .read_text()
        .replace("overhead: recorded", "overhead: auto\nbudgets: configs/few.yaml")
        .replace("workloads: [rmsnorm_triton, softmax_triton]", "workloads: [softmax_triton]")
        .replace("probes: [sche, pp]", "probes: [pp]")
        .replace("blocks: 20", "blocks: 4")
        .replace("control_blocks: 8", "control_blocks: 4\n  shape: check")
    )
    (folder / "configs" / "few.yaml").write_text(
        "schema: xtrace/budgets/1\nsuite: suite.yaml\n"
        "gate: {processes: 6, extended: 7, minimum: 6, control_margin: 0.75, max_voided: 10}\n"
        "regression: 0.5\nbudgets:\n  - {budget: 2}\n"
    )
    git("init", "-q", folder=folder)
    git("add", "xtrace", "workflow", "configs", folder=folder)
    git("commit", "-q", "-m", "all", folder=folder)
    return folder


def snakemake(tree: Path, *arguments: str, code: int = 0, **environment: str) -> str:
    command = [sys.executable, "-m", "snakemake", *arguments[:1], "--cores", "2"]
    command += ["--configfile", "configs/small.yaml", *arguments[1:]]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=tree,
        timeout=600,
        env={k: v for k, v in os.environ.items() if k not in {"XTRACE_DEVICE", "XTRACE_MEASURES"}} | environment,
    )
    output = done.stdout + done.stderr
    assert done.returncode == code, output[-4000:]
    return output


@pytest.mark.golden
def test_an_older_revision_runs_beside_the_new_one(tree: Path) -> None:
    snakemake(tree, "gate", "--config", "base=HEAD", XTRACE_DEVICE="simulated")
    verdict = json.loads((tree / "results" / "gate.json").read_text())
    (cell,) = verdict["cells"]
    (change,) = verdict["changes"]
    assert (cell["workload"], cell["probes"]) == ("softmax_triton", "pp")
    assert change["verdict"] == cell["verdict"] == "INVALID-ENV"  # make-believe times decide nothing
    assert abs(change["change"]["percent"]) < 0.5
    assert change["change"]["processes"] >= 6
    raw = sorted((tree / "results" / "gate" / "raw").glob("*.json"))
    assert len(raw) >= 6
    document = json.loads(raw[0].read_text())
    revision = git("rev-parse", "HEAD", folder=tree)
    assert document["base"]["revision"] == revision
    assert document["base"]["identical"] is True
    assert [b["kind"] for b in document["blocks"]].count("AO") == 4
    source = tree / "results" / "base" / revision / "source" / "xtrace" / "__init__.py"
    assert source.is_file()
    assert (tree / "results" / "gate.md").is_file()
    assert (tree / "results" / "gate.junit.xml").is_file()


@pytest.mark.golden
def test_the_machine_is_calibrated_and_measured_accordingly(tree: Path) -> None:
    snakemake(tree, "results/corpus/softmax_triton/meta.json")
    command = [sys.executable, "workflow/scripts/calibrate.py", "--out", "results/calibration.json", "--processes", "2"]
    command += ["--blocks", "4", "--workloads", "softmax_triton", "--flush-workload", "softmax_triton"]
    command += ["--shape", "check", "--flush-shape", "check"]
    environment = os.environ | {"XTRACE_DEVICE": "simulated"}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    document = json.loads((tree / "results" / "calibration.json").read_text())
    assert document["provenance"]["device"] == "Simulated GPU"
    assert document["noise"]["processes"] == 2
    assert document["derived"]["processes"] >= 10
    config = 'measurement={"calibration": "results/calibration.json"}'
    log = snakemake(tree, "gate", "--dry-run", "--printshellcmds", "--config", config, XTRACE_DEVICE="simulated")
    assert "--calibration results/calibration.json --seed 1" in log


def test_without_a_gpu_it_says_in_one_line_that_it_cannot_compare(tree: Path) -> None:
    output = snakemake(tree, "gate", "--dry-run", "--config", "base=HEAD", "overhead=recorded", code=2)
    (line,) = [x for x in output.splitlines() if x.startswith("error[")]
    assert "nothing to compare with an older revision" in line
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("budgets=no.yaml", "error[XT7401] no.yaml: cannot be read"),
        ('measurement={"calibration": "no.json"}', "error[XT7433] no.json: cannot be read"),
        ("base=no-such-branch", "base: 'no-such-branch' is not a revision of"),
    ],
)
def test_a_mistake_in_the_gate_s_configuration_is_one_line(tree: Path, setting: str, words: str) -> None:
    output = snakemake(tree, "gate", "--dry-run", "--config", "overhead=recorded", setting, code=2)
    (line,) = [x for x in output.splitlines() if x.startswith("error[")]
    assert words in line
    assert "Traceback" not in output


def test_recorded_samples_are_named_as_such(tree: Path) -> None:
    output = snakemake(tree, "gate", "--dry-run", "--config", "overhead=recorded")
    assert "recorded earlier, because this run does not measure" in output


@pytest.mark.parametrize("revision", ["no-such-branch", "--output=x", "a b"])
def test_an_unknown_revision_is_one_line(tree: Path, revision: str) -> None:
    with pytest.raises(BadInput, match="revision"):
        base_images.resolve(revision, tree)


def test_an_unknown_probe_set_is_one_line(tmp_path: Path) -> None:
    line = ["--revision", "HEAD", "--corpus", str(tmp_path), "--out", str(tmp_path / "base"), "--cells", "toy:ppp"]
    with pytest.raises(BadInput, match="'ppp' is no probe set"):
        base_images.main(line)


def test_an_older_revision_that_cannot_trace_leaves_its_reason(tmp_path: Path) -> None:
    package = tmp_path / "source" / "xtrace"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("import sys; sys.exit('error[XT3031] this was not possible then')")
    image = tmp_path / "traced" / "toy" / "pp.cubin"
    assert "not possible then" in base_images.splice(tmp_path / "source", tmp_path / "original.cubin", "pp", image)
    folders = Folders(tmp_path, tmp_path, tmp_path, base=tmp_path / "traced")
    with pytest.raises(Unsupported, match="not possible then"):
        folders.base_image("toy", "pp")


def measured(out: Path, answers: list[int]) -> list[list[str]]:
    lines = []

    def measure(arguments: list[str]) -> int:
        lines.append(list(arguments))
        if "--extend-from" in arguments and answers[-1] < 0:
            raise BadInput("XT7442", "the first look has 7 of 10 processes")
        write_json(out / "a.xtrace.pp.0.json", {})
        write_json(out / "errors" / "b.xtrace.pp.1.json", {"error": "Traceback\nerror[XT5007] it never ended\n"})
        return answers[len(lines) - 1]

    cells = ["a:xtrace:pp", "b:xtrace:pp", "c:xtrace:pp"]
    measure_gate.main(["--out", str(out), "--budgets", "b.yaml", "--budget", "60", "--cells", *cells], measure)
    return lines


def test_the_extension_follows_the_first_look_within_the_same_time(tmp_path: Path, capsys) -> None:
    first, second = measured(tmp_path, [0, 1])
    assert "--extend-from" not in first
    assert second[second.index("--extend-from") + 1] == str(tmp_path)
    assert float(second[second.index("--budget") + 1]) <= 60
    assert first[first.index("--budgets") + 1] == "b.yaml"
    said = capsys.readouterr().out
    failed = json.loads((tmp_path / "b.xtrace.pp.1.json").read_text())
    assert failed["unsupported"] == "failed: error[XT5007] it never ended"
    missing = json.loads(CellName("c", "xtrace", "pp").file(tmp_path, 0).read_text())
    assert missing["unsupported"] == "not measured: the time was used up"
    assert "c:xtrace:pp: not measured" in said


def test_a_run_that_was_cut_short_can_go_on(tmp_path: Path) -> None:
    measured(tmp_path, [0, 0])
    gap = CellName("c", "xtrace", "pp").file(tmp_path, 0)
    assert gap.is_file()
    seen = []

    def measure(arguments: list[str]) -> int:
        seen.append(gap.is_file())
        return 0

    measure_gate.main(["--out", str(tmp_path), "--cells", "b:xtrace:pp", "c:xtrace:pp"], measure)
    assert seen == [False, False]  # it is measured now; what failed is not tried again
    assert "XT5007" in json.loads((tmp_path / "b.xtrace.pp.1.json").read_text())["unsupported"]


def test_a_first_look_that_was_cut_short_is_not_extended(tmp_path: Path, capsys) -> None:
    measured(tmp_path, [0, -1])
    assert "no extension: error[XT7442]" in capsys.readouterr().out


def test_a_measuring_program_that_cannot_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="ended with 2"):
        measured(tmp_path, [2])
