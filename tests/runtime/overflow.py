"""A launch that emits many more records than its rings hold: how it is made, and what must be true of its trace.

The kernel is the golden ``spin``: every warp passes the block barrier once a round, so its records are known exactly.
It is run on a GPU, or, record by record, by the verifier's interpreter on the islands that were really emitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tests.splice.conftest import image
from xtrace import isa
from xtrace.image import parse
from xtrace.isa.model import Instruction
from xtrace.runtime.buffers import SlotLayout, TraceBuffer
from xtrace.runtime.device import Device, LaunchConfig
from xtrace.runtime.patching import kernel_entry, patch_image
from xtrace.splice import Clocks, Options, SpliceResult, Stripes, apply, plan
from xtrace.trace import decode
from xtrace.verify.emulate import Warp, compile_word

KERNEL = "spin"
WANTED = 100  # records that the user wants a ring to keep
RING = 100  # events at least: rounded up to 2 KiB, so 128 packets of up to three records
CTAS, THREADS = 6, 64
UNDEFINED = 1  # what a register holds that no probe has set; it looks like a tag
CONFIG = LaunchConfig((CTAS, 1, 1), (THREADS, 1, 1))
# Probes, rounds, records a round: 10,000 records a warp (10,002 in threes).
CASES = {
    "one": ("op:BAR.SYNC*", 10_000, 1),
    "two": ("pp", 5_000, 2),
    "three": ("pc:0x270,pp", 3_334, 3),
    "five": ("pc:0xf0,pc:0x270,pc:0x280,pp", 2_000, 5),  # several packets a round
}
# The same with the slots of all warps interleaved; in "five" one packet has short clocks.
STRIPED = {"three": CASES["three"], "five": CASES["five"]}
# One more, for a GPU alone: one record of each round stands where the lanes of a warp are apart.
DIVERGENT = {"apart": ("pc:0x1f0,pc:0x1c0,op:BAR.SYNC*", 5_000, 2)}


@dataclass(frozen=True)
class Launch:
    """What is left after a launch: the decoder's tables, what is beside the rings, the outputs."""

    events: pd.DataFrame
    warps: pd.DataFrame
    summary: dict[str, Any]
    guards_intact: bool
    stray: int  # non-zero bytes of the slots behind ring and slack
    outputs: bytes
    entry: Mapping[str, Any]

    def sites(self, slot: int) -> list[int]:
        return self.events.loc[self.events["slot"] == slot, "site"].tolist()


def spliced(probes: str, records: int, *, striped: bool = False) -> SpliceResult:
    loaded = image(KERNEL)
    how = (Clocks.SHORT, Stripes.ON) if striped else (Clocks.FULL, Stripes.OFF)
    options = Options(records, clocks=how[0], stripes=how[1])
    return apply(plan(loaded, [loaded.kernel(KERNEL)], probes, options))


def traced_launch(
    device: Device, result: SpliceResult, run: Callable[[bytes], bytes], slots: int = CONFIG.warps
) -> Launch:
    """``run`` launches the patched image once and gives its outputs back."""
    entry = kernel_entry(result.map, KERNEL)
    with TraceBuffer(device, SlotLayout.of(entry["slot"]), slots) as buffer:
        outputs = run(patch_image(result.data, result.map, {KERNEL: buffer.target}))
        guards = buffer.guards_intact()
        trace = buffer.read()
        stray, at = 0, buffer.slot.ring + buffer.slot.slack
        if at < buffer.slot.stride:
            rows = device.download_rows(buffer.address + at, buffer.slot.stride, buffer.slot.stride - at, slots)
            stray = int(np.count_nonzero(np.frombuffer(rows, np.uint8)))
    tables = decode(trace.data, trace.map_for(result.map, KERNEL, CONFIG.block), KERNEL, grid=CONFIG.grid)
    return Launch(tables.events, tables.warps, dict(tables.summary), guards, stray, outputs, entry)


def kept(small: Launch, sites: Sequence[int]) -> int:
    """How many of the records at these sites, the newest of them, fit in the ring of ``small``, packet by packet."""
    packets = {packet["sites"][0]: packet["sites"] for packet in small.entry["packets"]}
    stripe = small.entry["slot"].get("stripe")
    begun: list[Sequence[int]] = []
    at = 0
    while at < len(sites):
        begun.append(packets[sites[at]])
        assert list(sites[at : at + len(begun[-1])]) == list(begun[-1])
        at += len(begun[-1])
    room, records = small.entry["slot"]["ring"], 0
    while begun and (size := stripe or 16 * (len(begun[-1]) // 4 + 1)) <= room:
        room -= size
        records += len(begun.pop())
    return records


def check(small: Launch, whole: Launch, emitted: int, slots: int = CONFIG.warps) -> None:
    """``small`` overflowed, ``whole`` (same probes, larger rings) did not: the newest records are the same ones."""
    assert small.guards_intact
    assert small.stray == 0, "a ring ran into what lies behind its slack"
    capacity = kept(small, whole.sites(0))
    assert WANTED <= capacity < emitted // 2
    warps = small.warps.set_index("slot")
    assert sorted(warps.index) == list(range(slots))
    assert warps["emitted"].tolist() == [emitted] * slots
    assert warps["dropped"].tolist() == [emitted - capacity] * slots
    assert warps["written"].tolist() == [capacity] * slots
    assert whole.summary["dropped"] == 0
    for slot in range(slots):
        mine = small.events[small.events["slot"] == slot]
        assert mine["seq"].tolist() == list(range(emitted - capacity, emitted))
        assert whole.sites(slot)[-capacity:] == mine["site"].tolist()
        clock = mine["clock"].to_numpy()
        assert (np.diff(clock.astype(np.int64)) > 0).all()
        begin, end = int(warps.loc[slot, "clock_entry"]), int(warps.loc[slot, "clock_exit"])
        # More than half of the rounds were over when the oldest kept record was written: an old lap's would be earlier.
        assert begin + (end - begin) // 2 < clock[0]
        assert clock[-1] <= end


def interpret(device: Device, result: SpliceResult, patched: bytes, rounds: int) -> None:
    """Run every warp's islands as the kernel's control flow would; their stores go to ``device``'s memory."""
    entry = kernel_entry(result.map, KERNEL)
    kernel = parse(patched, KERNEL).kernel(KERNEL)
    code = isa.for_arch("sm_90a").decode(kernel.text)
    islands = _islands(entry, code)
    loop = [part for pc, part in islands if 0xF0 <= pc < 0x2C0]
    before = [part for pc, part in islands if pc < 0xF0]
    after = [part for pc, part in islands if pc >= 0x2C0]
    actions = {i.pc: compile_word(i) for _, part in islands for i in part}
    for number in range(CONFIG.warps):
        cta, warp_in_cta = divmod(number, CONFIG.warps_per_cta)
        special = {"SR_CTAID.X": cta, "SR_TID.X": 32 * warp_in_cta, "SR_VIRTUALSMID": cta, "SR_VIRTID": cta}
        special |= dict.fromkeys(("SR_CTAID.Y", "SR_CTAID.Z", "SR_TID.Y", "SR_TID.Z", "SR_LANEID"), 0)
        warp = Warp(special, {0x0: THREADS, 0x4: 1, 0x8: 1, 0xC: CTAS, 0x10: 1, 0x14: 1})
        for part in [*before, *(loop * rounds), *after]:
            warp.registers["P0"] = 1  # of the kernel: nobody leaves at its guarded EXIT
            for ins in part:
                actions[ins.pc](warp)
                while warp.stores:
                    store = warp.stores.pop(0)
                    words = (UNDEFINED if word is None else word for word in store.data)
                    data = b"".join(word.to_bytes(4, "little") for word in words)
                    device.upload(store.address, data.ljust(store.size, b"\0"))


def _islands(entry: Any, code: tuple[Instruction, ...]) -> list[tuple[int, list[Instruction]]]:
    """Inserted code in address order, with the original pc that it precedes."""
    out, shift = [], 0
    for island in sorted(entry["islands"], key=lambda x: x["pc"]):
        first = island["pc"] // 16 + shift
        out.append((int(island["pc"]), list(code[first : first + island["words"]])))
        shift += island["words"]
    return out
