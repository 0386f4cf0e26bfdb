"""A simulated device that takes real images, so that measuring jobs can be rehearsed where there is no GPU.

It never executes a kernel: a launch marks the start of every buffer that it is given, lets the virtual clock run, and,
for a traced image, leaves what its trace map promises (a header for every sampled warp, one record for every site). All
its numbers are make-believe. Its name and its driver, ``simulated``, stand in the provenance of everything that is
measured on it, and :mod:`xtrace.cli.results` never mixes that with real results.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from xtrace import image as images
from xtrace.runtime.buffers import SlotLayout
from xtrace.runtime.device import LaunchConfig
from xtrace.runtime.failures import driver_error
from xtrace.runtime.params import PackedParams, pack
from xtrace.runtime.simulated import INFO, SimulatedDevice, WarpTrace, write_trace
from xtrace.sampling import Sampling

__all__ = ["DRIVER", "SimulatedMachine"]

DRIVER = "simulated"
MARK_BYTES = 64  # of every buffer, so that a launch is seen to have written its outputs
TRACED_COST = 1.005
ADDRESS_HIGH = 0x7F00  # high half of every address that a simulated trace holds


@dataclass(frozen=True)
class TraceTarget:
    """Where a traced kernel writes, and what its map says about it."""

    address: int
    table: int
    slots: int
    entry: Mapping[str, Any]


@dataclass
class MachineKernel:
    """A kernel of a loaded image."""

    device: SimulatedMachine
    name: str
    target: TraceTarget | None

    def prepare(self, params: Sequence[tuple[str, int | float]]) -> PackedParams:
        return pack(params)

    def launch(self, config: LaunchConfig, prepared: PackedParams) -> None:
        mark = hashlib.sha256(self.name.encode()).digest() * (MARK_BYTES // 32)
        for kind, value in prepared.params:
            if value and (kind == "ptr" or kind.startswith("*")):
                self.device.poke(int(value), mark)
        # From the name alone: original and copies take equally long, whichever process asks.
        base = 60_000.0 + zlib.crc32(self.name.encode()) % 100_000
        cost = TRACED_COST if self.target else 1.0
        self.device.now_ns += base * cost * self.device.rng.gauss(1.0, 0.001)
        if self.target is not None:
            self._trace(self.target, config)

    def _trace(self, target: TraceTarget, config: LaunchConfig) -> None:
        clock, packets = 200, []
        for packet in target.entry["packets"]:
            clocks = range(clock, clock + 10 * len(packet.get("clocks", packet["sites"])), 10)
            addresses = [half for n in packet.get("addresses", ()) for half in (16 * n, ADDRESS_HIGH)]
            pad = [0] if addresses and len(clocks) % 2 == 0 else []
            words = _short(clocks) if packet.get("short_clocks") else [*addresses, *pad, *clocks]
            packets.append((int(packet["tag"]), words, len(packet["sites"])))
            clock = clocks.stop
        start = int(self.device.now_ns) + 1_000
        warp = WarpTrace(t_entry_ns=start, t_exit_ns=start + 1_000, clock_exit=clock + 100, packets=packets)
        rule, width, sms = Sampling.of_kernel(target.entry), config.warps_per_cta, self.device.info.multiprocessors
        warps = [replace(warp, sm=n % sms) if rule.takes(n // width, n % width) else None for n in range(config.warps)]
        layout = SlotLayout.of(target.entry["slot"])
        write_trace(self.device, target.address, target.table, target.slots, layout, warps)


def _short(clocks: Sequence[int]) -> list[int]:
    """Words of a packet with short clocks."""
    first, *between, last = clocks
    halves = [clock & 0xFFFF for clock in between] + [0] * (len(between) % 2)
    return [*(low | high << 16 for low, high in zip(halves[::2], halves[1::2], strict=True)), first, last]


@dataclass
class MachineModule:
    """A loaded image."""

    device: SimulatedMachine
    names: tuple[str, ...]
    targets: Mapping[str, TraceTarget]

    def kernel(self, name: str) -> MachineKernel:
        if name not in self.names:
            raise driver_error(500, "CUDA_ERROR_NOT_FOUND", "looking up the kernel", name)
        return MachineKernel(self.device, name, self.targets.get(name))

    def unload(self) -> None:
        self.device.unloads += 1


@dataclass
class SimulatedMachine(SimulatedDevice):
    """See the module. ``maps`` is a folder below which the trace maps of traced images lie."""

    maps: Path = Path("results")
    rng: random.Random = field(default_factory=random.Random)

    @classmethod
    def open(cls, ordinal: int = 0) -> SimulatedMachine:
        """The device that a scheduler gave to this process: every visible number is a GPU with a UUID of its own."""
        visible = re.findall(r"\d+", os.environ.get("CUDA_VISIBLE_DEVICES", ""))
        number = int(visible[ordinal]) if ordinal < len(visible) else ordinal
        uuid = f"GPU-00000000-0000-0000-0000-{number:012d}"
        info = replace(INFO, uuid=uuid, driver=DRIVER, memory_bytes=16 << 30)
        return cls(info=info, rng=random.Random(os.getpid()))

    def load(self, image: bytes) -> Any:
        kernels = images.parse(image, "image").kernels
        return MachineModule(self, tuple(k.name for k in kernels), self._targets(image))

    def _targets(self, image: bytes) -> dict[str, TraceTarget]:
        """Buffers of the traced kernels of ``image``: it is the output of some trace map, but for the patched words."""
        for path in sorted(self.maps.glob("**/*.map.json")):
            trace_map = json.loads(path.read_bytes())
            clean, words = bytearray(image), {}
            for entry in trace_map["kernels"]:
                for patch in entry["patches"]:
                    at = int(patch["offset"])
                    words[entry["name"], patch["value"]] = int.from_bytes(image[at : at + 4], "little")
                    clean[at : at + 4] = bytes(len(clean[at : at + 4]))
            if hashlib.sha256(clean).hexdigest() == trace_map["output"]["sha256"]:
                return {e["name"]: target for e in trace_map["kernels"] if (target := _target(e, words)).table}
        return {}


def _target(entry: Mapping[str, Any], words: Mapping[tuple[str, str], int]) -> TraceTarget:
    def word(value: str) -> int:
        return words.get((entry["name"], value), 0)

    address = word("buffer_hi") << 32 | word("buffer_lo")
    table = word("header_hi") << 32 | word("header_lo")
    return TraceTarget(address, table, word("slot_count"), entry)
