"""Traces for other viewers and for data frames: Chrome JSON, CSV, Parquet; Perfetto is in its own module."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pandas as pd

from xtrace.errors import BadInput, MissingTool
from xtrace.trace.accesses import accesses
from xtrace.trace.perfetto import to_perfetto
from xtrace.trace.spans import spans
from xtrace.trace.tables import TraceTables

__all__ = ["FORMATS", "TABLES", "export", "only_ctas", "to_chrome", "to_csv", "to_parquet"]

TABLES = ("spans", "events", "warps")


def only_ctas(tables: TraceTables, ctas: Iterable[int]) -> TraceTables:
    """The part of a launch that some CTAs did; BadInput XT8501 if none of them left a trace."""
    wanted = list(ctas)
    warps = tables.warps[tables.warps["cta"].isin(wanted)]
    if not len(warps):
        raise BadInput("XT8501", "none of the chosen CTAs left a trace", where=tables.kernel)
    summary = {
        **tables.summary,
        "warps_ran": len(warps),
        "ctas_ran": int(warps["cta"].nunique()),
        "sms": int(warps["sm"].nunique()),
        **{key: int(warps[key].sum()) for key in ("emitted", "written", "dropped")},
    }
    return TraceTables(tables.events[tables.events["cta"].isin(wanted)], warps, summary)


def to_chrome(launches: Sequence[TraceTables]) -> bytes:
    """Chrome's trace event format: complete events, ``ts`` and ``dur`` in microseconds after the first launch.

    A process per launch and SM, a thread per warp. Times are rounded to whole ns first and durations taken from
    the rounded times, so that the events of one thread never overlap.
    """
    first = min((int(t.summary["origin_ns"]) for t in launches), default=0)
    lines: list[str] = []
    for number, tables in enumerate(launches):
        sms = int(tables.warps["sm"].max()) + 1
        base = number * max(sms, 1000)
        name = str(tables.summary.get("demangled") or tables.kernel)
        for sm in sorted(tables.warps["sm"].unique().tolist()):
            label = f"SM {sm}" if len(launches) == 1 else f"launch {number} SM {sm}: {name}"[:400]
            lines += _metadata(base + sm, 0, "process_name", label) + _sort(base + sm, 0, "process", base + sm)
        for row in tables.warps[["sm", "cta", "warp", "slot"]].to_numpy().tolist():
            sm, cta, warp, slot = row
            lines += _metadata(base + sm, slot + 1, "thread_name", f"CTA {cta} warp {warp}")
            lines += _sort(base + sm, slot + 1, "thread", slot)
        lines += _complete(tables, base, int(tables.summary["origin_ns"]) - first)
        lines += _instants(tables, base, int(tables.summary["origin_ns"]) - first)
    head = '{"displayTimeUnit":"ns","traceEvents":[\n'
    return (head + ",\n".join(lines) + "\n]}\n").encode()


def _metadata(pid: int, tid: int, kind: str, name: str) -> list[str]:
    return [f'{{"ph":"M","pid":{pid},"tid":{tid},"name":"{kind}","args":{{"name":{json.dumps(name)}}}}}']


def _sort(pid: int, tid: int, kind: str, index: int) -> list[str]:
    return [f'{{"ph":"M","pid":{pid},"tid":{tid},"name":"{kind}_sort_index","args":{{"sort_index":{index}}}}}']


def _complete(tables: TraceTables, base: int, shift: int) -> list[str]:
    table = spans(tables)
    names = [json.dumps(str(p)) for p in table["phase"].cat.categories]
    start = np.rint(table["start_ns"].to_numpy()).astype(np.int64)
    length = np.rint(table["end_ns"].to_numpy()).astype(np.int64) - start
    columns = (
        (start + shift).tolist(),
        length.tolist(),
        (table["sm"] + base).tolist(),
        (table["slot"] + 1).tolist(),
        table["phase"].cat.codes.tolist(),
        table["site"].tolist(),
    )
    return [
        f'{{"ph":"X","pid":{pid},"tid":{tid},"ts":{_us(ts)},"dur":{_us(dur)},"name":{names[code]},"args":{{"site":{site}}}}}'
        for ts, dur, pid, tid, code, site in zip(*columns, strict=True)
    ]


def _instants(tables: TraceTables, base: int, shift: int) -> list[str]:
    """Accesses: instants of their warp's thread, with the address."""
    found = accesses(tables)
    start = np.rint(found["t_ns"].to_numpy()).astype(np.int64) + shift
    columns = (
        start.tolist(),
        (found["sm"] + base).tolist(),
        (found["slot"] + 1).tolist(),
        [json.dumps(str(phase)) for phase in found["phase"]],
        found["site"].tolist(),
        found["address"].tolist(),
    )
    return [
        f'{{"ph":"i","s":"t","pid":{pid},"tid":{tid},"ts":{_us(ts)},"name":{name},"args":{{"site":{site},"address":"{address:#x}"}}}}'
        for ts, pid, tid, name, site, address in zip(*columns, strict=True)
    ]


def _us(ns: int) -> str:
    """Whole ns as exact decimal microseconds."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1000}.{ns % 1000:03d}"


def _frame(launches: Sequence[TraceTables], table: str) -> pd.DataFrame:
    parts = []
    for number, tables in enumerate(launches):
        if table == "events":
            part = tables.events
        elif table == "warps":
            part = tables.warps
        else:
            part = spans(tables)
            part.insert(0, "kernel", tables.kernel)
        part = part.assign(origin_ns=int(tables.summary["origin_ns"]))
        part.insert(0, "launch", number)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def to_csv(launches: Sequence[TraceTables], table: str = "spans") -> bytes:
    """One of the tables as CSV; ``*_ns`` columns count from ``origin_ns``, the global timer at the launch's start."""
    text: str = _frame(launches, table).to_csv(index=False, lineterminator="\n", float_format="%.3f")
    return text.encode()


def to_parquet(launches: Sequence[TraceTables], table: str = "spans") -> bytes:
    """One of the tables as Parquet; MissingTool XT6802 without pyarrow."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise MissingTool(
            "XT6802", "the Parquet writer is not installed", hint="pip install pyarrow, or use --format csv"
        ) from error
    out = io.BytesIO()
    _frame(launches, table).to_parquet(out, index=False, engine="pyarrow")
    return out.getvalue()


FORMATS: dict[str, Callable[[Sequence[TraceTables], str], bytes]] = {
    "perfetto": lambda launches, _: to_perfetto(launches),
    "chrome": lambda launches, _: to_chrome(launches),
    "parquet": to_parquet,
    "csv": to_csv,
}


def export(launches: Sequence[TraceTables], kind: str, table: str = "spans") -> bytes:
    """The launches in one of :data:`FORMATS`; ``table`` (one of :data:`TABLES`) matters for csv and parquet."""
    if kind not in FORMATS or table not in TABLES:
        raise BadInput("XT7801", f"no export of {table} as {kind}", hint=f"formats: {', '.join(FORMATS)}")
    return FORMATS[kind](launches, table)
