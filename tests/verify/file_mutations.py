"""Faults to plant around the code: in declared resources, in tables of the image, and in what the map says."""

from __future__ import annotations

import copy
import random
import struct

from tests.verify.subject import Mutant, Mutator, Subject
from xtrace.image import eiattr, elf
from xtrace.image.info import read_info

# --- resources and tables ---------------------------------------------------------------------------------------------


def _with_registers(s: Subject, count: int) -> bytes:
    """The image with another number of registers declared for the kernel."""
    section = s.after.section_named(".nv.info")
    assert section is not None
    counts = [r for r in read_info(s.data, section, "test") if r.attr == eiattr.REGCOUNT]
    record = next(r for r in counts if int.from_bytes(r.payload[:4], "little") == s.new.symbol)
    data = bytearray(s.data)
    struct.pack_into("<I", data, record.payload_offset + 4, count)
    return bytes(data)


def underreport_registers(s: Subject, rng: random.Random) -> Mutant:
    count = s.new.registers - rng.randrange(1, 9)
    return s.file(
        _with_registers(s, count),
        f"{count} registers instead of {s.new.registers}",
        "resources",
        claim=lambda k: k.update(registers={"before": s.old.registers, "after": count}),
    )


def overreport_registers(s: Subject, rng: random.Random) -> Mutant:
    more = s.new.registers + rng.randrange(1, 20)
    return s.file(_with_registers(s, more), "more registers than needed", "resources")


def overlap_sections(s: Subject, rng: random.Random) -> Mutant:
    filled = [x for x in s.after.sections if x.file_size > 16]
    a, b = rng.sample(filled, 2)
    data = bytearray(s.data)
    where = s.after.header.shoff + a.index * elf.SHDR.size + 24
    struct.pack_into("<Q", data, where, b.offset + rng.choice((0, 4, 8)))
    return s.file(bytes(data), f"{a.name[:40]} lies over {b.name[:40]}", "wellformed")


def stale_attribute(s: Subject, rng: random.Random) -> Mutant | None:
    pairs = [(a, b) for a, b in zip(s.old.info, s.new.info, strict=True) if a.payload != b.payload]
    if not pairs:
        return None
    old, new = rng.choice(pairs)
    data = bytearray(s.data)
    data[new.payload_offset : new.payload_offset + len(old.payload)] = old.payload  # beside a copy its first half
    return s.file(bytes(data), f"stale attribute {old.attr:#x}", "targets")


def wrong_symbol(s: Subject, rng: random.Random) -> Mutant:
    symbol = s.after.symbols[s.new.symbol]
    data = bytearray(s.data)
    size = rng.choice([len(s.old.text), symbol.size - 16, symbol.size - 128])
    struct.pack_into("<Q", data, symbol.offset + 16, size)
    return s.file(bytes(data), f"symbol size {size:#x} instead of {symbol.size:#x}", "targets", "wellformed")


def stray_byte(s: Subject, rng: random.Random) -> Mutant:
    """One byte of the file changes anywhere but in the code."""
    text = [range(k.offset, k.offset + len(k.text)) for k in s.after.kernels]
    while True:
        at = rng.randrange(len(s.data))
        if not any(at in r for r in text):
            break
    data = bytearray(s.data)
    data[at] ^= 1 << rng.randrange(8)
    return s.file(bytes(data), f"byte {at:#x}", "wellformed", "targets", "resources", "instructions")


# --- maps that lie ----------------------------------------------------------------------------------------------------


def lying_islands(s: Subject, rng: random.Random) -> Mutant:
    n, how = rng.randrange(len(s.claim["islands"])), rng.randrange(4)
    islands = copy.deepcopy(s.claim["islands"])
    if how == 0:
        islands[n]["pc"] += rng.choice((16, 32)) if islands[n]["pc"] == 0 else rng.choice((16, -16, 32))
    elif how == 1:
        islands[n]["words"] += rng.choice((1, -1))
    elif how == 2:
        del islands[n]
    else:
        islands[n]["pc"] += 8
    return s.file(
        s.data, f"map lies about island {n} ({how})", "instructions", claim=lambda k: k.update(islands=islands)
    )


def lying_patches(s: Subject, rng: random.Random) -> Mutant:
    patches = copy.deepcopy(s.claim["patches"])
    n, how = rng.randrange(len(patches)), rng.randrange(3)
    if how == 0:
        patches[n]["offset"] += rng.choice((16, -16, 4, 1, 1 << 14))
    elif how == 1:
        value = patches[n]["value"]
        patches = [p for p in patches if p["value"] != value]
    else:
        i = rng.randrange(len(s.code))
        patches[n]["offset"] = s.new.offset + 16 * s.position[i] + 4
    return s.file(s.data, f"map lies about patch {n} ({how})", "effects", claim=lambda k: k.update(patches=patches))


def lying_numbers(s: Subject, rng: random.Random) -> Mutant | None:
    sites = copy.deepcopy(s.claim["sites"])
    records = [x for x in sites if x["id"] is not None]
    if not records:
        return None
    rng.choice(records)["id"] += rng.choice((1000, 100000))
    return s.file(s.data, "map names a site by another number", "effects", claim=lambda k: k.update(sites=sites))


def odd_register(s: Subject, rng: random.Random) -> Mutant | None:
    """A 64-bit store takes its data from an odd register: the disassembler does not mind, the hardware does."""
    stores = [j for j, _ in s.probes if s.traced[j].opcode in ("STG.E.64", "STG.E.128")]
    if not stores:
        return None
    j = rng.choice(stores)
    words = s.words()
    words[j] ^= 1 << 32
    return s.mutant(words, f"odd register in `{s.traced[j].text}`", "effects")


def lying_registers(s: Subject, rng: random.Random) -> Mutant | None:
    used = 0
    for j, i in s.probes:
        used |= (s.traced[j].reads | s.traced[j].writes) if i else 0
    names = list(s.claim["probe_registers"])
    hidden = [n for n in names if n in s.model.layout.names(used)]
    if not hidden:
        return None
    names.remove(rng.choice(hidden))
    return s.file(s.data, "map hides a probe register", "liveness", claim=lambda k: k.update(probe_registers=names))


FILE_MUTATORS: tuple[Mutator, ...] = (
    underreport_registers,
    overreport_registers,
    overlap_sections,
    stale_attribute,
    wrong_symbol,
    stray_byte,
    lying_islands,
    lying_patches,
    lying_registers,
    lying_numbers,
    odd_register,
)
