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

from tests.cli.mutations import MUTATIONS, fatbin
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


# Not `verify ORIGINAL TRACED`: a traced image that claims another architecture is a broken promise (exit 1).
CODE_COMMANDS = [
    c for c in IMAGE_COMMANDS if c[0] in ("plan", "splice", "verify", "diff") and c[:2] != ["verify", "{good}"]
]


@pytest.mark.parametrize("sm", [70, 80, 100, 120])
@pytest.mark.parametrize("command", CODE_COMMANDS, ids=" ".join)
def test_another_architecture_is_refused_where_code_is_read(tmp_path: Path, command: list[str], sm: int) -> None:
    out, bad = tmp_path / "out", tmp_path / "bad.cubin"
    out.mkdir()
    data = bytearray((GOLDEN / "early_exit.cubin").read_bytes())
    data[49] = sm  # architecture number in e_flags of the newer layout
    bad.write_bytes(data)
    result = invoke(command, bad=bad, good=GOLDEN / "early_exit.cubin", out=out)
    assert not check(result, command, out, (), f"sm_{sm}")
    assert "sm_" in result.stderr
