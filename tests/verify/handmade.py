"""A splicer for tests only: puts given words before given instructions, and nothing clever.

It shares no code with the product's splicer, so that a test of the verifier can say exactly what stands where.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xtrace import isa
from xtrace.image import CodeEdit, load, parse, rewrite

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
NONE = 7  # no scoreboard


def control(stall: int = 1, *, write: int = NONE, read: int = NONE, wait: int = 0) -> int:
    """Scheduling bits: stall 1-15 with the yield bit clear, scoreboards, wait mask."""
    return (stall | write << 5 | read << 8 | wait << 11) << 105


def word(lo: int, hi: int, ctl: int) -> int:
    return lo | hi << 64 | ctl


# Words of facts on probe encodings; d, a: register numbers.
def nop(ctl: int = control()) -> int:
    return word(0x7918, 0, ctl)


def mov(d: int, imm: int, ctl: int = control()) -> int:
    return word(0x7802 | d << 16 | imm << 32, 0xF00, ctl)


def umov(d: int, imm: int, ctl: int = control()) -> int:
    return word(0x7882 | d << 16 | imm << 32, 0, ctl)


def clock(d: int, ctl: int = control()) -> int:
    return word(0x7805 | d << 16, 0x5000, ctl)


def s2r_tid(d: int, ctl: int) -> int:
    return word(0x7919 | d << 16, 0x2100, ctl)


def elect(p: int, ctl: int = control(13)) -> int:
    return word(0x003F782F, 0x03800000 | p << 17, ctl)


def uadd(d: int, imm: int, ctl: int = control()) -> int:
    return word(0x7890 | d << 16 | d << 24 | imm << 32, 0x0FFFE03F, ctl)


def mov_uniform(d: int, u: int, ctl: int = control()) -> int:
    return word(0x7C02 | d << 16 | u << 32, 0x08000F00, ctl)


def store(ur: int, offset: int, data: int, ctl: int, predicate: int = 7, words: int = 2) -> int:
    """STG.E [UR + offset], R of 1, 2 or 4 registers."""
    lo = 0x0986 | predicate << 12 | 0xFF << 24 | data << 32 | (offset & 0xFFFFFF) << 40
    return word(lo, 0x08100000 | {1: 0x900, 2: 0xB00, 4: 0xD00}[words] | ur, ctl)


BAR_SYNC = 0x000FEC0000010000_0000000000007B1D
EXIT = 0x000FEA0003800000_000000000000794D


@dataclass(frozen=True)
class Traced:
    """An original image, a traced one and the map that belongs to it."""

    original: bytes
    data: bytes
    map: dict[str, Any]

    def with_data(self, data: bytes) -> Traced:
        """Other bytes under the same map, whose hash is brought along (or every change would be found by it)."""
        return Traced(self.original, data, {**self.map, "output": {"sha256": hashlib.sha256(data).hexdigest()}})

    def with_kernel(self, **changes: Any) -> Traced:
        """The same file with changed claims about its first traced kernel."""
        kernels = [dict(k) for k in self.map["kernels"]]
        next(k for k in kernels if k["islands"]).update(changes)
        return Traced(self.original, self.data, {**self.map, "kernels": kernels})


def insert(
    image: Path | bytes,
    islands: Mapping[int, Sequence[int]],
    *,
    kernel: str | None = None,
    registers: int | None = None,
    probe_registers: Sequence[str] = (),
    patches: Mapping[tuple[int, int], str] | None = None,
    literals: Sequence[int] = (),
    sites: Sequence[dict[str, Any]] = (),
    packets: Sequence[dict[str, Any]] = (),
) -> Traced:
    """Put words before the instructions at the given byte offsets.

    ``patches`` names (pc of the island, index of the word in it) whose immediate is filled in at load, ``literals``
    the byte offsets of moves that load a return address.
    """
    original = load(image) if isinstance(image, Path) else parse(image, "test")
    target = original.kernel(kernel) if kernel else original.kernels[0]
    model = isa.for_arch(original.arch)
    code = model.decode(target.text)
    starts = sorted(islands)
    sums = [0]
    for pc in starts:
        sums.append(sums[-1] + 16 * len(islands[pc]))

    def instr_off(old: int) -> int:
        return old + sums[bisect_right(starts, old)]

    def target_off(old: int) -> int:
        return old + sums[bisect_left(starts, old)]

    words: list[int] = []
    for ins in code:
        words += islands.get(ins.pc, ())
        new = ins.word
        if model.code_field_mask(new):
            goal = None if ins.target is None else target_off(ins.target)
            new = model.retarget(new, ins.pc, instr_off(ins.pc), goal)
        elif ins.pc in literals:
            new = new & ~(0xFFFFFFFF << 32) | target_off(new >> 32 & 0xFFFFFFFF) << 32
        words.append(new)
    count = target.registers if registers is None else registers
    text = b"".join(w.to_bytes(16, "little") for w in words)
    data = rewrite(original, [CodeEdit(target.name, text, count, instr_off, target_off)])
    out = parse(data, "test").kernel(target.name)
    entry = {
        "name": target.name,
        "registers": {"before": target.registers, "after": count},
        "instructions": {"before": len(code), "after": len(out.text) // 16},
        "islands": [{"pc": pc, "words": len(islands[pc]), "kind": "record"} for pc in starts],
        "sites": list(sites),
        "probe_registers": list(probe_registers),
        "packets": list(packets),
        "slot": {"stride": 65536, "ring": 32768, "record": 4, "header_bytes": 32},
        "patches": [
            {"offset": out.offset + target_off(pc) + 16 * k + 4, "value": value}
            for (pc, k), value in (patches or {}).items()
        ],
    }
    trace_map = {
        "schema": "xtrace/map/2",
        "input": {"name": "test", "sha256": original.sha256},
        "output": {"sha256": hashlib.sha256(data).hexdigest()},
        "kernels": [entry],
    }
    return Traced(original.data, data, trace_map)


def _prologue_words() -> list[int]:
    """Slow and simple.

    Cursor of the warp's slot in UR60:61, low half of its base in UR59, bytes emitted in UR58, SM and events in UR57,
    entry times in UR55 and UR56, header in UR52:53.
    """
    slow, late = control(15), control(15, write=0)

    def uimad(d: int, a: int, b: int, c: int, ctl: int = slow) -> int:
        return word(0x72A4 | d << 16 | a << 24 | b << 32, 0x0F8E0200 | c, ctl)

    def imad_uniform(d: int, a: int, u: int, c: int) -> int:
        return word(0x7C24 | d << 16 | a << 24 | u << 32, 0x0F8E0200 | c, slow)

    def uldc(d: int, offset: int) -> int:
        return word(0x7AB9 | d << 16 | offset << 38, 0x800, slow)

    words = [word(0x7919 | d << 16, sr << 8, late) for d, sr in ((2, 0x21), (3, 0x22), (4, 0x23))]
    words += [word(0x79C3 | d << 16, sr << 8, late) for d, sr in ((4, 0x25), (5, 0x26), (6, 0x27))]
    words += [uldc(7, 0), uldc(8, 4), uldc(9, 8), uldc(10, 12), uldc(11, 16)]
    words += [umov(60, 0, slow), umov(61, 0, slow), umov(58, 0, slow)]
    words += [uimad(9, 9, 8, 63, control(15, wait=1)), uimad(9, 9, 7, 63)]
    words += [word(0x7890 | 9 << 16 | 9 << 24 | 31 << 32, 0x0FFFE03F, slow)]  # + 31
    words += [word(0x7899 | 9 << 16 | 63 << 24 | 5 << 32, 0x08011600 | 9, slow)]  # >> 5: warps per block
    words += [imad_uniform(4, 4, 8, 3), imad_uniform(4, 4, 7, 2)]
    words += [word(0x7819 | 4 << 16 | 255 << 24 | 5 << 32, 0x11600 | 4, slow)]  # warp in block
    words += [word(0x72CA | 8 << 16 | 4 << 24, 0xE0000, slow)]  # R2UR
    words += [uimad(6, 6, 11, 5), uimad(6, 6, 10, 4), uimad(6, 6, 9, 8)]  # slot
    words += [word(0x788C | 6 << 24, 0x0BF01070, slow)]  # UP0 = slot < slot_count
    words += [word(0x7887 | 6 << 16 | 6 << 24, 0x08000000, slow)]  # slot = UP0 ? slot : slot_count
    words += [umov(52, 0, slow), umov(53, 0, slow)]
    words += [word(0x78A5 | 52 << 16 | 6 << 24 | 32 << 32, 0x0F8E0000 | 52, slow)]
    words += [word(0x7919 | 7 << 16, 0x4300, late), word(0x7805 | 5 << 16, 0x5200, slow), clock(6, slow)]
    words += [word(0x72CA | u << 16 | r << 24, 0xE0000, control(15, wait=1)) for u, r in ((57, 7), (56, 6), (55, 5))]
    words += [word(0x78A5 | 60 << 16 | 6 << 24 | 65536 << 32, 0x0F8E0000 | 60, slow)]
    words += [word(0x7C82 | 59 << 16 | 60 << 32, 0x08000000, slow)]
    return words


PROLOGUE = _prologue_words()
PATCHES = {(0, 11): "buffer_lo", (0, 12): "buffer_hi", (0, 25): "slot_count", (0, 26): "slot_count"}
PATCHES |= {(0, 27): "header_lo", (0, 28): "header_hi"}
STATE = ("UR52", "UR53", "UR55", "UR56", "UR57", "UR58", "UR59", "UR60", "UR61")
#: Where the record goes in ``spin``: R10 and R11 are dead there, P1 is never used, scoreboard 3 is free.
SITE = 0x1F0
SPIN = GOLDEN / "spin.cubin"


END = 0x2C0  # its EXIT


def exit_words() -> list[int]:
    """The header, by one lane, in two stores."""
    words = [elect(1, control(13, wait=0x3F))]
    words += [mov_uniform(0, 55), mov_uniform(1, 56), mov_uniform(2, 57), mov(3, END), mov_uniform(7, 58)]
    words += [word(0x7805 | 4 << 16, 0x15200, control(4)), clock(6, control(15))]
    return words + [store(52, 16, 4, control(2), 1, words=4), store(52, 0, 0, control(2), 1, words=4)]


def cursor_words(size: int = 16, events: int = 1, stall: int = 11) -> list[int]:
    """The cursor to where the next packet goes; its bytes and events counted."""
    place = word(0x7892 | 60 << 16 | 58 << 24 | 0x7FFF << 32, 0x0F8EEA00 | 59, control(1))
    return [place, uadd(58, size, control(1)), uadd(57, events << 8, control(stall))]


def record_words(
    *, data: int = 10, predicate: int = 1, sb: int = 3, offset: int = 8, elect_stall: int = 1, clock_stall: int = 1
) -> list[int]:
    """ELECT, read the clock, tag, move the cursor, store, wait: every distance as in the tables."""
    return [
        elect(predicate, control(elect_stall)),
        clock(data, control(clock_stall)),
        mov(data + 1, 1),
        *cursor_words(),
        store(60, offset, data, control(2, read=sb), predicate),
        nop(control(1, wait=1 << sb)),
    ]


ONE = ({"tag": 1, "sites": [1]},)


def spin(record: Sequence[int] | None = None, *, site: int = SITE, **options: Any) -> Traced:
    """The golden kernel ``spin`` with a prologue, one record island and the header at its end."""
    islands = {0: PROLOGUE, site: record_words() if record is None else record, END: exit_words()}
    named = [{"id": 1, "kind": "record", "pc": site}]
    options = {"probe_registers": STATE, "patches": PATCHES, "sites": named, "packets": ONE, **options}
    return insert(SPIN, islands, **options)


#: Sites of the chain: at the head of the loop of ``spin``, and behind everything that lanes do apart in it.
HEAD, REJOINED, COMMIT = 0xF0, 0x280, 0x2A0


def chain_islands() -> dict[int, list[int]]:
    """One packet of two events per turn of the loop: elected and begun at its head, stored near its end.

    R12 and R13 are free where the kernel may have 16 registers, R0 and R1 are dead behind the sites. R12 is never set.
    """
    return {
        HEAD: [elect(1), clock(13), *cursor_words(events=2)],
        REJOINED: [clock(0)],
        COMMIT: [
            mov(1, 2, control(8)),
            store(60, 0, 12, control(2, read=3), 1),
            store(60, 8, 0, control(2, read=3), 1),
            nop(control(1, wait=8)),
        ],
    }


def chain(islands: Mapping[int, Sequence[int]] | None = None, **options: Any) -> Traced:
    """``spin`` with one packet that is captured and stored across basic blocks."""
    islands = {0: PROLOGUE, END: exit_words(), **(chain_islands() if islands is None else islands)}
    sites = [{"id": n, "kind": "record", "pc": pc} for n, pc in ((1, HEAD), (2, REJOINED))]
    packets = [{"tag": 2, "sites": [1, 2]}]
    options = {"probe_registers": STATE, "patches": PATCHES, "sites": sites, "packets": packets, **options}
    return insert(SPIN, islands, **{"registers": 16, **options})
