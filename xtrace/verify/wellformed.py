"""Promise ``wellformed``: the traced file is a sound ELF image, and nothing changed that growth does not explain."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import pairwise

from xtrace.image import elf
from xtrace.image.cubin import Image
from xtrace.image.elf import Section
from xtrace.verify.certificate import Findings, Promise
from xtrace.verify.debug import FRAMES, LINES, relocated_ranges

__all__ = ["check_contents", "check_layout"]

_WELLFORMED = Promise.WELLFORMED
_TEXT_MULTIPLE = 128
_MOVING_HEADER = ((32, 48),)  # bytes of the ELF header that hold e_phoff and e_shoff
Fail = Callable[[str], None]


def _parts(image: Image) -> list[tuple[int, int, str]]:
    """(start, end, name) of everything in the file, by start."""
    header = image.header
    parts = [(0, elf.EHDR.size, "the ELF header")]
    parts.append((header.shoff, header.shoff + header.shnum * elf.SHDR.size, "the section table"))
    if header.phnum:
        parts.append((header.phoff, header.phoff + header.phnum * elf.PHDR.size, "the program headers"))
    parts += [(s.offset, s.end, s.name[:60]) for s in image.sections if s.file_size]
    return sorted(parts)


def check_layout(image: Image, findings: Findings) -> None:
    """Bounds, overlaps, alignment, sizes, symbol ranges and program headers of one file, on its own."""

    def fail(why: str) -> None:
        findings.fail(_WELLFORMED, "", why)

    parts = _parts(image)
    for (_, end, what), (following, _, other) in pairwise(parts):
        if end > following:
            fail(f"{what} and {other} share the bytes from {following:#x}")
    for _, end, what in parts:
        if end > len(image.data):
            fail(f"{what} ends at {end:#x}, behind the end of the file")
    for s in image.sections:
        if s.file_size and s.align > 1 and s.offset % s.align:
            fail(f"section {s.name[:60]} at {s.offset:#x} is not aligned to {s.align}")
        if s.flags & elf.SHF_EXECINSTR and s.size % _TEXT_MULTIPLE:
            fail(f"code section {s.name[:60]} has {s.size:#x} bytes, not a multiple of {_TEXT_MULTIPLE}")
    for symbol in image.symbols:
        if 0 < symbol.section < len(image.sections):
            room = image.sections[symbol.section].size
            if symbol.value > room or symbol.value + symbol.size > room:
                fail(f"symbol {symbol.name[:60]!r} reaches beyond its section")


def _same_header(before: Image, after: Image, fail: Fail) -> None:
    old, new = bytearray(before.data[: elf.EHDR.size]), bytearray(after.data[: elf.EHDR.size])
    for start, end in _MOVING_HEADER:
        old[start:end] = new[start:end] = b""
    if old != new:
        fail("the ELF header changed in more than the places of its tables")


def check_contents(before: Image, after: Image, edited: Collection[int], findings: Findings) -> None:
    """Everything that moved code does not explain must be byte-identical.

    ``edited`` holds the numbers of the text sections whose code changed; their code, attributes, symbols and tables are
    checked elsewhere.
    """

    def fail(why: str) -> None:
        findings.fail(_WELLFORMED, "", why)

    _same_header(before, after, fail)
    if len(before.sections) != len(after.sections):
        fail(f"{len(after.sections)} sections instead of {len(before.sections)}")
        return
    kernels = {k.name for k in before.kernels if k.section in edited}
    for old, new in zip(before.sections, after.sections, strict=True):
        _section(before, after, old, new, edited, kernels, fail)
    _segments(before, after, fail)
    _gaps(before, after, fail)


def _section(
    before: Image, after: Image, old: Section, new: Section, edited: Collection[int], kernels: set[str], fail: Fail
) -> None:
    label = old.name[:60] or f"section {old.index}"
    info = old.info == new.info or (old.index in edited and not (old.info ^ new.info) & 0xFFFFFF)
    same = ("name", "type", "flags", "addr", "link", "align", "entsize")
    changed = [k for k in same if getattr(old, k) != getattr(new, k)] + ([] if info else ["info"])
    if changed:
        fail(f"section {label} changed its {', '.join(changed)}")
    moves = bool(edited)
    may_grow = old.index in edited or (moves and old.name in LINES)
    may_grow |= old.name.startswith(".nv.info.") and old.name[len(".nv.info.") :] in kernels  # lists name a copy, too
    if old.size != new.size and (not may_grow or (new.size < old.size and old.index in edited)):
        fail(f"section {label} has {new.size:#x} bytes instead of {old.size:#x}")
        return
    checked_elsewhere = (
        old.index in edited
        or (moves and old.name in (*LINES, *FRAMES, ".nv.info"))
        or (old.name.startswith((".nv.info.", ".nv.constant2.")) and old.name.split(".", 3)[-1] in kernels)
        or (moves and old.type in (elf.SHT_REL, elf.SHT_RELA))
    )
    if checked_elsewhere:
        return
    a, b = bytearray(before.content(old)), bytearray(after.content(new))
    if a == b:
        return
    if moves and old.type == elf.SHT_SYMTAB:
        for at in range(0, len(a), elf.SYM.size):  # values and sizes are compared with the moved code
            a[at + 8 : at + 24] = b[at + 8 : at + 24] = bytes(16)
    elif moves and old.name.startswith(".debug_"):
        for at in relocated_ranges(before, old.index):
            a[at : at + 8] = b[at : at + 8] = bytes(8)
    if a != b:
        at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        fail(f"section {label} differs at byte {at:#x} without a reason")


def _segments(before: Image, after: Image, fail: Fail) -> None:
    """Program headers cover the same sections as before, and nothing else of them changed."""
    old, new = (_program_headers(image) for image in (before, after))
    if len(old) != len(new):
        fail(f"{len(new)} program headers instead of {len(old)}")
        return
    for i, (a, b) in enumerate(zip(old, new, strict=True)):
        kind, flags, offset, vaddr, paddr, filesz, memsz, align = a
        if (kind, flags, vaddr, paddr, align) != (b[0], b[1], b[3], b[4], b[7]):
            fail(f"program header {i} changed in more than its extent")
        if b[2] + b[5] > len(after.data) or (b[7] > 1 and b[2] % 8):
            fail(f"program header {i} reaches beyond the file or is not aligned")
        if _covered(before, offset, filesz) != _covered(after, b[2], b[5]):
            fail(f"program header {i} covers other sections than before")
        wanted = memsz - filesz + b[5]
        if filesz and b[6] != wanted:
            fail(f"program header {i} has memory size {b[6]:#x}, expected {wanted:#x}")


def _program_headers(image: Image) -> list[tuple[int, ...]]:
    header = image.header
    return [elf.PHDR.unpack_from(image.data, header.phoff + i * elf.PHDR.size) for i in range(header.phnum)]


def _covered(image: Image, offset: int, size: int) -> tuple[object, ...]:
    """What a range of the file contains: sections, wholly or partly, and whether it begins or ends with one."""
    end = offset + size
    inside = [p for p in _parts(image) if p[0] < end and p[1] > offset] if size else []
    edges = (inside[0][0] - offset == 0, inside[-1][1] <= end) if inside else ()
    return (tuple(name for _, _, name in inside), edges)


def _gaps(before: Image, after: Image, fail: Fail) -> None:
    """Bytes between the parts of the file: those of the original, and zeros behind them."""
    old, new = (_gap_list(image) for image in (before, after))
    if [name for name, _ in old] != [name for name, _ in new]:
        fail("the parts of the file are in another order")
        return
    for (name, a), (_, b) in zip(old, new, strict=True):
        common = min(len(a), len(b))
        if a[:common] != b[:common] or any(a[common:]) or any(b[common:]):
            fail(f"bytes behind {name} belong to no section and changed")


def _gap_list(image: Image) -> list[tuple[str, bytes]]:
    parts = _parts(image)
    ends = [*(p[0] for p in parts[1:]), len(image.data)]
    return [
        (name, image.data[end : max(end, following)]) for (_, end, name), following in zip(parts, ends, strict=True)
    ]
