"""What ``xtrace plan`` prints about records and predicted costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table

__all__ = ["loops_table", "record_lines", "sites_table"]

_SHOWN = 12  # sites without --all
_COSTS = {
    "words": "words",
    "issue": "cycles",
    "waits": "wait_cycles",
    "added": "added_cycles",
    "store\nslots": "memory_slots",
}


def record_lines(k: dict[str, Any]) -> Iterator[str]:
    """Record and packet sizes, and bytes per second where a time is known. ``k``: a kernel of a plan document."""
    cursor = ", ".join(k["uniform_registers"]) or "none"
    ring = k["ring_bytes_per_warp"]
    yield f"{k['records']} record sites x {k['event_bytes']} B, ring {ring} B a warp; cursor in {cursor}"
    if k["hot"] is None:
        return
    sizes = Counter((len(p["sites"]), p["bytes"], " (short clocks)" * p["short_clocks"]) for p in k["packets"])
    packets = [f"{count} of {events} events, {size} B{short}" for (events, size, short), count in
               sorted(sizes.items(), reverse=True)]  # fmt: skip
    where = ", those of all warps interleaved" if k["stripe_bytes"] else ""
    yield f"packets: {'; '.join(packets) or 'none'}{where}; header {k['header_bytes']} B a warp"
    hot = k["hot"]
    what = "a launch" if hot["loop"] is None else f"an iteration of loop {hot['loop']}"
    each = f", {hot['bytes'] / hot['events']:.1f} B an event" if hot["events"] else ""
    rate = "rate not measured: give --duration-us, --warps and --iterations"
    if (launch := k["launch"]) is not None:
        rate = f"{launch['bytes_per_launch']:,} B in {launch['duration_us']:g} us: {_rate(launch['bytes_per_second'])}"
    yield f"{hot['bytes']} B a warp and {what}{each}; {rate}"


def _rate(value: float) -> str:
    for unit in ("B/s", "kB/s", "MB/s", "GB/s"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB/s"


def loops_table(k: dict[str, Any]) -> Table:
    """Predicted cost of one iteration of every loop with probe words, and of what runs once."""
    table = Table(title="  Predicted added issue cycles of a warp", title_justify="left", box=None, pad_edge=False)
    table.add_column("  each")
    _number_columns(table, "events", "bytes", *_COSTS, "kernel's\nown", "share")
    hot = k["hot"]["loop"]
    ways = [("  run outside loops", k["once"], None)]
    for loop in k["loops"]:
        name = f"  iteration of loop {loop['id']} at {loop['head']}, depth {loop['depth']}"
        ways.append((name, loop["trip"], loop["id"]))
    for name, way, number in ways:
        if way["words"] or number == hot:
            share = "" if way["added_share"] is None else f"{100 * way['added_share']:.1f} %"
            row = [str(way["events"]), str(way["bytes"]), *_costs(way), str(way["own_cycles"]), share]
            table.add_row(f"{name}{' (hot)' if number == hot else ''}", *row)
    return table


def sites_table(sites: Sequence[dict[str, Any]], show_all: bool) -> Table:
    """Predicted cost of each placed site, with its resources; without ``show_all`` only of the most expensive ones."""
    placed = [s for s in sites if s["status"] == "placed"]
    ranked = sorted(placed, key=lambda s: (-s["depth"], -s["added_cycles"]))
    shown = placed if show_all else ranked[:_SHOWN]
    title = (
        f"  {len(placed)} sites" if show_all else f"  {len(shown)} of {len(placed)} sites, innermost and dearest first"
    )
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("  pc", no_wrap=True)
    for name in ("op", "phase", "loop", *(("registers", "SB", "wait") if show_all else ())):
        table.add_column(name)
    _number_columns(table, *_COSTS)
    for s in shown:
        row = [f"  {s['pc']}", s["op"], s["phase"], "" if s["loop"] is None else str(s["loop"])]
        if show_all:
            row += [", ".join(s["registers"]), "" if s["scoreboard"] is None else str(s["scoreboard"]), s["wait"]]
        table.add_row(*row, *_costs(s))
    return table


def _number_columns(table: Table, *names: str) -> None:
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)


def _costs(row: dict[str, Any]) -> list[str]:
    return [str(row[key]) for key in _COSTS.values()]
