"""Running the disassembler, and keeping what it said."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from xtrace.errors import BadInput, MissingTool, Unsupported
from xtrace.isa.nvidia import disasm, textcache

NOP = 0x000FC000000000000000000000007918.to_bytes(16, "little")
EXIT = 0x000FEA0003800000_000000000000794D.to_bytes(16, "little")
JUNK = b"\xff" * 16


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of words of each run of the tool."""
    calls: list[int] = []
    real = disasm._run

    def counted(tool: Path, arch: str, code: bytes, where: str) -> str:
        calls.append(len(code) // 16)
        return real(tool, arch, code, where)

    monkeypatch.setattr(disasm, "_run", counted)
    return calls


def test_texts_of_several_pieces_take_one_run(runs: list[int]) -> None:
    got = disasm.disassemble([NOP * 2, b"", EXIT], "sm_90a")
    assert got == [["NOP", "NOP"], [], ["EXIT"]]
    assert runs == [3]


def test_junk_is_refused_with_its_own_address() -> None:
    with pytest.raises(BadInput, match=r"XT2301.*kernel k.*0x20") as caught:
        disasm.disassemble([NOP * 2 + JUNK], "sm_90a", where="kernel k")
    assert "0x20" in caught.value.what
    with pytest.raises(BadInput) as caught:
        disasm.disassemble([NOP * 5, NOP + JUNK], "sm_90a")
    assert "at 0x10" in caught.value.what, "counted from the piece that holds it"


def test_what_was_refused_among_others_needs_no_run_to_be_refused_alone(runs: list[int]) -> None:
    bad = NOP * 7 + JUNK
    for codes, where in (([NOP, bad], "both"), ([bad], "alone"), ([EXIT, bad], "again")):
        with pytest.raises(BadInput, match=rf"{where}: no valid instruction at 0x70: .* 0x00000070"):
            disasm.disassemble(codes, "sm_90a", where=where)
    assert runs == [9]


def test_half_an_instruction_is_refused() -> None:
    with pytest.raises(BadInput, match="XT2304"):
        disasm.disassemble([NOP + b"\x00"], "sm_90a")


def test_a_named_tool_must_exist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XTRACE_NVDISASM", str(tmp_path / "nowhere"))
    with pytest.raises(MissingTool, match="XT6001"):
        disasm.disassemble([NOP], "sm_90a")


def test_without_any_tool_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("XTRACE_NVDISASM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(disasm, "_packaged", lambda: None)
    with pytest.raises(MissingTool, match="pip install nvidia-cuda-nvdisasm"):
        disasm.find_nvdisasm()


def _fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    tool = tmp_path / "nvdisasm"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("XTRACE_NVDISASM", str(tool))


def test_a_tool_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _fake(tmp_path, monkeypatch, "exec sleep 60")
    monkeypatch.setattr(disasm, "_SECONDS", 0.1)
    with pytest.raises(Unsupported, match="XT2302"):
        disasm.disassemble([NOP], "sm_90a")


def test_a_tool_that_crashes_or_babbles_is_not_believed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _fake(tmp_path, monkeypatch, "kill -SEGV $$")
    with pytest.raises(Unsupported, match="XT2302"):
        disasm.disassemble([NOP], "sm_90a")
    _fake(tmp_path, monkeypatch, "echo '/*0010*/ NOP ;'")
    with pytest.raises(BadInput, match="XT2303"):
        disasm.disassemble([NOP], "sm_90a")
    _fake(tmp_path, monkeypatch, "true")
    with pytest.raises(BadInput, match="XT2303"):
        disasm.disassemble([NOP], "sm_90a")


def test_a_second_look_needs_no_tool(runs: list[int]) -> None:
    first = disasm.disassemble([NOP, EXIT], "sm_90a")
    assert disasm.disassemble([EXIT, NOP], "sm_90a") == first[::-1]
    assert runs == [2]
    disasm.disassemble([NOP], "sm_90")  # another architecture is another question
    assert runs == [2, 1]


def test_the_cache_can_be_turned_off(runs: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XTRACE_NO_CACHE", "1")
    disasm.disassemble([NOP], "sm_90a")
    disasm.disassemble([NOP], "sm_90a")
    assert runs == [1, 1]
    assert textcache.folder() is None


@pytest.mark.parametrize("damage", [b"", b"x", b"\x00" * 200])
def test_a_damaged_entry_is_no_entry(runs: list[int], damage: bytes) -> None:
    disasm.disassemble([NOP], "sm_90a")
    where = textcache.folder()
    assert where is not None
    (entry,) = list(where.iterdir())
    entry.write_bytes(damage or entry.read_bytes()[:-1])
    assert disasm.disassemble([NOP], "sm_90a") == [["NOP"]]
    assert runs == [1, 1]
    assert disasm.disassemble([NOP], "sm_90a") == [["NOP"]]
    assert runs == [1, 1], "and it was written anew"


def test_an_entry_under_another_name_is_no_entry() -> None:
    textcache.store("a" * 64, ["NOP"])
    where = textcache.folder()
    assert where is not None
    os.rename(where / ("a" * 64), where / ("b" * 64))
    assert textcache.load("b" * 64) is None


def test_the_oldest_entries_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(textcache, "_MAX_ENTRIES", 3)
    where = textcache.folder()
    assert where is not None
    for age, name in enumerate("edcba"):
        textcache.store(name, [name])
        os.utime(where / name, (1000 + age, 1000 + age))
    textcache.store("f", ["f"])
    assert sorted(p.name for p in where.iterdir()) == ["a", "b", "f"]


def test_a_cache_that_cannot_be_written_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert disasm.disassemble([NOP], "sm_90a") == [["NOP"]]
