"""Quick disassembly for tests that look at many damaged copies of a few kernels.

A start of the tool takes a third of a second, whatever it reads. A mutant differs from its parent in few words, so each
word is looked up once, and the new words of many mutants in one run (:func:`prime`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import pytest

from xtrace.errors import XtraceError
from xtrace.isa.nvidia import decode, disasm
from xtrace.verify import second

__all__ = ["by_word", "prime", "use"]

_SEEN: dict[tuple[str, bytes], tuple[str, int]] = {}  # text, and the address at which the tool printed it
_REJECTED: set[tuple[str, bytes]] = set()
_ADDRESS = re.compile(r"(-?)0x([0-9a-f]+)\s*$")
_HOLDERS = ("BRA", "BSSY", "CALL", "WARPSYNC")


def _words(code: bytes) -> list[bytes]:
    return [code[i : i + disasm.WORD_BYTES] for i in range(0, len(code), disasm.WORD_BYTES)]


def _moved(text: str, old: int, new: int) -> str:
    """The text of a word with a code address as the tool prints it at another place."""
    match = _ADDRESS.search(text)
    if not match or not any(part in text for part in _HOLDERS):
        return text
    target = int(match[2], 16) * (-1 if match[1] else 1) - old + new
    return f"{text[: match.start()]}{'-' * (target < 0)}{abs(target):#x}"


def prime(codes: Iterable[bytes], arch: str, *, rejections: int | None = None) -> None:
    """Look up all words of these pieces of code that were not seen before, with as few runs as can be.

    A run finds one word that is no instruction at most. After so many ``rejections`` it is left at that.
    """
    distinct = dict.fromkeys(w for code in codes for w in _words(code) if len(w) == disasm.WORD_BYTES)
    new = [w for w in distinct if (arch, w) not in _SEEN and (arch, w) not in _REJECTED]
    rejected = 0
    while new and rejected != rejections:
        try:
            texts = disasm.disassemble([b"".join(new)], arch)[0]
        except XtraceError as error:
            address = getattr(error, "address", None)
            if address is None:
                return  # not about one word: whoever asks for this code will hear it
            _REJECTED.add((arch, new.pop(address // disasm.WORD_BYTES)))
            rejected += 1
            continue
        _SEEN.update({(arch, w): (text, 16 * k) for k, (w, text) in enumerate(zip(new, texts, strict=True))})
        return


def by_word(codes: Sequence[bytes], arch: str, *, where: str = "") -> list[list[str]]:
    """The same as the real function, but asks the tool only about words it has not seen."""
    prime(codes, arch, rejections=1)
    result, at = [], 0
    for code in codes:
        if any((arch, w) in _REJECTED for w in _words(code)):
            disasm.disassemble([code], arch, where=where)  # to be refused with the right address
        known = [_SEEN.get((arch, w)) for w in _words(code)]
        if None in known:
            return disasm.disassemble(codes, arch, where=where)
        result.append([_moved(text, old, at + 16 * k) for k, (text, old) in enumerate(filter(None, known))])
        at += len(code)
    return result


def use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of the real function, for one test."""
    monkeypatch.setenv("XTRACE_NO_CACHE", "1")
    monkeypatch.setattr(decode, "disassemble", by_word)
    monkeypatch.setattr(second, "disassemble", by_word)
