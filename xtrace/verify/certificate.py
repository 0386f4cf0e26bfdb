"""The verifier's verdict: which promises hold for a traced image, and a witness for each that does not."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

__all__ = ["PROMISES", "SCHEMA", "Certificate", "Findings", "KernelCounts", "Promise", "Status", "Witness"]

SCHEMA = "xtrace/certificate/1"

# A damaged image can break one promise thousands of times; the certificate keeps the count and the first few.
_WITNESSES_KEPT = 8


class Promise(StrEnum):
    """Stable names of the promises, see docs/decisions/0001 and DESIGN.md section 1."""

    INSTRUCTIONS = "instructions"
    TARGETS = "targets"
    LIVENESS = "liveness"
    HAZARDS = "hazards"
    EFFECTS = "effects"
    RESOURCES = "resources"
    WELLFORMED = "wellformed"


PROMISES: tuple[Promise, ...] = tuple(Promise)


class Status(StrEnum):
    """Outcome of one promise. ``NOT-CHECKED`` never counts as a pass."""

    PASS = "PASS"  # noqa: S105 - a verdict, not a password
    FAIL = "FAIL"
    NOT_CHECKED = "NOT-CHECKED"


@dataclass(frozen=True, slots=True)
class Witness:
    """One reason why a promise does not hold or could not be checked.

    ``pc`` is the byte offset in the traced kernel's text unless ``side`` says ``original``.
    """

    promise: Promise
    kernel: str
    why: str
    pc: int | None = None
    instruction: str = ""
    side: str = "traced"

    def to_dict(self) -> dict[str, Any]:
        return {
            "promise": str(self.promise),
            "kernel": self.kernel,
            "pc": self.pc,
            "side": self.side,
            "instruction": self.instruction,
            "why": self.why,
        }

    def __str__(self) -> str:
        place = "" if self.pc is None else f" {self.side} pc {self.pc:#x}"
        text = f" `{self.instruction}`" if self.instruction else ""
        return f"{self.kernel[:60]}{place}{text}: {self.why}"


@dataclass(slots=True)
class KernelCounts:
    """What the verifier counted in one kernel (words are 16-byte instructions)."""

    name: str
    instructions: int = 0  # original instructions
    identical: int = 0  # found again bit for bit
    retargeted: int = 0  # found again, only the code-address field differs
    probe_words: int = 0  # words that the original does not have
    padding_words: int = 0  # unreachable filler behind the last original instruction
    copied_words: int = 0  # a second, untouched copy of the original, for warps that are not sampled
    control_changed: int = 0  # original instructions whose scheduling bits differ

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "original_instructions": self.instructions,
            "identical_words": self.identical,
            "retargeted_words": self.retargeted,
            "probe_words": self.probe_words,
            "padding_words": self.padding_words,
            "copied_words": self.copied_words,
            "kernel_control_fields_changed": self.control_changed,
        }


class Findings:
    """Collects witnesses while the checks run."""

    def __init__(self) -> None:
        self.failures: list[Witness] = []
        self.skipped: list[Witness] = []
        self.counts: Counter[tuple[str, Promise]] = Counter()

    def fail(
        self,
        promise: Promise,
        kernel: str,
        why: str,
        pc: int | None = None,
        instruction: str = "",
        side: str = "traced",
    ) -> None:
        """Record that ``promise`` is broken in ``kernel`` (empty for the whole file)."""
        self.counts[kernel, promise] += 1
        if self.counts[kernel, promise] <= _WITNESSES_KEPT:
            self.failures.append(Witness(promise, kernel, why, pc, instruction, side))

    def skip(self, promise: Promise, kernel: str, why: str) -> None:
        """Record that ``promise`` could not be checked in ``kernel``."""
        self.skipped.append(Witness(promise, kernel, why))

    def failed(self, promise: Promise, kernel: str | None = None) -> bool:
        return any(n for (k, p), n in self.counts.items() if p is promise and (kernel is None or k == kernel))

    def status(self, promise: Promise, kernel: str | None = None) -> Status:
        if self.failed(promise, kernel):
            return Status.FAIL
        if any(w.promise is promise and (kernel is None or w.kernel in (kernel, "")) for w in self.skipped):
            return Status.NOT_CHECKED
        return Status.PASS


@dataclass(frozen=True)
class Certificate:
    """What ``verify`` found about one pair of images."""

    input_sha256: str
    output_sha256: str
    xtrace: str
    map_sha256: str | None
    isa_sha256: str | None
    promises: dict[str, str]
    kernels: tuple[dict[str, Any], ...]
    totals: dict[str, int]
    failures: tuple[Witness, ...] = field(default=())
    not_checked: tuple[Witness, ...] = field(default=())
    failure_counts: dict[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True only when every promise was checked and holds."""
        return all(status == Status.PASS for status in self.promises.values())

    def first(self, promise: str) -> Witness | None:
        """The first witness of a promise that does not pass."""
        return next((w for w in (*self.failures, *self.not_checked) if w.promise == promise), None)

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "xtrace": self.xtrace,
            "ok": self.ok,
            "promises": dict(self.promises),
            "input": {"sha256": self.input_sha256},
            "output": {"sha256": self.output_sha256},
            "map_sha256": self.map_sha256,
            "isa_sha256": self.isa_sha256,
            "totals": dict(self.totals),
            "kernels": list(self.kernels),
            "failure_counts": dict(self.failure_counts),
            "failures": [w.to_dict() for w in self.failures],
            "not_checked": [w.to_dict() for w in self.not_checked],
        }

    def to_json(self) -> str:
        """The certificate as one JSON document (schema ``xtrace/certificate/1``), stable key order."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=True) + "\n"
