"""Quick disassembly for tests: a mutant differs from its parent in few words, so each word is looked up once."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from xtrace.isa.nvidia import decode, disasm

# A branch that stands alone may go to before the start; its caller replaces the address anyway.
_BACKWARDS = re.compile(r"((?:BRA|BSSY|CALL|WARPSYNC).* )-(0x[0-9a-f]+)$")
_TEXTS: dict[tuple[str, bytes], str] = {}


def _by_word(codes: Sequence[bytes], arch: str, *, where: str = "") -> list[list[str]]:
    """The same as the real function, but asks the tool only about words it has not seen (a word decodes the same
    anywhere; callers do not rely on code addresses in the texts)."""
    split = [[code[i : i + 16] for i in range(0, len(code), 16)] for code in codes]
    new = list(dict.fromkeys(w for words in split for w in words if (arch, w) not in _TEXTS))
    if new:
        try:
            texts = disasm.disassemble([b"".join(new)], arch, where=where)[0]
        except Exception:
            return disasm.disassemble(codes, arch, where=where)
        _TEXTS.update(zip(((arch, w) for w in new), (_BACKWARDS.sub(r"\1\2", t) for t in texts), strict=True))
    return [[_TEXTS[arch, w] for w in words] for words in split]


@pytest.fixture(autouse=True)
def quick_disassembly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XTRACE_NO_CACHE", "1")
    monkeypatch.setattr(decode, "disassemble", _by_word)
