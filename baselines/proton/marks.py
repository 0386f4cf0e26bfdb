"""Put Proton records around operations of a kernel's final TTGIR.

Proton records come as scopes: a start and an end, each one clock read. Matched sites are single points, so the
points of one region are paired in order: the first starts a scope, the second ends it, and so on. Every point is
then one record, as in the other tracers. When a region has an odd number of points, its last scope is closed right
behind the marked operation; that extra record is counted as *closing*.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from baselines.api import SiteRecord
from baselines.sites import Group, Mark
from xtrace.errors import BadInput, Unsupported

__all__ = ["Marked", "Operation", "mark", "operations"]

MAX_TTGIR_BYTES = 64 << 20
_OPERATION = re.compile(r'\s*(?:%[\w$.:\-]+(?:\s*,\s*%[\w$.:\-]+)*\s*=\s*)?"?([A-Za-z_]\w*(?:\.\w+)+)"?')
_LOCATION = re.compile(r"\s*loc\(.*\)\s*$")
_AXIS = re.compile(r"\baxis = (\d+)")
_SOURCE_LAYOUT = re.compile(r"tensor<[^<>#]*,\s*#(\w+)>|tensor<[^<>#]*,\s*#ttg\.slice<\{.*?parent = #(\w+)")
_LAYOUT = re.compile(r"^#(\w+) = .*?warpsPerCTA = \[([\d, ]+)\]")


@dataclass
class Operation:
    """One operation: lines ``first`` to ``last`` (0-based; they differ when it holds a region)."""

    name: str
    first: int
    last: int
    region: int
    number: int


@dataclass(frozen=True)
class Marked:
    """TTGIR text with records; ``sites`` in text order."""

    text: str
    sites: tuple[SiteRecord, ...]


@dataclass
class _Point:
    line: int  # insert before this line
    operation: Operation
    place: Literal["before", "after"]
    phase: str
    exact: bool
    order: int = field(default=0)


def operations(text: str, where: str = "TTGIR") -> list[Operation]:
    """All operations in order, with the region that holds them.

    Raises
    ------
    BadInput
        XT7331 text too large, XT7332 regions that do not close.
    """
    if len(text) > MAX_TTGIR_BYTES:
        raise BadInput("XT7331", "TTGIR text is too large", where=where)
    found: list[Operation] = []
    stack: list[tuple[int, Operation | None]] = []  # region, the operation that holds it
    region = regions = 0
    for number, raw in enumerate(text.splitlines()):
        line = _LOCATION.sub("", re.sub(r'"(?:[^"\\]|\\.)*"', lambda m: m[0] if "{" not in m[0] else '""', raw)).strip()
        owner: Operation | None = None
        if line.startswith("}"):
            if not stack:
                raise BadInput("XT7332", "a region is closed that was not opened", where=f"{where}:{number + 1}")
            region, owner = stack.pop()
            if owner is not None:
                owner.last = number
        elif match := _OPERATION.match(raw):
            owner = Operation(match[1], number, number, region, len(found))
            found.append(owner)
        if line.startswith("^"):  # a further block of the same region: scopes must not span blocks
            regions += 1
            region = regions
        elif line.endswith("{"):
            regions += 1
            stack.append((region, owner))
            region = regions
    if stack:
        raise BadInput("XT7332", "a region is not closed", where=where)
    return found


def _crosses_warps(lines: Sequence[str], operation: Operation, layouts: dict[str, list[int]]) -> bool:
    """Does a reduction go over warps, so that lowering gives it a block barrier? Unknown layouts count as yes."""
    axis = _AXIS.search(lines[operation.first])
    layout = _SOURCE_LAYOUT.search(lines[operation.last])
    warps = layouts.get((layout[1] or layout[2]) if layout else "")
    if axis is None or warps is None or int(axis[1]) >= len(warps):
        return True
    return warps[int(axis[1])] > 1


def _points(lines: Sequence[str], ops: Sequence[Operation], marks: Sequence[Mark]) -> list[_Point]:
    layouts = {m[1]: [int(n) for n in m[2].split(",")] for line in lines if (m := _LAYOUT.match(line))}
    points: list[_Point] = []
    last_of: dict[tuple[str, int], int] = {}
    for op in ops:
        chosen = next((m for m in marks if op.name in m.phase.ttgir.ops), None)
        if chosen is None or (op.name == "tt.reduce" and not _crosses_warps(lines, op, layouts)):
            continue
        phase = chosen.phase
        key = (phase.name, op.region)
        in_run = phase.run_gap is not None and key in last_of and op.number - last_of[key] <= phase.run_gap
        last_of[key] = op.number
        if "before" in chosen.at and not in_run:
            previous = points[-1] if points else None
            adjoining = previous is not None and previous.operation.number == op.number - 1
            if previous and adjoining and previous.place == "after" and previous.operation.region == op.region:
                points.pop()  # nothing stands between "after a" and "before b"
            points.append(_Point(op.first, op, "before", phase.name, phase.ttgir.exact))
        if "after" in chosen.at:
            points.append(_Point(op.last + 1, op, "after", "compute", phase.ttgir.exact))
    return points


def mark(text: str, group: Group, where: str = "TTGIR") -> Marked:
    """Insert the records of ``group``.

    Raises
    ------
    Unsupported
        XT7333 when the kernel has no operation that the group names.
    BadInput
        See :func:`operations`; XT7334 when there is no kernel function.
    """
    ops = operations(text, where)
    lines = text.splitlines()
    points = _whole_kernel(ops, where) if group.whole_kernel else _points(lines, ops, group.marks)
    if not points:
        raise Unsupported("XT7333", f"no operation of this kernel is a site of group {group.name!r}", where=where)
    by_region: dict[int, list[_Point]] = {}
    for order, point in enumerate(points):
        point.order = order
        by_region.setdefault(point.operation.region, []).append(point)
    inserts: list[tuple[int, int, str, SiteRecord]] = []  # line, order, text, site
    scope = 0
    for members in by_region.values():
        for i in range(0, len(members), 2):
            start, end = members[i], members[i + 1] if i + 1 < len(members) else None
            name = f"{scope} {start.phase}"
            scope += 1
            inserts.append(_record("start", name, lines, start, start.line, start.order, closing=False))
            if end is not None:
                inserts.append(_record("end", name, lines, end, end.line, end.order, closing=False))
            else:
                line = max(start.line, start.operation.last + 1)
                inserts.append(_record("end", name, lines, start, line, start.order, closing=True))
    inserts.sort(key=lambda item: (item[0], item[1], item[3].closing))
    out: list[str] = []
    position = 0
    for line, _, record, _ in inserts:
        out += [*lines[position:line], record]
        position = line
    out += lines[position:]
    sites = [_numbered(site, i + 1) for i, (_, _, _, site) in enumerate(inserts)]
    return Marked("\n".join(out) + "\n", tuple(sites))


def _whole_kernel(ops: Sequence[Operation], where: str) -> list[_Point]:
    function = next((op for op in ops if op.name == "tt.func"), None)
    returns = [op for op in ops if op.name == "tt.return"]
    if function is None or not returns:
        raise BadInput("XT7334", "no kernel function", where=where)
    if len(returns) == 1:
        firsts = [next(op for op in ops if op.number == function.number + 1)]
    else:
        # Proton wants a scope closed exactly once, so every block that returns gets a scope of its own. It begins
        # with the block, not with the kernel: a nearest place.
        firsts = [next(op for op in ops if op.region == r.region and op.number > function.number) for r in returns]
    points = []
    for first, last in zip(firsts, returns, strict=True):
        points.append(_Point(first.first, first, "before", "kernel", len(returns) == 1))
        points.append(_Point(last.first, last, "before", "kernel", True))
    return points


def _record(
    kind: str, name: str, lines: Sequence[str], point: _Point, line: int, order: int, *, closing: bool
) -> tuple[int, int, str, SiteRecord]:
    source = lines[point.operation.first]
    indent = source[: len(source) - len(source.lstrip())]
    whole = point.phase == "kernel"
    place: Literal["before", "after", "entry", "exit"] = "after" if closing else point.place
    if whole:
        place = "entry" if kind == "start" else "exit"
    site = SiteRecord(0, place, point.phase, point.operation.name, point.operation.first + 1, point.exact, closing)
    return line, order, f'{indent}proton.record {kind} "{name}"', site


def _numbered(site: SiteRecord, number: int) -> SiteRecord:
    return SiteRecord(number, site.place, site.phase, site.op, site.line, site.exact, site.closing)
