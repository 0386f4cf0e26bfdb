"""A writer of packets that follows decision 0001 word by word; what it keeps is known without reading anything back.

It also knows where a reader cannot tell one packet's end from another's remains: there, and only there, older packets
are given up.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

KERNEL = "k"
BEGIN = 1 << 20  # above all tags: a clock that equals one has a test of its own


@dataclass
class Written:
    """A packet: what it starts and ends at in quads, and its clocks."""

    start: int
    end: int
    clocks: list[int]

    def shows(self, limit: int) -> bool:
        """Whether a clock from ``limit`` on is not 0."""
        return any(self.clocks[::-1][: max(4 * (self.end - limit) - 1, 0)])


@dataclass
class Case:
    """Warps that wrote packets (by index into ``sizes``) into rings of ``ring`` bytes."""

    ring: int
    slack: int
    sizes: list[int]
    tags: list[int]
    warps: list[list[int]]
    seed: int
    skipping: bool = False  # events other than a packet's last may not happen
    torn: bool = False  # packets may begin or end amid, as the first and the last of a loop do
    empty: int = 0  # percent of the packets in which nothing happened, as of a loop that was not entered
    truth: list[list[tuple[int, int, int]]] = field(default_factory=list)  # per warp: seq, site, clock of what is kept
    given_up: list[int] = field(default_factory=list)  # per warp: of what is kept, the oldest that may be given up
    given_up_quads: list[int] = field(default_factory=list)  # the size of their packets
    emitted: list[int] = field(default_factory=list)  # per warp

    def map(self) -> dict[str, Any]:
        ids = iter(range(1, 1000))
        packets = [
            {"tag": tag, "sites": [next(ids) for _ in range(n)]} for tag, n in zip(self.tags, self.sizes, strict=True)
        ]
        sites = [{"id": i, "pc": 16 * i, "op": "NOP", "phase": "p"} for i in range(1, next(ids))]
        slot = {"stride": self.ring + self.slack, "ring": self.ring, "record": 4, "header_bytes": 32}
        kernel = {"name": KERNEL, "sites": sites, "packets": packets, "slot": slot}
        return {"schema": "xtrace/map/2", "kernels": [kernel]}

    def buffer(self) -> bytes:
        rng = random.Random(self.seed)
        packets = self.map()["kernels"][0]["packets"]
        slots, headers = [], []
        for picks in self.warps:
            data, offset, clock, events = bytearray(self.ring + self.slack), 0, BEGIN, 0
            begun: list[tuple[int, int, int, int]] = []
            written: list[Written] = []
            for pick in picks:
                clocks = []
                sites = packets[pick]["sites"]
                size = len(sites) // 4 + 1
                spare = len(sites) - size  # at least one event for each quad happens
                first, last = 0, len(sites)
                if self.torn and last > 1 and rng.random() < 0.3:
                    cut = rng.randrange(1, last)
                    first, last = rng.choice([(cut, last), (0, cut)])
                if self.empty and rng.random() < self.empty / 100:
                    last = 0
                for k, site in enumerate(sites):
                    if not first <= k < last:
                        clocks.append(0)
                        continue
                    if self.skipping and spare and site != sites[-1] and rng.random() < 0.4:
                        spare -= 1
                        clocks.append(0)
                        continue
                    clock += rng.choice([1, 7, 300, 5000])
                    clocks.append(clock)
                    begun.append((offset, events, site, clock))
                    events += 1
                undefined = [rng.choice([0, rng.choice(self.tags), clock, rng.getrandbits(32)]) for _ in range(3)]
                words = [*undefined[: 4 * size - len(clocks) - 1], *clocks, packets[pick]["tag"]]
                struct.pack_into(f"<{4 * size}I", data, offset % self.ring, *words)
                written.append(Written(offset // 16, offset // 16 + size, clocks))
                offset += 16 * size
            headers.append(
                struct.pack("<4IQII", 32_000, BEGIN - 5, (events & 0xFFFFFF) << 8 | 131, 0, 64_000, clock + 9, offset)
            )
            self.emitted.append(events)
            told = 16 * self.nobody_can_tell(data, written) if self.torn or self.empty else 0
            self.truth.append([(seq, site, t) for start, seq, site, t in begun if start >= offset - self.ring])
            self.given_up.append(sum(offset - self.ring <= start < told for start, *_ in begun))
            lost = [x.end - x.start for x in written if offset - self.ring <= 16 * x.start < told and any(x.clocks)]
            self.given_up_quads.append(sum(lost))
            slots.append(bytes(data))
        return b"".join(slots) + bytes(self.ring + self.slack) + b"".join(headers) + bytes(32)

    def nobody_can_tell(self, data: bytes, written: list[Written]) -> int:
        """The newest end (in quads) of a packet and of another's remains that the clocks left do not tell apart; or 0.

        One of the two shows no clock, and none that is known to be younger than a lap stands before the packet and
        before the start of what ends in the slack.
        """
        words = np.frombuffer(data, "<u4")
        ring, overhang = self.ring // 16, min(self.slack // 16, 7)
        limit = max(written[-1].end - ring, 0) if written else 0
        events = dict(zip(self.tags, self.sizes, strict=True))
        for packet in reversed(written):
            if packet.start < limit:
                return 0
            place = (packet.end - 1) % ring + 1
            ends: dict[int, tuple[int, bool]] = {}  # by laps past the ring: quads, whether a clock is left
            for laps in range(overhang + 1):
                behind = place + laps * ring
                if laps and (behind - ring > overhang or packet.end <= laps * ring):
                    break
                n = events.get(int(words[4 * behind - 1]), 0)
                left = min(n, 4 * (packet.end - limit) - 1)
                if n and behind - ring < n // 4 + 1 <= behind:
                    ends[laps] = n // 4 + 1, bool(words[4 * behind - 1 - left : 4 * behind - 1].any())
            if len(ends) < 2 or all(shows for _, shows in ends.values()):
                continue
            if set(ends) != {0, 1}:
                return packet.end
            quads, slack_shows = ends[1]
            up_to, low = packet.start if slack_shows else packet.end - quads, packet.end - place - ring + overhang
            if not any(x.shows(limit) for x in written if max(limit, low) < x.end <= up_to):
                return packet.end
        return 0


@st.composite
def cases(draw: st.DrawFn) -> Case:
    ring = 1 << draw(st.integers(5, 10))
    sizes = draw(st.lists(st.integers(1, 15), min_size=1, max_size=6))
    tags = draw(st.lists(st.integers(1, 65535), min_size=len(sizes), max_size=len(sizes), unique=True))
    picks = st.lists(st.integers(0, len(sizes) - 1), max_size=draw(st.sampled_from([3, 40, 200])))
    slack = draw(st.sampled_from([48, 64, 512]))
    return Case(
        ring,
        slack,
        sizes,
        tags,
        draw(st.lists(picks, min_size=1, max_size=3)),
        draw(st.integers(0, 1 << 30)),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.sampled_from([0, 0, 10, 50, 95])),
    )
