"""Property over thousands of damaged files and every subcommand that reads one:

either the command succeeds, or it exits with 2, prints exactly one line ``error[XTnnnn] ...`` that names a place, shows
no traceback, and leaves no file behind. An internal error (XT0001) is a bug, whatever the input.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.cli.mutations import MUTATIONS, fatbin, for_architecture
from tests.trace.synthetic import KERNEL, attention
from xtrace.cli.main import cli
from xtrace.trace import decode, save

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
IMAGES = ("early_exit", "cp_async", "two_kernels", "warp_specialised", "triton_softmax", "spin")
ROUNDS = 24
PER_ROUND = 100  # 2,400 damaged files
ERROR = re.compile(r"^error\[XT[1-9]\d{3}\] \S.*\n$")

pytestmark = pytest.mark.fuzz

# {bad}: the damaged file; {good}: the undamaged one; {out}: a place where nothing may be left after an error.
IMAGE_COMMANDS = [
    ["inspect", "{bad}"],
    ["inspect", "{bad}", "--json"],
    ["plan", "{bad}", "--probes", "pp"],
    ["plan", "{bad}", "--probes", "block", "--json"],
    ["splice", "{bad}", "--probes", "sche", "-o", "{out}/x.cubin"],
    ["splice", "{bad}", "--probes", "pp", "-o", "{out}/x.cubin"],
    ["verify", "{bad}", "{good}"],
    ["verify", "{good}", "{bad}"],
    ["verify", "{good}", "{bad}", "--json"],
    ["diff", "{bad}", "{good}"],
    ["diff", "{good}", "{bad}", "--json"],
    ["extract", "{bad}", "-o", "{out}/images"],
    ["show", "{bad}"],
    ["export", "{bad}", "--format", "chrome", "-o", "{out}/x.json"],
]
LIBRARY_COMMANDS = [
    ["extract", "{bad}", "-o", "{out}/images"],
    ["extract", "{bad}", "--list", "--json"],
    ["extract", "{bad}", "--arch", "sm_90a", "--kernel", ".*", "-o", "{out}/images"],
]
TRACE_COMMANDS = [
    ["show", "{bad}"],
    ["show", "{bad}", "--json"],
    ["export", "{bad}", "--format", "perfetto", "-o", "{out}/x.pftrace"],
    ["export", "{bad}", "--format", "csv", "-o", "{out}/x.csv"],
]


def invoke(command: list[str], **paths: Path) -> Result:
    return CliRunner().invoke(cli, [word.format(**paths) for word in command], prog_name="xtrace")


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def check(result: Result, command: list[str], out: Path, success: tuple[int, ...], case: str) -> bool:
    """Whether the command succeeded; fails the test when neither success nor a clean error."""
    where = f"{' '.join(command)} on {case}: exit {result.exit_code}, stderr {result.stderr[:400]!r}"
    assert "Traceback" not in result.output + result.stderr, where
    if result.exit_code in success:
        return True
    assert result.exit_code == 2, where
    assert ERROR.match(result.stderr), where
    assert result.stdout == "", where
    assert files(out) == [], f"{where}; left behind {files(out)}"
    return False


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("originals")
    launch = attention(ctas=2, tiles=3)
    tables = decode(launch.buffer, launch.map, KERNEL, grid=launch.grid, block=launch.block)
    data = {name: (GOLDEN / f"{name}.cubin").read_bytes() for name in IMAGES}
    data["library"] = fatbin(data["early_exit"], data["two_kernels"])
    data["trace"] = save(folder / "t.xtrace", tables, launch.map, {}).read_bytes()
    return data


def clear(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()


@pytest.mark.parametrize("number", range(ROUNDS))
def test_damaged_files_are_refused_in_one_line(originals: dict[str, bytes], tmp_path: Path, number: int) -> None:
    rng = random.Random(number)
    out, bad, good = tmp_path / "out", tmp_path / "bad.bin", tmp_path / "good.bin"
    out.mkdir()
    accepted = 0
    for i in range(PER_ROUND):
        name = rng.choice(list(originals))
        commands = {"library": LIBRARY_COMMANDS, "trace": TRACE_COMMANDS}.get(name, IMAGE_COMMANDS)
        command = rng.choice(commands)
        mutation = rng.choice(list(MUTATIONS))
        good.write_bytes(originals[name])
        bad.write_bytes(MUTATIONS[mutation](originals[name], rng))
        result = invoke(command, bad=bad, good=good, out=out)
        success = (0, 1) if command[0] in ("verify", "show") else (0,)
        accepted += check(result, command, out, success, f"file {i} of round {number}, {mutation} {name}")
        clear(out)
    assert accepted < PER_ROUND / 2  # most damage is noticed


@pytest.mark.parametrize("command", IMAGE_COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    "data", [b"", b"\x7fELF", b"hello\n", b"\x00" * 4096], ids=["empty", "magic only", "text", "zeros"]
)
def test_what_is_no_image_is_refused_by_every_subcommand(tmp_path: Path, command: list[str], data: bytes) -> None:
    out, bad = tmp_path / "out", tmp_path / "bad.cubin"
    out.mkdir()
    bad.write_bytes(data)
    result = invoke(command, bad=bad, good=GOLDEN / "early_exit.cubin", out=out)
    assert not check(result, command, out, (), repr(data[:8]))
    assert "bad.cubin" in result.stderr


@pytest.mark.parametrize("command", IMAGE_COMMANDS, ids=" ".join)
def test_a_missing_file_is_named(tmp_path: Path, command: list[str]) -> None:
    result = invoke(command, bad=tmp_path / "gone.cubin", good=GOLDEN / "early_exit.cubin", out=tmp_path)
    assert not check(result, command, tmp_path, (), "a missing file")
    assert "gone.cubin" in result.stderr


@pytest.mark.parametrize("command", IMAGE_COMMANDS, ids=" ".join)
def test_a_folder_is_no_file(tmp_path: Path, command: list[str]) -> None:
    folder = tmp_path / "folder.cubin"
    folder.mkdir()
    result = invoke(command, bad=folder, good=GOLDEN / "early_exit.cubin", out=tmp_path)
    assert not check(result, command, tmp_path, (), "a folder")
    assert "folder.cubin" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "{good}", "--kernel", "nothing*"],
        ["plan", "{good}", "--kernel", "nothing*", "--probes", "pp"],
        ["plan", "{good}", "--probes", "nonsense"],
        ["plan", "{good}", "--probes", "pc:zz"],
        ["plan", "{good}", "--probes", ""],
        ["splice", "{good}", "--probes", "sche", "-o", "{out}/no/such/folder/x.cubin"],
        ["splice", "{good}", "--probes", "sche", "-o", "{good}"],
        ["splice", "{good}", "--probes", "sche", "--records", "-1", "-o", "{out}/x.cubin"],
        ["splice", "{good}", "--probes", "sche"],
        ["diff", "{good}", "{good}", "--kernel", "nothing*"],
        ["extract", "{good}", "--kernel", "(", "-o", "{out}/images"],
    ],
    ids=" ".join,
)
def test_a_bad_request_is_one_line(tmp_path: Path, arguments: list[str]) -> None:
    out, good = tmp_path / "out", tmp_path / "good.cubin"
    out.mkdir()
    good.write_bytes((GOLDEN / "cp_async.cubin").read_bytes())
    before = good.read_bytes()
    assert not check(invoke(arguments, good=good, out=out), arguments, out, (), "a bad request")
    assert good.read_bytes() == before


# What reads images; the other commands take no cubin, whatever its architecture.
CODE_COMMANDS = [c for c in IMAGE_COMMANDS if c[0] in ("inspect", "plan", "splice", "verify", "diff")]
OTHERS = [*range(70, 90, 5), 87, 100, 120, 200, 0, 255]


@pytest.mark.parametrize("image", ["early_exit", "triton_softmax"])  # both layouts of e_flags
@pytest.mark.parametrize("command", CODE_COMMANDS, ids=" ".join)
def test_another_architecture_is_refused_by_every_subcommand(tmp_path: Path, command: list[str], image: str) -> None:
    out, bad, good = tmp_path / "out", tmp_path / "bad.cubin", GOLDEN / f"{image}.cubin"
    out.mkdir()
    for sm in OTHERS:
        bad.write_bytes(for_architecture(good.read_bytes(), sm))
        result = invoke(command, bad=bad, good=good, out=out)
        assert not check(result, command, out, (), f"sm_{sm}")
        assert "bad.cubin: e_flags @0x30" in result.stderr
        assert f"sm_{sm}" in result.stderr
        assert "sm_90" in result.stderr  # what would be accepted


@pytest.mark.parametrize("command", [["verify", "{bad}", "{good}"], ["verify", "{good}", "{bad}"]], ids=" ".join)
def test_verify_wants_one_architecture(tmp_path: Path, command: list[str]) -> None:
    """sm_90 and sm_90a are two: code for one of them does not run where the other does."""
    good, bad = GOLDEN / "early_exit.cubin", tmp_path / "bad.cubin"
    bad.write_bytes(good.read_bytes().replace(b"sm_90a", b"sm_90 "))
    out = tmp_path / "out"
    out.mkdir()
    command = [*command, "--certificate", "{out}/c.json"]
    result = invoke(command, bad=bad, good=good, out=out)
    assert not check(result, command, out, (), "sm_90 against sm_90a")
    assert "sm_90a" in result.stderr


@pytest.mark.parametrize("command", IMAGE_COMMANDS, ids=" ".join)
@pytest.mark.parametrize("version", [0, 2, 255])
def test_another_elf_version_is_refused_by_every_subcommand(tmp_path: Path, command: list[str], version: int) -> None:
    out, bad = tmp_path / "out", tmp_path / "bad.cubin"
    out.mkdir()
    data = bytearray((GOLDEN / "early_exit.cubin").read_bytes())
    data[6] = version
    bad.write_bytes(data)
    result = invoke(command, bad=bad, good=GOLDEN / "early_exit.cubin", out=out)
    assert not check(result, command, out, (), f"ELF version {version}")
    assert "bad.cubin" in result.stderr


@pytest.mark.parametrize("entry", [75, 80, 100])
def test_extract_refuses_an_architecture_that_the_library_does_not_have(tmp_path: Path, entry: int) -> None:
    out, bad = tmp_path / "out", tmp_path / "bad.so"
    out.mkdir()
    bad.write_bytes(fatbin(for_architecture((GOLDEN / "early_exit.cubin").read_bytes(), entry), sm=entry))
    command = ["extract", "{bad}", "--arch", "sm_90a", "-o", "{out}/images"]
    result = invoke(command, bad=bad, out=out)
    assert not check(result, command, out, (), f"a library for sm_{entry}")
    assert f"sm_{entry}" in result.stderr


def test_extract_refuses_an_image_that_is_not_for_the_architecture_it_is_listed_under(tmp_path: Path) -> None:
    """And takes back what it wrote before it came to that image."""
    out, bad, good = tmp_path / "out", tmp_path / "bad.so", (GOLDEN / "early_exit.cubin").read_bytes()
    out.mkdir()
    bad.write_bytes(fatbin(good, for_architecture(good, 80)))
    command = ["extract", "{bad}", "--arch", "sm_90a", "-o", "{out}/images"]
    result = invoke(command, bad=bad, out=out)
    assert not check(result, command, out, (), "sm_80 code listed as sm_90a")
    assert "fatbin 0 entry 1" in result.stderr
