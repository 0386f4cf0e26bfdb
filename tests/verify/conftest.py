"""Quick disassembly for tests: a mutant differs from its parent in few words, so each word is looked up once."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from xtrace.isa.nvidia import decode, disasm
from xtrace.verify import second

_SEEN: dict[tuple[str, bytes], tuple[str, int]] = {}  # text, and the address at which the tool printed it
_ADDRESS = re.compile(r"(-?)0x([0-9a-f]+)\s*$")
_HOLDERS = ("BRA", "BSSY", "CALL", "WARPSYNC")


def _moved(text: str, old: int, new: int) -> str:
    """The text of a word with a code address as the tool prints it at another place."""
    match = _ADDRESS.search(text)
    if not match or not any(part in text for part in _HOLDERS):
        return text
    target = int(match[2], 16) * (-1 if match[1] else 1) - old + new
    return f"{text[: match.start()]}{'-' * (target < 0)}{abs(target):#x}"


def _by_word(codes: Sequence[bytes], arch: str, *, where: str = "") -> list[list[str]]:
    """The same as the real function, but asks the tool only about words it has not seen."""
    split = [[code[i : i + 16] for i in range(0, len(code), 16)] for code in codes]
    new = list(dict.fromkeys(w for words in split for w in words if (arch, w) not in _SEEN))
    if new:
        try:
            texts = disasm.disassemble([b"".join(new)], arch, where=where)[0]
        except Exception:
            return disasm.disassemble(codes, arch, where=where)
        _SEEN.update({(arch, w): (text, 16 * k) for k, (w, text) in enumerate(zip(new, texts, strict=True))})
    result, at = [], 0
    for words in split:
        texts = []
        for w in words:
            text, old = _SEEN[arch, w]
            texts.append(_moved(text, old, at))
            at += 16
        result.append(texts)
    return result


@pytest.fixture(autouse=True)
def quick_disassembly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XTRACE_NO_CACHE", "1")
    monkeypatch.setattr(decode, "disassemble", _by_word)
    monkeypatch.setattr(second, "disassemble", _by_word)
