"""Attributes and jump tables of a kernel whose code moved."""

from __future__ import annotations

import struct

from xtrace.errors import BadInput, Unsupported
from xtrace.image import eiattr
from xtrace.image.cubin import Image, Kernel
from xtrace.image.eiattr import Carries, attribute_name
from xtrace.image.elf import Section, place
from xtrace.image.info import NO_VALUE, SIZED, InfoRecord, u32s
from xtrace.image.moves import Move

__all__ = ["branch_tables", "move_attributes", "move_jump_tables"]

SPILL_OR_REFILL = 1
MAX_BANK = 1 << 16  # bytes of a constant bank
#: First word and stride, in words, of the instruction offsets in a payload.
_STRIDES = {
    Carries.OFFSETS: (0, 1),
    Carries.PAIRS_FIRST: (0, 2),
    Carries.PAIRS_SECOND: (1, 2),
    Carries.QUADS_FIRST: (0, 4),
}


def move_attributes(image: Image, kernel: Kernel, move: Move, target: tuple[Section, bytearray] | None) -> None:
    """Update the instruction offsets in the kernel's ``.nv.info`` in place.

    Raises ``Unsupported`` XT1102 for an attribute that may hold offsets in a way that is not understood.
    """
    if target is None:
        return
    section, content = target
    for record in kernel.info:
        kind = eiattr.CARRIES.get(record.attr, Carries.UNKNOWN)
        if kind in (Carries.NOTHING, Carries.REGISTERS) or record.fmt == NO_VALUE:
            continue
        where, name = place(image.name, section.name), attribute_name(record.attr)
        if kind is Carries.UNKNOWN:
            hint = "this version cannot move code past it; please report the image"
            raise Unsupported(
                "XT1102", f"attribute {name} may hold code offsets", where=f"{where} @{record.offset:#x}", hint=hint
            )
        if kind is Carries.BRANCHES:
            words = _moved_branches(record, move, where)
        else:
            words = _moved_offsets(record, kind, move, where)
        struct.pack_into(f"<{len(words)}I", content, record.payload_offset - section.offset, *words)
    if move.copy is not None:
        content[:] = _with_copies(kernel, move, section, content, place(image.name, section.name))


def _with_copies(kernel: Kernel, move: Move, section: Section, content: bytearray, where: str) -> bytes:
    """The attributes, each list of instructions continued with those of the copy."""
    out, done = bytearray(), 0
    for record in kernel.info:
        stride = _STRIDES.get(eiattr.CARRIES.get(record.attr, Carries.UNKNOWN))
        name = attribute_name(record.attr)
        if eiattr.CARRIES.get(record.attr) is Carries.BRANCHES and record.payload:
            raise Unsupported("XT1110", f"{name}: both copies of the code would jump through one table", where=where)
        if stride is None or record.fmt != SIZED:
            continue
        words = list(u32s(record, where, stride[1]))
        for i in range(stride[0], len(words), stride[1]):
            words[i] = move.copied(words[i], name)
        size = len(record.payload) * 2
        if size >= 1 << 16:
            raise Unsupported("XT1110", f"{name}: the list is too long to name a second copy of the code", where=where)
        end = record.payload_offset + len(record.payload) - section.offset
        out += content[done:end]
        struct.pack_into("<H", out, len(out) - len(record.payload) - 2, size)
        out += struct.pack(f"<{len(words)}I", *words)
        done = end
    return bytes(out + content[done:])


def _moved_offsets(record: InfoRecord, kind: Carries, move: Move, where: str) -> list[int]:
    first, stride = _STRIDES[kind]
    words = list(u32s(record, where, stride))
    name = attribute_name(record.attr)
    if kind is Carries.PAIRS_SECOND and any(k != SPILL_OR_REFILL for k in words[0::2]):
        raise Unsupported("XT1102", f"attribute {name} has an unknown kind of record", where=where)
    for i in range(first, len(words), stride):
        words[i] = move.instr(words[i], name)
    return words


def branch_tables(record: InfoRecord, where: str) -> list[tuple[int, tuple[int, ...]]]:
    """(offset of the indirect branch, its targets in table order). Raises ``BadInput`` XT1010."""
    words, at = u32s(record, where), 0
    tables = []
    while at < len(words):
        if at + 3 > len(words) or words[at + 1] or at + 3 + words[at + 2] > len(words):
            what = f"{attribute_name(record.attr)} is malformed"
            raise BadInput("XT1010", what, where=f"{where} @{record.offset:#x}")
        count = words[at + 2]
        tables.append((words[at], words[at + 3 : at + 3 + count]))
        at += 3 + count
    return tables


def _moved_branches(record: InfoRecord, move: Move, where: str) -> list[int]:
    name = attribute_name(record.attr)
    words: list[int] = []
    for branch, targets in branch_tables(record, where):
        words += [move.instr(branch, name), 0, len(targets), *(move.target(t, name) for t in targets)]
    return words


def move_jump_tables(image: Image, kernel: Kernel, move: Move, target: tuple[Section, bytearray] | None) -> None:
    """Update the tables that indirect branches read, in constant bank 2, in place.

    Every list of targets in INDIRECT_BRANCH_TARGETS must be found as a whole in the bank. What is left must not look
    like a code offset. Raises ``Unsupported`` XT1104 otherwise: a table half understood sends the GPU astray.
    """
    lists = []
    for record in kernel.info:
        if record.attr == eiattr.INDIRECT_BRANCH_TARGETS:
            lists += [targets for _, targets in branch_tables(record, place(image.name, kernel.name)) if targets]
    section, content = target if target else (None, bytearray())
    where = place(image.name, section.name if section else kernel.name)
    if len(content) > MAX_BANK:
        raise Unsupported("XT1104", "constant bank 2 is larger than the hardware has", where=where)
    words = struct.unpack_from(f"<{len(content) // 4}I", content)
    free = [True] * len(words)
    for targets in sorted(lists, key=len, reverse=True):  # long ones first: a short list may be part of a long one
        at = _match(words, free, targets)
        if at is None:
            hint = "only tables in constant bank 2 are understood"
            raise Unsupported("XT1104", "the table of an indirect branch was not found", where=where, hint=hint)
        free[at : at + len(targets)] = [False] * len(targets)
        struct.pack_into(f"<{len(targets)}I", content, 4 * at, *(move.target(t, "jump table") for t in targets))
    for i, word in enumerate(words):
        if free[i] and word and word % 16 == 0 and word < move.old_size:
            what = f"constant {word:#x} may be a code offset that no attribute lists"
            raise Unsupported("XT1104", what, where=f"{where} word {i}", hint="the kernel may jump through it")


def _match(words: tuple[int, ...], free: list[bool], targets: tuple[int, ...]) -> int | None:
    n = len(targets)
    for at in range(len(words) - n + 1):
        if words[at] == targets[0] and words[at : at + n] == targets and all(free[at : at + n]):
            return at
    return None
