"""What faults are planted in: a traced image of one kernel, taken apart without the verifier's help.

A mutator gets a subject and a random generator and returns a mutant, or ``None`` where the subject has no place for
its fault. The hash in the map is always brought along, so that no mutant is caught by it alone.
"""

from __future__ import annotations

import copy
import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from xtrace import isa
from xtrace.image import Image, Kernel, parse
from xtrace.isa.model import Flow, Instruction

CODE = ("instructions", "targets", "liveness", "hazards", "effects")


@dataclass(frozen=True)
class Mutant:
    """A damaged pair and the promises of which at least one must be reported as broken."""

    data: bytes
    map: dict[str, Any]
    what: str
    expected: tuple[str, ...]


class Subject:
    """A traced image of one kernel, taken apart without the verifier's help."""

    def __init__(
        self, label: str, original: bytes, data: bytes, trace_map: dict[str, Any], kernel: str, *, tight: bool = True
    ) -> None:
        self.tight = tight  # no probe word stalls longer than a dependence asks for
        self.label, self.original, self.data, self.map = label, original, data, trace_map
        self.before: Image = parse(original, label)
        self.after: Image = parse(data, label)
        self.old: Kernel = self.before.kernel(kernel)
        self.new: Kernel = self.after.kernel(kernel)
        self.model = isa.for_arch(self.before.arch)
        self.claim = next(k for k in trace_map["kernels"] if k["name"] == kernel)

    @cached_property
    def code(self) -> tuple[Instruction, ...]:
        return self.model.decode(self.old.text)

    @cached_property
    def traced(self) -> tuple[Instruction, ...]:
        return self.model.decode(self.new.text)

    @cached_property
    def position(self) -> list[int]:
        """Traced index of each original instruction."""
        words = {i["pc"] // 16: i["words"] for i in self.claim["islands"]}
        result, shift = [], self.copied
        for i in range(len(self.code)):
            shift += words.get(i, 0)
            result.append(i + shift)
        return result

    @cached_property
    def copied(self) -> int:
        """Words of the second copy of the code, which stands in front of the first instruction."""
        return int((self.claim.get("copy") or {"words": 0})["words"])

    @cached_property
    def islands(self) -> list[tuple[int, range]]:
        """(original index of the site, traced indices of the island)."""
        found = []
        for island in self.claim["islands"]:
            i = island["pc"] // 16
            end = self.position[i] - (0 if i else self.copied)
            found.append((i, range(end - island["words"], end)))
        return found

    @cached_property
    def probes(self) -> list[tuple[int, int]]:
        """(traced index, original index of the site) of every probe word."""
        return [(j, i) for i, island in self.islands for j in island]

    def ends(self, i: int) -> bool:
        """Whether the warp certainly ends with original instruction i."""
        return self.code[i].flow is Flow.EXIT and not self.code[i].guard

    def code_in(self, data: bytes) -> bytes:
        """The kernel's code in a damaged copy of the traced image."""
        return data[self.new.offset : self.new.offset + len(self.new.text)]

    def words(self) -> list[int]:
        return [ins.word for ins in self.traced]

    def mutant(
        self, words: list[int], what: str, *expected: str, claim: Callable[[dict[str, Any]], None] | None = None
    ) -> Mutant:
        text = b"".join(w.to_bytes(16, "little") for w in words)
        assert len(text) == len(self.new.text)
        data = self.data[: self.new.offset] + text + self.data[self.new.offset + len(text) :]
        return self.file(data, what, *expected, claim=claim)

    def file(
        self, data: bytes, what: str, *expected: str, claim: Callable[[dict[str, Any]], None] | None = None
    ) -> Mutant:
        assert len(data) == len(self.data), "a fault moves nothing in the file"
        changed = copy.deepcopy(self.map)
        changed["output"]["sha256"] = hashlib.sha256(data).hexdigest()
        if claim is not None:
            claim(next(k for k in changed["kernels"] if k["name"] == self.new.name))
        return Mutant(data, changed, f"{self.label}: {what}", expected)


Mutator = Callable[[Subject, random.Random], Mutant | None]
