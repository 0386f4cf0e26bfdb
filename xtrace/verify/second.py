"""A second opinion on code addresses: what the vendor's disassembler prints for a word.

The splicer and the first check of a target share one table of where words hold addresses. A wrong entry there would
deceive both, so each address is also read off the disassembly of the bare words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from xtrace.errors import XtraceError
from xtrace.isa.nvidia.disasm import WORD_BYTES, disassemble

__all__ = ["printed_distances"]

_PRINTED = re.compile(r"(-?)0x([0-9a-f]+)\s*$")


def printed_distances(words: Iterable[int], arch: str, also: Sequence[bytes] = ()) -> dict[int, int] | None:
    """Bytes from the next instruction to the printed target, by word; words without a printed address are absent.

    ``None`` where the disassembler has no opinion (another vendor, not decodable). ``also`` is code that will be asked
    about next: reading it in the same run spares a start of the tool, whose texts are kept.
    """
    distinct = sorted(set(words))
    if not distinct:
        return {}
    if not arch.startswith("sm_"):
        return None
    code = b"".join(word.to_bytes(WORD_BYTES, "little") for word in distinct)
    texts: list[str] | None = None
    for more in (also, ()):
        try:
            texts = disassemble([code, *more], arch, where="second opinion")[0]
            break
        except XtraceError:
            continue  # something in the other code is no code: that is reported where it is decoded
    if texts is None:
        return None
    found = {}
    for k, (word, text) in enumerate(zip(distinct, texts, strict=True)):
        if match := _PRINTED.search(text):
            target = int(match[2], 16) * (-1 if match[1] else 1)
            found[word] = target - (k + 1) * WORD_BYTES
    return found
