"""A small model of a GPU that fills a trace buffer as decision 0001 describes, packet by packet.

The kernel looks like a warp-specialised flash attention: three warp groups per CTA, of which the
first has one producer warp (copies) and three idle ones, and the other two compute in turns. Each SM
has its own clock zero; the global timer only moves in 32 ns steps. The truth is kept beside the bytes,
and the writer shares no code with the decoder.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

KERNEL = "_Z9flash_fwdPv"
PHASES = [
    ("entry", "S2R"),
    ("wait for slot", "SYNCS.PHASECHK"),
    ("issue copy", "UTMALDG"),
    ("wait for Q", "SYNCS.PHASECHK"),
    ("wait for K", "SYNCS.PHASECHK"),
    ("QK matrix", "HGMMA"),
    ("softmax", "MUFU.EX2"),
    ("wait for V", "SYNCS.PHASECHK"),
    ("PV matrix", "HGMMA"),
    ("epilogue", "STG.E"),
]
SITE = {name: k + 1 for k, (name, _) in enumerate(PHASES)}
# The events that one basic block of the kernel writes together; every other phase has a packet of its own.
PACKETS = (("wait for slot", "issue copy"), ("wait for K", "QK matrix", "softmax", "wait for V", "PV matrix"))
HEADER_BYTES = 32
SLACK = 512
LOW = 0xFFFFFFFF
UNDEFINED = 7  # what stands before the clocks of a packet: it means nothing, even if it is somebody's tag


def trace_map(
    *, ring: int = 4096, stride: int = 0, packets: Sequence[Sequence[str]] = PACKETS, name: str = KERNEL
) -> dict[str, Any]:
    stride = stride or 1 << (ring + SLACK - 1).bit_length()
    shared = {phase for packet in packets for phase in packet}
    every = [*packets, *([phase] for phase in SITE if phase not in shared)]
    return {
        "schema": "xtrace/map/2",
        "xtrace": "0.1.0",
        "arch": "sm_90a",
        "probes": "pp",
        "input": {"name": "a.cubin", "sha256": "0" * 64},
        "output": {"sha256": "1" * 64},
        "kernels": [
            {
                "name": name,
                "demangled": "flash_fwd(void*)",
                "sites": [
                    {"id": k + 1, "pc": 0x100 * (k + 1), "op": op, "phase": phase, "probe": "time"}
                    for k, (phase, op) in enumerate(PHASES)
                ],
                "packets": [
                    {"tag": 7 + 4000 * k, "sites": [SITE[phase] for phase in packet]} for k, packet in enumerate(every)
                ],
                "slot": {"stride": stride, "ring": ring, "record": 4, "header_bytes": HEADER_BYTES},
            }
        ],
    }


@dataclass
class Warp:
    """One warp of the model: knows its SM's clock, writes packets into its slot and, at its exit, its header."""

    slot: int
    sm: int
    clock0: int  # SM clock at time 0 of the model
    mhz: float
    map: dict[str, Any]
    start_ns: int = 1 << 20  # global timer at time 0 of the model
    records: list[tuple[int, int]] = field(default_factory=list)  # truth: (site, clock)
    packets: list[tuple[int, int]] = field(default_factory=list)  # truth: (offset, events)
    offset: int = 0
    data: bytearray = field(default_factory=bytearray)
    header: bytearray = field(default_factory=lambda: bytearray(HEADER_BYTES))
    entered: tuple[int, int] = (0, 0)  # truth: (global timer, clock)

    def __post_init__(self) -> None:
        self.layout = self.map["kernels"][0]["slot"]
        self.data = bytearray(self.layout["stride"])
        self.tags = {tuple(packet["sites"]): packet["tag"] for packet in self.map["kernels"][0]["packets"]}

    def clock(self, t_ns: float) -> int:
        return self.clock0 + int(t_ns * self.mhz / 1000)

    def timer(self, t_ns: float) -> int:
        return (self.start_ns + int(t_ns)) // 32 * 32

    def enter(self, t_ns: float) -> None:
        self.entered = (self.timer(t_ns), self.clock(t_ns))

    def group(self, *records: tuple[str, float]) -> None:
        """Write records as one packet: only the place where it starts is taken modulo the ring."""
        sites, clocks = [SITE[phase] for phase, _ in records], [self.clock(t_ns) for _, t_ns in records]
        words = [clock & LOW for clock in clocks] + [self.tags[tuple(sites)]]
        while len(words) % 4:
            words.insert(0, UNDEFINED)
        struct.pack_into(f"<{len(words)}I", self.data, self.offset % self.layout["ring"], *words)
        self.packets.append((self.offset, len(records)))
        self.offset += 4 * len(words)
        self.records += zip(sites, clocks, strict=True)

    @property
    def kept(self) -> int:
        """Records of the newest packets that began less than a ring's length before the end."""
        return sum(events for offset, events in self.packets if offset >= self.offset - self.layout["ring"])

    def leave(self, t_ns: float) -> None:
        timer, clock = self.entered
        low = (timer & LOW, clock & LOW, (len(self.records) << 8 | self.sm) & LOW, 0x1000)
        struct.pack_into("<4I", self.header, 0, *low)
        struct.pack_into("<QII", self.header, 16, self.timer(t_ns), self.clock(t_ns) & LOW, self.offset)


def buffer_of(warps: Sequence[Warp]) -> bytes:
    """What these warps leave in device memory: their slots and the spill-over slot, then as many headers."""
    slots = b"".join(bytes(w.data) for w in warps) + bytes(len(warps[0].data))
    return slots + b"".join(bytes(w.header) for w in warps) + bytes(HEADER_BYTES)


def table_start(buffer: bytes, trace_map_: dict[str, Any]) -> int:
    """Where the headers begin in such a buffer."""
    stride = trace_map_["kernels"][0]["slot"]["stride"]
    return len(buffer) // (stride + HEADER_BYTES) * stride


@dataclass
class Launch:
    map: dict[str, Any]
    buffer: bytes
    warps: list[Warp]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    start_ns: int

    def known(self, warp: Warp) -> list[tuple[int, int]]:
        """The warp's records ``(site, clock)`` as far as headers with low halves tell: less the multiple of
        2**32 that was on its SM's clock when the first warp there entered."""
        base = min(w.entered[1] for w in self.warps if w.sm == warp.sm) & ~LOW
        return [(site, clock - base) for site, clock in warp.records]


def attention(
    *,
    ctas: int = 4,
    sms: int = 2,
    tiles: int = 12,
    ring: int = 4096,
    seed: int = 1,
    start_ns: int = 1_790_000_000_000_000_000,
    mhz: float = 1980.0,
    clock0: list[int] | None = None,
) -> Launch:
    """Run the model. Times within an SM's CTAs follow one another; CTAs on different SMs run side by side."""
    rng = random.Random(seed)
    layout = trace_map(ring=ring)
    zero = clock0 or [rng.randrange(1 << 40) for _ in range(sms)]
    free_at = [rng.uniform(0, 400) for _ in range(sms)]
    warps: list[Warp] = []
    for cta in range(ctas):
        sm = cta % sms
        begin = free_at[sm]
        team = [Warp(cta * 12 + w, sm, zero[sm], mhz, layout, start_ns) for w in range(12)]
        for warp in team:
            warp.enter(begin + warp.slot % 12 * 9)
        end = _run_cta(team, begin, tiles, rng)
        free_at[sm] = end + 900
        warps += team
    return Launch(layout, buffer_of(warps), warps, (ctas, 1, 1), (384, 1, 1), start_ns)


def _run_cta(team: list[Warp], begin: float, tiles: int, rng: random.Random) -> float:
    """One CTA. The tensor core serves one warp group at a time, so the two consumers fall into turns."""
    depth = 2
    ready = [begin + 900 + rng.uniform(0, 80)]  # tile arrival times
    t = begin + 250
    producer = team[0]
    consumed: list[float] = []
    groups = {1: begin + 300.0, 2: begin + 330.0}
    tensor_free = begin
    for group in groups:
        for warp in team[4 * group : 4 * group + 4]:
            warp.group(("entry", begin + 150 + warp.slot % 4 * 7))
            warp.group(("wait for Q", groups[group] - 60 + warp.slot % 4 * 5))
    producer.group(("entry", begin + 120))
    for tile in range(tiles):
        free = consumed[tile - depth] if tile >= depth else t
        issue = max(t, free)
        producer.group(("wait for slot", t), ("issue copy", issue))
        t = issue + 90 + rng.uniform(0, 15)
        arrival = issue + 640 + rng.uniform(0, 120)
        ready.append(arrival)
        for group in groups:
            now = groups[group]
            start_k = max(now, ready[tile], tensor_free)
            qk_end = start_k + 330 + rng.uniform(0, 12)
            tensor_free = qk_end
            softmax_end = qk_end + 410 + rng.uniform(0, 30)
            start_v = max(softmax_end, ready[tile] + 60) + rng.choice([0, 40, 160])
            pv_start = max(start_v, tensor_free if tile else start_v)
            pv_end = pv_start + 340 + rng.uniform(0, 12)
            tensor_free = max(tensor_free, pv_end - 300)
            for warp in team[4 * group : 4 * group + 4]:
                jitter = warp.slot % 4 * 4 + rng.uniform(0, 3)
                warp.group(
                    ("wait for K", now + jitter),
                    ("QK matrix", start_k + jitter),
                    ("softmax", qk_end + jitter),
                    ("wait for V", softmax_end + jitter),
                    ("PV matrix", pv_start + jitter),
                )
            groups[group] = pv_end + 20
        consumed.append(max(groups.values()))
    end = max(groups.values())
    producer.leave(t + 60)
    for warp in team[1:4]:
        warp.group(("entry", begin + 130))
        warp.leave(begin + 240)
    for group in groups:
        for warp in team[4 * group : 4 * group + 4]:
            warp.group(("epilogue", groups[group] + 15 + warp.slot % 4 * 4))
            warp.leave(end + 480 + warp.slot % 4 * 11)
    return end + 540
