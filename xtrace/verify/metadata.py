"""Tables that name code offsets, part of promise ``targets``: attributes, symbols, jump tables.

Each table of the original is moved through the alignment and compared with what the traced image holds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from xtrace.image.cubin import Image
from xtrace.image.eiattr import CARRIES, INDIRECT_BRANCH_TARGETS, REGCOUNT, Carries, attribute_name
from xtrace.image.elf import STT_FUNC
from xtrace.image.info import InfoRecord, read_info
from xtrace.verify.certificate import Findings, Promise
from xtrace.verify.pair import Pair

__all__ = ["branch_tables", "check_global", "check_kernel", "check_symbols"]

_TARGETS = Promise.TARGETS


def branch_tables(records: Iterable[InfoRecord]) -> dict[int, list[int]]:
    """Targets of indirect branches by the branch's offset (EIATTR 0x34). Malformed records give nothing."""
    tables: dict[int, list[int]] = {}
    for record in records:
        if record.attr == INDIRECT_BRANCH_TARGETS and len(record.payload) % 4 == 0:
            words = struct.unpack(f"<{len(record.payload) // 4}I", record.payload)
            at = 0
            while at + 3 <= len(words) and at + 3 + words[at + 2] <= len(words):
                tables[words[at]] = list(words[at + 3 : at + 3 + words[at + 2]])
                at += 3 + words[at + 2]
    return tables


def check_kernel(pair: Pair, before: Image, after: Image) -> None:
    """The kernel's own attributes and its jump tables."""
    moved = bool(pair.align.islands())
    if len(pair.before.info) != len(pair.after.info):
        pair.fail(_TARGETS, f"{len(pair.after.info)} attributes instead of {len(pair.before.info)}")
        return
    for old, new in zip(pair.before.info, pair.after.info, strict=True):
        name = attribute_name(old.attr)
        kind = CARRIES.get(old.attr, Carries.UNKNOWN)
        if (old.fmt, old.attr) != (new.fmt, new.attr):
            pair.fail(_TARGETS, f"{name} became {attribute_name(new.attr)}")
        elif kind is Carries.UNKNOWN and moved:
            pair.skip(_TARGETS, f"{name} may hold code offsets; its meaning is not known")
        else:
            wanted = _moved(pair, old, kind)
            if wanted is None:
                pair.fail(_TARGETS, f"{name} names an offset outside the kernel or is malformed")
            elif wanted != new.payload:
                pair.fail(_TARGETS, f"{name} {_first_difference(wanted, new.payload)}")
    _jump_tables(pair, before, after)


def _first_difference(wanted: bytes, found: bytes) -> str:
    if len(wanted) != len(found):
        return f"has {len(found)} bytes instead of {len(wanted)}"
    k = next(i for i in range(len(wanted)) if wanted[i] != found[i]) // 4
    want, have = (int.from_bytes(x[4 * k : 4 * k + 4], "little") for x in (wanted, found))
    return f"word {k} is {have:#x}, expected {want:#x}"


def _moved(pair: Pair, record: InfoRecord, kind: Carries) -> bytes | None:
    """What the payload must be after the move; ``None`` if it does not make sense."""
    if kind in (Carries.NOTHING, Carries.UNKNOWN, Carries.REGISTERS):
        return record.payload
    if len(record.payload) % 4:
        return None
    words = list(struct.unpack(f"<{len(record.payload) // 4}I", record.payload))
    size = len(pair.before.text)

    def instr(k: int) -> bool:
        if k >= len(words) or words[k] >= size or words[k] % pair.word_bytes:
            return False
        words[k] = pair.instr_off(words[k])
        return True

    if kind is Carries.BRANCHES:
        if pair.align.copy and words:
            return None
        at = 0
        while at < len(words):
            if at + 3 > len(words) or at + 3 + words[at + 2] > len(words):
                return None
            stop = at + 3 + words[at + 2]
            if not instr(at):
                return None
            for k in range(at + 3, stop):
                if words[k] > size or words[k] % pair.word_bytes:
                    return None
                words[k] = pair.target_off(words[k])
            at = stop
    else:
        places = {
            Carries.OFFSETS: range(len(words)),
            Carries.PAIRS_FIRST: range(0, len(words), 2),
            Carries.QUADS_FIRST: range(0, len(words), 4),
            Carries.PAIRS_SECOND: [k + 1 for k in range(0, len(words), 2) if words[k] == 1],
        }[kind]
        if not all(instr(k) for k in places):
            return None
        if pair.align.copy:  # the list goes on with the instructions of the copy
            start = pair.align.copy.start * pair.word_bytes
            again = list(struct.unpack(f"<{len(record.payload) // 4}I", record.payload))
            for k in places:
                again[k] += start
            words += again
    return struct.pack(f"<{len(words)}I", *words)


def _jump_tables(pair: Pair, before: Image, after: Image) -> None:
    name = f".nv.constant2.{pair.name}"
    old_section, new_section = before.section_named(name), after.section_named(name)
    if old_section is None or new_section is None:
        return  # a section that came or went is reported by the file check
    old, new = before.content(old_section), after.content(new_section)
    listed = {t for targets in branch_tables(pair.before.info).values() for t in targets}
    if not listed or len(old) != len(new) or len(old) % 4:
        if old != new:
            pair.fail(_TARGETS, "jump table changed although no indirect branch names targets")
        return
    for k in range(0, len(old), 4):
        was, now = (int.from_bytes(x[k : k + 4], "little") for x in (old, new))
        wanted = pair.target_off(was) if was in listed else was
        if now != wanted:
            pair.fail(_TARGETS, f"jump table entry {k // 4} is {now:#x}, expected {wanted:#x}")


def check_global(before: Image, after: Image, findings: Findings) -> None:
    """``.nv.info`` of the whole image: equal but for the register counts of kernels (checked under resources)."""
    sections = before.section_named(".nv.info"), after.section_named(".nv.info")
    if sections[0] is None or sections[1] is None:
        return
    old = read_info(before.data, sections[0], before.name)
    new = read_info(after.data, sections[1], after.name)
    kernels = {k.symbol for k in before.kernels}
    if [(r.fmt, r.attr) for r in old] != [(r.fmt, r.attr) for r in new]:
        findings.fail(Promise.RESOURCES, "", "the image's attribute list changed")
        return
    for a, b in zip(old, new, strict=True):
        if a.payload == b.payload:
            continue
        symbol = int.from_bytes(a.payload[:4], "little")
        if a.attr != REGCOUNT or a.payload[:4] != b.payload[:4] or symbol not in kernels:
            findings.fail(Promise.RESOURCES, "", f"{attribute_name(a.attr)} of the image changed")


def check_symbols(pairs: dict[int, Pair], before: Image, after: Image, findings: Findings) -> None:
    """All symbols: equal, or moved with the code they name. ``pairs`` is keyed by text section index."""
    if len(before.symbols) != len(after.symbols):
        findings.fail(Promise.WELLFORMED, "", f"{len(after.symbols)} symbols instead of {len(before.symbols)}")
        return
    for old, new in zip(before.symbols, after.symbols, strict=True):
        same = ("name", "type", "binding", "other", "section")
        if any(getattr(old, k) != getattr(new, k) for k in same):
            findings.fail(Promise.WELLFORMED, "", f"symbol {old.index} ({old.name[:60]!r}) changed its identity")
            continue
        pair = pairs.get(old.section)
        value, size = old.value, old.size
        if pair is not None:
            limit = len(pair.before.text)
            if old.value > limit or old.value + old.size > limit:
                pair.fail(_TARGETS, f"symbol {old.name[:60]!r} lies outside the original kernel")
                continue
            value = pair.target_off(old.value)
            # A symbol that does not start or end on an instruction keeps what it had; none is known to exist.
            size = pair.target_off(old.value + old.size) - value if old.size else 0
        if (new.value, new.size) != (value, size):
            what = "function" if old.type == STT_FUNC else "symbol"
            why = f"{what} {old.name[:60]!r} is [{new.value:#x}, +{new.size:#x}), expected [{value:#x}, +{size:#x})"
            findings.fail(_TARGETS, pair.name if pair else "", why)
