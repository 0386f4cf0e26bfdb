"""Perfetto's protobuf format: a tree of tracks kernel -> SM -> CTA -> warp, phases as slices.

Written with the `perfetto` package's trace builder, which works offline (its trace processor, which does
not, is never touched). Each warp has a track of its own, so slices can never overlap; a phase without
extent, or one whose end is unknown, becomes an instant, and so does an access, with its address.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from xtrace.errors import MissingTool
from xtrace.trace.accesses import accesses
from xtrace.trace.spans import spans
from xtrace.trace.tables import TraceTables

__all__ = ["to_perfetto"]

_CLEARED, _NEEDED = 1, 2  # TracePacket.SequenceFlags
_BEGIN, _END, _INSTANT = 1, 2, 3  # TrackEvent.Type
_EXPLICIT = 3  # TrackDescriptor.ChildTracksOrdering
_SEQUENCE = 1


def to_perfetto(launches: Sequence[TraceTables]) -> bytes:
    """All launches as one trace; timestamps are the GPU's global timer in ns.

    Raises
    ------
    MissingTool
        XT6801 when the `perfetto` package is not installed.
    """
    try:
        from perfetto.trace_builder.proto_builder import TraceProtoBuilder  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingTool(
            "XT6801", "the Perfetto writer is not installed", hint="pip install perfetto, or use --format chrome"
        ) from error
    writer = _Writer(TraceProtoBuilder)
    for number, tables in enumerate(launches):
        writer.launch(number, tables)
    return writer.out.getvalue()


class _Writer:
    def __init__(self, builder: Any) -> None:
        self.builder = builder
        self.out = io.BytesIO()
        self.uuid = 0
        self.names: dict[str, int] = {}
        self.first = True

    def track(self, chunk: Any, name: str, parent: int, rank: int = 0) -> int:
        self.uuid += 1
        descriptor = self.packet(chunk).track_descriptor
        descriptor.uuid = self.uuid
        descriptor.name = name
        descriptor.child_ordering = _EXPLICIT
        descriptor.sibling_order_rank = rank
        if parent:
            descriptor.parent_uuid = parent
        return self.uuid

    def packet(self, chunk: Any) -> Any:
        packet = chunk.add_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.sequence_flags = _CLEARED | _NEEDED if self.first else _NEEDED
        self.first = False
        return packet

    def intern(self, chunk: Any, phases: Sequence[str]) -> list[int]:
        for phase in phases:
            if phase not in self.names:
                self.names[phase] = len(self.names) + 1
                entry = self.packet(chunk).interned_data.event_names.add()
                entry.iid = self.names[phase]
                entry.name = phase
        return [self.names[phase] for phase in phases]

    def launch(self, number: int, tables: TraceTables) -> None:
        chunk = self.builder()
        name = str(tables.summary.get("demangled") or tables.kernel)
        root = self.track(chunk, f"launch {number}: {name}"[:400], 0, number)
        table = spans(tables)
        iids = np.array(self.intern(chunk, [str(p) for p in table["phase"].cat.categories]), dtype=np.int64)
        origin = int(tables.summary["origin_ns"])
        table["start"] = np.rint(table["start_ns"]).astype(np.int64)
        table["end"] = np.rint(table["end_ns"]).astype(np.int64)
        table["iid"] = iids[table["phase"].cat.codes.to_numpy()]
        of_slot = dict(iter(table.groupby("slot", sort=False)))
        found = accesses(tables)
        found = found.assign(iid=[i for p in found["phase"] for i in self.intern(chunk, [str(p)])])
        made = dict(iter(found.groupby("slot", sort=False)))
        self.out.write(chunk.serialize())
        for sm in np.unique(tables.warps["sm"].to_numpy()).tolist():
            group = tables.warps[tables.warps["sm"] == sm]
            chunk = self.builder()
            sm_track = self.track(chunk, f"SM {sm}", root, sm)
            for rank, (cta, members) in enumerate(group.groupby("cta", sort=True)):
                cta_track = self.track(chunk, f"CTA {cta}", sm_track, rank)
                for warp, slot in zip(members["warp"].tolist(), members["slot"].tolist(), strict=True):
                    track = self.track(chunk, f"warp {warp}", cta_track, int(warp))
                    if slot in of_slot:
                        self.slices(chunk, track, of_slot[slot], origin)
                    if slot in made:
                        self.instants(chunk, track, made[slot], origin)
            self.out.write(chunk.serialize())

    def slices(self, chunk: Any, track: int, table: pd.DataFrame, origin: int) -> None:
        columns = (table[c].tolist() for c in ("start", "end", "iid"))
        for start, end, iid in zip(*columns, strict=True):
            self.event(chunk, track, origin + start, _BEGIN if end > start else _INSTANT, iid)
            if end > start:
                self.event(chunk, track, origin + end, _END, 0)

    def instants(self, chunk: Any, track: int, table: pd.DataFrame, origin: int) -> None:
        """Accesses, with the address as an argument."""
        times = np.rint(table["t_ns"].to_numpy()).astype(np.int64).tolist()
        for time, iid, address in zip(times, table["iid"].tolist(), table["address"].tolist(), strict=True):
            note = self.event(chunk, track, origin + time, _INSTANT, iid).debug_annotations.add()
            note.name = "address"
            note.pointer_value = address

    def event(self, chunk: Any, track: int, timestamp: int, kind: int, iid: int) -> Any:
        packet = chunk.add_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.sequence_flags = _NEEDED
        packet.timestamp = max(timestamp, 0)
        event = packet.track_event
        event.type = kind
        event.track_uuid = track
        if iid:
            event.name_iid = iid
        return event
