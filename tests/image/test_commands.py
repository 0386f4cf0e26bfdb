"""``xtrace extract`` and ``xtrace inspect`` as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.image.growth import GOLDEN, NAMES, golden
from tests.image.test_fatbin import ARCH_A, PTX, PTX_TEXT, ZSTD, container, entry
from xtrace.cli.main import cli
from xtrace.image import load


def xtrace(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments])


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "libkernels.so"
    first = container(entry(golden("spin")), entry(PTX_TEXT, kind=PTX, flags=ZSTD))
    path.write_bytes(bytes(500) + first + bytes(64) + container(entry(golden("two_kernels"), flags=ZSTD | ARCH_A)))
    return path


def test_extract_writes_every_image_under_its_place(library: Path, tmp_path: Path) -> None:
    out = tmp_path / "images"
    done = xtrace("extract", library, "-o", out, "--json")
    assert done.exit_code == 0
    document = json.loads(done.stdout)
    assert [(i["fat"], i["entry"], i["kind"], i["arch"]) for i in document["images"]] == [
        (0, 0, "elf", "sm_90a"),
        (0, 1, "ptx", "compute_90"),
        (1, 0, "elf", "sm_90a"),
    ]
    assert sorted(p.name for p in out.iterdir()) == ["fat0_0.sm_90a.cubin", "fat1_0.sm_90a.cubin"]
    assert (out / "fat1_0.sm_90a.cubin").read_bytes() == golden("two_kernels")
    names = {k["name"] for i in document["images"] for k in i["kernels"]}
    assert len(names) == 3


def test_extract_filters_by_kernel_and_architecture(library: Path, tmp_path: Path) -> None:
    done = xtrace("extract", library, "--kernel", "second_of", "--arch", "sm_90a", "-o", tmp_path / "o", "--json")
    assert [i["fat"] for i in json.loads(done.stdout)["images"]] == [1]
    assert [p.name for p in (tmp_path / "o").iterdir()] == ["fat1_0.sm_90a.cubin"]


def test_extract_list_writes_nothing(library: Path, tmp_path: Path) -> None:
    done = xtrace("extract", library, "--list")
    assert done.exit_code == 0
    assert "second_of_two" in done.stdout
    assert "compute_90" in done.stdout
    assert list(tmp_path.iterdir()) == [library]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--list", "--arch", "sm_75"), "XT1208"),
        (("--list", "--kernel", "nothing"), "XT1208"),
        (("--list", "--kernel", "("), "XT7010"),
        ((), "XT7000"),
    ],
)
def test_extract_explains_requests_that_cannot_be_met(library: Path, arguments: tuple[str, ...], code: str) -> None:
    done = xtrace("extract", library, *arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error[{code}]")
    assert done.stderr.count("\n") == 1


def test_extract_of_a_file_without_images(tmp_path: Path) -> None:
    plain = tmp_path / "plain.so"
    plain.write_bytes(bytes(1000))
    done = xtrace("extract", plain, "--list")
    assert (done.exit_code, done.stderr[:14]) == (2, "error[XT1207] ")


@pytest.mark.parametrize("name", NAMES)
def test_inspect_knows_every_golden_kernel(name: str) -> None:
    done = xtrace("inspect", GOLDEN / f"{name}.cubin", "--json")
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["arch"] == "sm_90a"
    for kernel in document["kernels"]:
        assert kernel["instructions"] * 16 == kernel["code_bytes"]
        assert kernel["loops"] is not None
        assert kernel["free"]["registers_without_occupancy_loss"] >= 0


def test_inspect_shows_a_table_for_people() -> None:
    done = xtrace("inspect", GOLDEN / "two_kernels.cubin")
    assert done.exit_code == 0
    assert "first_of_two" in done.stdout
    assert "second_of_two" in done.stdout


def test_inspect_takes_a_glob_and_names_the_kernels_when_it_misses() -> None:
    done = xtrace("inspect", GOLDEN / "two_kernels.cubin", "--kernel", "first*", "--json")
    assert [k["name"] for k in json.loads(done.stdout)["kernels"]] == ["first_of_two"]
    missed = xtrace("inspect", GOLDEN / "two_kernels.cubin", "--kernel", "nope")
    assert missed.exit_code == 2
    assert "first_of_two; second_of_two" in missed.stderr or "second_of_two; first_of_two" in missed.stderr


def test_inspect_without_a_disassembler_shows_what_it_can(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XTRACE_NVDISASM", str(tmp_path / "gone"))
    done = xtrace("inspect", GOLDEN / "spin.cubin", "--json")
    assert done.exit_code == 0
    document = json.loads(done.stdout)
    assert document["not_analysed"].startswith("error[XT6001]")
    assert document["kernels"][0]["loops"] is None
    assert document["kernels"][0]["registers"] > 0


def test_inspect_refuses_what_is_no_code(tmp_path: Path) -> None:
    data = bytearray(golden("spin"))
    at = load(GOLDEN / "spin.cubin").kernels[0].offset
    data[at : at + 16] = b"\xff" * 16
    (tmp_path / "bad.cubin").write_bytes(data)
    done = xtrace("inspect", tmp_path / "bad.cubin")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error[XT2")
    assert "bad.cubin" in done.stderr
    assert done.stderr.count("\n") == 1
