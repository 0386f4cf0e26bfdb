"""``xtrace diff`` on real images: the keys scripts rely on, the map beside a traced image, clear refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from xtrace.cli.main import cli
from xtrace.image import load, rewrite
from xtrace.image.writer import CodeEdit

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
TWO = GOLDEN / "two_kernels.cubin"
KEYS = {"name", "instructions", "inserted", "strict", "relocated", "operands", "form", "opcode", "changed_blocks"}


def diff(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["diff", *map(str, arguments)], prog_name="xtrace")


def kernels(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    rows: list[dict[str, Any]] = json.loads(result.stdout)["kernels"]
    return rows


def with_nops(path: Path, target: Path, *, at: int = 16, fix_branches: bool = True) -> Path:
    """A copy of an image with a NOP in front of the instruction at ``at`` of each kernel, and no map."""
    from xtrace.isa import for_arch

    image = load(path)
    isa = for_arch(image.arch)
    edits = []
    for kernel in image.kernels:
        code = isa.decode(kernel.text)
        nop = next(i.word for i in code if i.opcode == "NOP")
        words = []
        for ins in code:
            word, new_pc = ins.word, ins.pc + (16 if ins.pc >= at else 0)
            if isa.code_field_mask(word) and fix_branches:
                goal = None if ins.target is None else ins.target + (16 if ins.target > at else 0)
                word = isa.retarget(word, ins.pc, new_pc, goal)
            words += [nop, word] if ins.pc == at else [word]
        text = b"".join(w.to_bytes(16, "little") for w in words)
        edits.append(
            CodeEdit(
                kernel.name,
                text,
                kernel.registers,
                lambda p: p + (16 if p >= at else 0),
                lambda p: p + (16 if p > at else 0),
            )
        )
    target.write_bytes(rewrite(image, edits))
    return target


def test_an_image_is_wholly_preserved_in_itself() -> None:
    rows = kernels(diff(TWO, TWO, "--json"))
    assert len(rows) == 2
    for row in rows:
        assert set(row) >= KEYS
        assert [row[level] for level in ("strict", "relocated", "operands", "form", "opcode")] == [1.0] * 5
        assert (row["inserted"], row["changed_blocks"]) == (0, 0)


@pytest.mark.parametrize("image", ["two_kernels", "brx_table", "call_rel", "divergent", "early_exit", "triton_softmax"])
def test_moved_code_is_relocated_without_a_map(image: str, tmp_path: Path) -> None:
    for row in kernels(diff(GOLDEN / f"{image}.cubin", with_nops(GOLDEN / f"{image}.cubin", tmp_path / "o"), "--json")):
        assert row["relocated"] == 1.0
        assert (row["inserted"], row["changed_blocks"], row["method"]) == (1, 0, "lcs")


def test_branches_that_were_not_brought_along_are_misdirected(tmp_path: Path) -> None:
    """Their bits are all equal, so they count as preserved; but they lead elsewhere now, and that is said."""
    image = GOLDEN / "divergent.cubin"
    assert kernels(diff(image, with_nops(image, tmp_path / "good"), "--json"))[0]["misdirected"] == 0
    edits = with_nops(image, tmp_path / "bad", at=0x100, fix_branches=False)
    assert kernels(diff(image, edits, "--json"))[0]["misdirected"] > 0


def test_a_glob_selects_kernels() -> None:
    name = load(TWO).kernels[0].name
    assert [row["name"] for row in kernels(diff(TWO, TWO, "--kernel", name, "--json"))] == [name]
    nothing = diff(TWO, TWO, "--kernel", "nothing*")
    assert nothing.exit_code == 2
    assert nothing.stderr.count("\n") == 1


def test_the_table_names_levels_and_fits_80_columns() -> None:
    result = diff(TWO, TWO)
    assert result.exit_code == 0
    for word in ("strict", "reloc.", "oper.", "form", "opcode", "blocks", "control", "longest common subsequence"):
        assert word in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_other_kernels_or_architectures_or_maps_are_refused(tmp_path: Path) -> None:
    missing = diff(TWO, GOLDEN / "brx_table.cubin")
    assert missing.exit_code == 2
    assert "XT4202" in missing.stderr
    wrong = tmp_path / "m.json"
    wrong.write_text('{"schema": "xtrace/map/2", "input": {"sha256": "0"}, "output": {"sha256": "0"}, "kernels": []}')
    refused = diff(TWO, TWO, "--map", wrong)
    assert refused.exit_code == 2
    assert "XT4204" in refused.stderr


def test_a_map_of_other_files_beside_the_image_is_not_used(tmp_path: Path) -> None:
    copy = tmp_path / "copy.cubin"
    copy.write_bytes(TWO.read_bytes())
    (tmp_path / "copy.cubin.map.json").write_text('{"schema": "xtrace/map/2"}')
    result = diff(TWO, copy, "--json")
    assert kernels(result)[0]["method"] == "lcs"
    assert "written for other files" in result.stderr


def test_the_map_beside_a_traced_image_is_used(tmp_path: Path) -> None:
    out = tmp_path / "traced.cubin"
    image = GOLDEN / "early_exit.cubin"
    arguments = ["splice", str(image), "--kernel", "*", "--probes", "entry", "-o", str(out)]
    spliced = CliRunner().invoke(cli, arguments, prog_name="xtrace")
    assert spliced.exit_code == 0, spliced.output
    by_map = kernels(diff(image, out, "--json"))
    assert {row["method"] for row in by_map} == {"map"}
    (tmp_path / "traced.cubin.map.json").unlink()
    by_lcs = kernels(diff(image, out, "--json"))
    for exact, found in zip(by_map, by_lcs, strict=True):
        assert exact["relocated"] == found["relocated"] == 1.0
        assert exact["strict"] == found["strict"]
        assert exact["inserted"] == found["inserted"] > 0
