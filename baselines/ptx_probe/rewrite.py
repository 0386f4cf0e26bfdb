"""Put probes into a kernel's PTX text.

Rules (ours, after the technique published with Neutrino, OSDI'25):

* Only insertions: taking the inserted pieces out again gives the input back, byte for byte. Virtual registers make
  saving and restoring needless; the assembler allocates the whole kernel anew.
* One u64 parameter is appended. The prologue stands right behind the entry's declarations: it reads the clock, finds
  lane 0, the warp's number in the block and the block's number in the grid, and keeps a 64-bit slot pointer.
* ``exact`` mode guards the index arithmetic by lane 0 and divides signed, as the published tool's output does;
  ``charitable`` mode computes unguarded with shifts, which costs far fewer instructions. Tables show both.
* Records: ``sche`` one 16-byte record per warp {start u64, elapsed u32, smid u32} before every exit; other groups one
  8-byte clock per event and warp, then the pointer moves on. Plain global stores by lane 0, no atomics, no fences,
  no shared memory. Bounds are not checked unless asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from baselines.ptx_probe.module import Entry
from baselines.ptx_probe.select import PtxSite

__all__ = ["EVENT_BYTES", "SCHED_BYTES", "Probed", "rewrite"]

SCHED_BYTES = 16
EVENT_BYTES = 8
Mode = Literal["exact", "charitable"]


@dataclass(frozen=True)
class Probed:
    """The probed text; ``insertions`` are (offset in the input, text) in order, so that anybody can take them out."""

    text: str
    insertions: tuple[tuple[int, str], ...]
    parameter: int  # index of the appended pointer parameter
    bytes_per_warp: int


def _splice(source: str, insertions: Iterable[tuple[int, str]]) -> str:
    pieces, position = [], 0
    for offset, text in insertions:
        pieces += [source[position:offset], text]
        position = offset
    return "".join([*pieces, source[position:]])


class _Names:
    """Register and parameter names that occur nowhere in the module."""

    def __init__(self, entry: Entry) -> None:
        stem = "xtp"
        while any(stem in word for word in entry.identifiers):
            stem += "x"
        self.stem = stem
        self.parameter = f"{entry.name}_{stem}_map"

    def __call__(self, kind: str, number: int) -> str:
        return f"%{self.stem}{kind}{number}"


def _block(lines: Iterable[str]) -> str:
    return "".join(f"\t{line}\n" for line in lines)


def _line_start(source: str, offset: int) -> tuple[int, str]:
    """Where to insert whole lines before ``offset``, and what must stand in front of them."""
    begin = source.rfind("\n", 0, offset) + 1
    return (begin, "") if not source[begin:offset].strip() else (offset, "\n")


def _line_end(source: str, offset: int) -> tuple[int, str]:
    """Where to insert whole lines behind ``offset``: behind a trailing line comment, or at once."""
    stop = source.find("\n", offset)
    rest = source[offset : stop if stop >= 0 else len(source)].strip()
    if stop >= 0 and (not rest or rest.startswith("//")):
        return stop + 1, ""
    return offset, "\n"


def _prologue(names: _Names, mode: Mode, bytes_per_warp: int, bounds: bool) -> list[str]:

    def r(number: int) -> str:
        return names("r", number)

    def d(number: int) -> str:
        return names("d", number)

    lane0 = names("p", 0)
    guard = f"@{lane0} " if mode == "exact" else ""
    by_32 = "div.s32" if mode == "exact" else "shr.u32"
    amount = "32" if mode == "exact" else "5"
    lines = [
        f".reg .pred {names('p', 0)}, {names('p', 1)}, {names('p', 2)};",
        f".reg .b32 %{names.stem}r<12>;",
        f".reg .b64 %{names.stem}d<6>;",
        f"mov.u64 {d(0)}, %clock64;",
        f"mov.u32 {r(0)}, %laneid;",
        f"setp.eq.u32 {lane0}, {r(0)}, 0;",
    ]
    arithmetic = [
        # linear thread id -> r1, warp -> r4
        f"mov.u32 {r(1)}, %tid.z;",
        f"mov.u32 {r(2)}, %ntid.y;",
        f"mov.u32 {r(3)}, %tid.y;",
        f"mad.lo.s32 {r(1)}, {r(1)}, {r(2)}, {r(3)};",
        f"mov.u32 {r(5)}, %ntid.x;",
        f"mov.u32 {r(3)}, %tid.x;",
        f"mad.lo.s32 {r(1)}, {r(1)}, {r(5)}, {r(3)};",
        f"{by_32} {r(4)}, {r(1)}, {amount};",
        # warps per block, rounded up -> r5
        f"mul.lo.s32 {r(5)}, {r(5)}, {r(2)};",
        f"mov.u32 {r(2)}, %ntid.z;",
        f"mul.lo.s32 {r(5)}, {r(5)}, {r(2)};",
        f"add.s32 {r(5)}, {r(5)}, 31;",
        f"{by_32} {r(5)}, {r(5)}, {amount};",
        # linear block id -> r6
        f"mov.u32 {r(6)}, %ctaid.z;",
        f"mov.u32 {r(7)}, %nctaid.y;",
        f"mov.u32 {r(8)}, %ctaid.y;",
        f"mad.lo.s32 {r(6)}, {r(6)}, {r(7)}, {r(8)};",
        f"mov.u32 {r(7)}, %nctaid.x;",
        f"mov.u32 {r(8)}, %ctaid.x;",
        f"mad.lo.s32 {r(6)}, {r(6)}, {r(7)}, {r(8)};",
        # slot pointer -> d2
        f"mad.lo.s32 {r(9)}, {r(6)}, {r(5)}, {r(4)};",
        f"ld.param.u64 {d(1)}, [{names.parameter}];",
        f"cvta.to.global.u64 {d(1)}, {d(1)};",
        f"mul.wide.u32 {d(2)}, {r(9)}, {bytes_per_warp};",
        f"add.s64 {d(2)}, {d(1)}, {d(2)};",
    ]
    if bounds:
        arithmetic.append(f"add.s64 {d(5)}, {d(2)}, {bytes_per_warp};")
    return lines + [guard + line for line in arithmetic]


def _guard(names: _Names, site_guard: str) -> tuple[list[str], str]:
    """Instructions that combine the site's guard with lane 0, and the resulting guard prefix."""
    if not site_guard:
        return [], f"@{names('p', 0)} "
    joint = names("p", 1)
    if site_guard.startswith("!"):
        negated = names("p", 2)
        before = [f"not.pred {negated}, {site_guard[1:]};", f"and.pred {joint}, {negated}, {names('p', 0)};"]
    else:
        before = [f"and.pred {joint}, {site_guard}, {names('p', 0)};"]
    return before, f"@{joint} "


def _event(names: _Names, mode: Mode, site_guard: str, bounds: bool) -> list[str]:
    lines, guard = _guard(names, site_guard)
    clock, slot = names("d", 3), names("d", 2)
    free = guard if mode == "exact" else ""
    if bounds:
        fits = names("p", 2)
        lines += [f"setp.lt.and.u64 {fits}, {slot}, {names('d', 5)}, {guard[1:].strip()};"]
        guard = f"@{fits} "
    return [
        *lines,
        f"{free}mov.u64 {clock}, %clock64;",
        f"{guard}st.global.u64 [{slot}], {clock};",
        f"{guard if bounds else free}add.s64 {slot}, {slot}, {EVENT_BYTES};",
    ]


def _sched(names: _Names, mode: Mode, site_guard: str) -> list[str]:
    lines, guard = _guard(names, site_guard)
    now, slot, start = names("d", 3), names("d", 2), names("d", 0)
    elapsed, smid = names("r", 10), names("r", 11)
    free = guard if mode == "exact" else ""
    return [
        *lines,
        f"{free}mov.u64 {now}, %clock64;",
        f"{free}sub.s64 {now}, {now}, {start};",
        f"{free}cvt.u32.u64 {elapsed}, {now};",
        f"{free}mov.u32 {smid}, %smid;",
        f"{guard}st.global.u64 [{slot}], {start};",
        f"{guard}st.global.v2.u32 [{slot}+8], {{{elapsed}, {smid}}};",
    ]


def rewrite(
    entry: Entry,
    sites: Sequence[PtxSite],
    *,
    mode: Mode = "exact",
    sched: bool = False,
    capacity: int = 1,
    bounds_check: bool = False,
) -> Probed:
    """Insert a prologue and one snippet per site.

    Parameters
    ----------
    sites
        From :mod:`baselines.ptx_probe.select`, in text order.
    sched
        Write the one ``sche`` record at each (exit) site instead of an event.
    capacity
        Records per warp that the buffer holds; fixes the slot size.
    bounds_check
        Drop events beyond ``capacity`` instead of writing past the slot. Off in the published technique.
    """
    source, names = entry.source, _Names(entry)
    size = SCHED_BYTES if sched else EVENT_BYTES * capacity
    insertions: list[tuple[int, str]] = []
    if entry.params_tail is None:
        insertions.append((entry.name_end, f"(\n\t.param .u64 {names.parameter}\n)"))
    elif entry.parameters == 0:
        insertions.append((entry.params_tail, f"\n\t.param .u64 {names.parameter}\n"))
    else:
        insertions.append((entry.params_tail, f",\n\t.param .u64 {names.parameter}"))
    behind = entry.body_open
    for statement in entry.statements:
        if statement.kind != "declaration":
            break
        behind = statement.end
    at, lead = _line_end(source, behind)
    insertions.append((at, lead + _block(_prologue(names, mode, size, bounds_check))))
    for site in sites:
        statement = entry.statements[site.statement]
        before = site.place in ("before", "exit")
        at, lead = (_line_start if before else _line_end)(source, statement.start if before else statement.end)
        snippet = _sched(names, mode, statement.guard) if sched else _event(names, mode, statement.guard, bounds_check)
        insertions.append((at, lead + _block(snippet)))
    ordered = tuple(sorted(insertions, key=lambda item: item[0]))  # stable: text order within one offset
    return Probed(_splice(source, ordered), ordered, entry.parameters, size)
