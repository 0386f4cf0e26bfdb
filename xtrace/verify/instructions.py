"""Promise ``instructions``: every original instruction is there, in order, bit for bit.

Three looks at the same question: word by word through the alignment, as a subsequence without any map, and as text
from a second decode of the traced kernel.
"""

from __future__ import annotations

from xtrace.isa.model import Instruction
from xtrace.verify.align import subsequence
from xtrace.verify.certificate import Promise
from xtrace.verify.pair import IMMEDIATE, Pair, literal_keys, masked_word, plain_text

__all__ = ["check"]

_CONTROL = 105  # first scheduling bit of a word


def check(pair: Pair) -> None:
    """Compare the words and the disassembly of both kernels; fills the counts of ``pair``."""
    _words(pair)
    _without_map(pair)
    _padding(pair)
    if pair.claim is not None:
        _claims(pair)


def _words(pair: Pair) -> None:
    counts = pair.counts
    counts.instructions = len(pair.original.code)
    for old, j in zip(pair.original.code, pair.align.position, strict=True):
        new = pair.output.code[j]
        difference = old.word ^ new.word
        if (old.word ^ new.word) >> _CONTROL:
            counts.control_changed += 1
        if not difference:
            counts.identical += 1
        elif not difference & ~_movable_bits(pair, old):
            counts.retargeted += 1
        else:
            bits = [b for b in range(128) if difference >> b & 1]
            field = "scheduling bits" if difference >> _CONTROL else "bits"
            pair.fail(
                Promise.INSTRUCTIONS,
                f"differs from original pc {old.pc:#x} `{old.text}` in {field} {bits[:6]}{'...' * (len(bits) > 6)}",
                new,
            )
            continue
        if plain_text(old) != plain_text(new) and old.index not in pair.literals:
            pair.fail(Promise.INSTRUCTIONS, f"disassembles differently from original `{old.text}`", new)
    counts.probe_words = pair.align.words - counts.instructions - len(pair.align.padding) - len(pair.align.copy)
    counts.padding_words = len(pair.align.padding)
    counts.copied_words = len(pair.align.copy)


def _movable_bits(pair: Pair, ins: Instruction) -> int:
    """Bits that may differ because code moved; whether they differ rightly is the promise ``targets``."""
    return pair.isa.code_field_mask(ins.word) | (IMMEDIATE if ins.index in pair.literals else 0)


def _without_map(pair: Pair) -> None:
    """The original, code addresses blanked, must be a subsequence of the traced kernel."""
    keys = literal_keys(pair.original.code, pair.literals)
    needle = [masked_word(ins.word, pair.isa, keys) for ins in pair.original.code]
    traced = pair.output.code[pair.align.copy.stop :]
    hay = [masked_word(ins.word, pair.isa, keys) for ins in traced]
    found = subsequence(needle, hay)
    if found < len(needle):
        lost = pair.original.code[found]
        why = f"not in the traced kernel at its place in the order ({found} of {len(needle)} found before it)"
        pair.fail(Promise.INSTRUCTIONS, why, lost, side="original")


def _padding(pair: Pair) -> None:
    """Only harmless filler that nothing reaches may stand behind the last original instruction."""
    padding = pair.align.padding
    if len(padding) * pair.word_bytes >= 128:
        pair.fail(Promise.INSTRUCTIONS, f"{len(padding)} words behind the last original instruction")
    reachable = pair.output.reachable()
    for j in padding:
        ins = pair.output.code[j]
        if reachable[j]:
            pair.fail(Promise.INSTRUCTIONS, "word behind the last original instruction can be executed", ins)
        elif ins.base not in ("NOP", "BRA", "EXIT"):
            pair.fail(Promise.INSTRUCTIONS, "unknown filler behind the last original instruction", ins)


def _claims(pair: Pair) -> None:
    """What the map says about instructions and sites must be what the files hold."""
    claim = pair.claim or {}
    numbers = claim.get("instructions") or {}
    actual = {"before": len(pair.original.code), "after": len(pair.output.code)}
    for key, value in actual.items():
        # Padding may or may not be counted as instructions of the traced kernel.
        allowed = (value, value - len(pair.align.padding)) if key == "after" else (value,)
        if key in numbers and numbers[key] not in allowed:
            pair.fail(Promise.INSTRUCTIONS, f"map says {numbers[key]} instructions {key}, the file has {value}")
    islands = {pair.original.code[i].pc for i, _ in pair.align.islands()}
    for site in claim.get("sites") or ():
        pc, place = site["pc"], site.get("at", site["pc"])  # an address may be read behind its access
        if place not in islands or not 0 <= pc // pair.word_bytes < len(pair.original.code):
            pair.fail(Promise.INSTRUCTIONS, f"map lists a site at original pc {place:#x} that has no island")
            continue
        ins = pair.original.code[pc // pair.word_bytes]
        if site.get("op") not in (None, ins.opcode, ins.base):
            pair.fail(
                Promise.INSTRUCTIONS, f"map calls the instruction at this site {site['op']!r}", ins, side="original"
            )
