"""Growing kernels without a splicer: filler words in front of chosen instructions, branches left as they are.

What comes out is no working kernel, but every table can be checked on it: the word an offset names is the same before
and after, whatever maps the writer was given.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from pathlib import Path

from xtrace.image import CodeEdit, Kernel

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
IMAGES = sorted(GOLDEN.glob("*.cubin"))
NAMES = [path.stem for path in IMAGES]
WORD = 16
#: A word that no compiler makes: NOP with a payload in unused bits.
FILLER = struct.pack("<QQ", 0x7918 | 0xF111E4 << 32, 0x000FC00000000000)


def golden(name: str) -> bytes:
    return (GOLDEN / f"{name}.cubin").read_bytes()


def grow(kernel: Kernel, islands: dict[int, int], more_registers: int = 0) -> CodeEdit:
    """An edit that puts ``islands[pc]`` filler words in front of the instruction at ``pc``."""
    pcs = sorted(islands)
    totals = [0]
    for pc in pcs:
        totals.append(totals[-1] + WORD * islands[pc])
    text = b"".join(
        FILLER * islands.get(pc, 0) + kernel.text[pc : pc + WORD] for pc in range(0, len(kernel.text), WORD)
    )
    return CodeEdit(
        kernel.name,
        text,
        min(kernel.registers + more_registers, 255),
        lambda old: old + totals[bisect_right(pcs, old)],
        lambda old: old + totals[bisect_left(pcs, old)],
    )


def arrives_at(text: bytes, offset: int) -> bytes:
    """The first original word that control reaches from ``offset``, which must not lie behind filler words."""
    assert offset == 0 or text[offset - WORD : offset] != FILLER
    while text[offset : offset + WORD] == FILLER:
        offset += WORD
    return text[offset : offset + WORD]
