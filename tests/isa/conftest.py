"""Fixtures of the instruction-set tests. The disassembly cache of the user is never touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from xtrace import image, isa
from xtrace.isa.model import Instruction
from xtrace.isa.nvidia.decode import NvidiaIsa

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
NOP = 0x000FC000000000000000000000007918


@pytest.fixture(autouse=True)
def _private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("XTRACE_NO_CACHE", raising=False)


@pytest.fixture(scope="session")
def hopper() -> NvidiaIsa:
    found = isa.for_arch("sm_90a")
    assert isinstance(found, NvidiaIsa)
    return found


@pytest.fixture(scope="session")
def decoded(hopper: NvidiaIsa) -> dict[str, tuple[Instruction, ...]]:
    """Every kernel of every golden image, decoded: "image/kernel" -> instructions."""
    patch = pytest.MonkeyPatch()
    patch.setenv("XTRACE_NO_CACHE", "1")
    kernels = {
        f"{path.stem}/{kernel.name}": kernel.text
        for path in sorted(GOLDEN.glob("*.cubin"))
        for kernel in image.load(path).kernels
    }
    result = dict(zip(kernels, hopper.decode_many(list(kernels.values())), strict=True))
    patch.undo()
    assert len(result) > 10
    return result


@pytest.fixture(scope="session")
def read(hopper: NvidiaIsa) -> Callable[..., Instruction]:
    """An instruction from its text; the word is a NOP's unless given."""

    def make(text: str, word: int = NOP) -> Instruction:
        return hopper.instruction(0, word, text)

    return make
