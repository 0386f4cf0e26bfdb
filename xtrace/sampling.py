"""Sampling rules: which warps of which launches are traced. What is not sampled runs the user's own code.

A rule is data; the rooms that plan, emit, read and launch only ask it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from xtrace.errors import BadInput

__all__ = ["EVERYTHING", "MAX_EVERY", "WARPS", "Sampling", "probe_set", "sampling"]

WARPS = 32  # of a CTA, at most
WARPGROUP = 4  # warps
MAX_EVERY = 1 << 20
_WHERE = "--sample"
_EXAMPLE = "for example cta=8, cta=8/3, warp=0, warp=4-7, warpgroup=1, or several: cta=8,warp=4-7"
_ALL = (1 << WARPS) - 1


@dataclass(frozen=True, slots=True)
class Sampling:
    """A warp is traced if every part of the rule takes it.

    Attributes
    ----------
    cta_every, cta_offset
        CTAs whose number in the grid (x fastest, then y, z) leaves ``cta_offset`` when divided by ``cta_every``.
    warp_mask
        Bit k: warp k of a CTA.
    launch_every, launch_offset
        Launches of the kernel, counted from 0. The host decides this: no image knows which launch it runs in.
    """

    cta_every: int = 1
    cta_offset: int = 0
    warp_mask: int = _ALL
    launch_every: int = 1
    launch_offset: int = 0

    @classmethod
    def parse(cls, text: str) -> Sampling:
        """From ``--sample``; ``BadInput`` XT3060 (malformed), XT3061 (out of range), XT3062 (not offered)."""
        values: dict[str, int] = {}
        for key, items in _parts(text).items():
            if key in ("cta", "launch"):
                every, offset = _every(key, items)
                values |= {f"{key}_every": every, f"{key}_offset": offset}
            else:
                mask = 0
                for item in items:
                    mask |= _warps(item, WARPGROUP if key == "warpgroup" else 1, key)
                values["warp_mask"] = values.get("warp_mask", 0) | mask
        return cls(**values)

    @property
    def image(self) -> Sampling:
        """The part that an image decides."""
        return Sampling(self.cta_every, self.cta_offset, self.warp_mask)

    @property
    def everything(self) -> bool:
        """Whether an image takes all warps."""
        return self.cta_every == 1 and self.every_warp

    @property
    def every_warp(self) -> bool:
        return self.warp_mask == _ALL

    @property
    def splits_warpgroups(self) -> bool:
        """Whether some warps of a warpgroup are taken and others are not."""
        groups = [self.warp_mask >> k & 0xF for k in range(0, WARPS, WARPGROUP)]
        return any(group not in (0, 0xF) for group in groups)

    def takes(self, cta: Any, warp: Any) -> Any:
        """Whether an image traces this warp of this CTA; numbers or NumPy arrays of unsigned numbers below 2**31."""
        return (cta % self.cta_every == self.cta_offset) & ((self.warp_mask >> warp & 1) == 1)

    def takes_launch(self, number: int) -> bool:
        return number % self.launch_every == self.launch_offset

    def warps_of(self, cta: int, warps_per_cta: int) -> int:
        """How many warps of a CTA are traced."""
        taken = cta % self.cta_every == self.cta_offset
        return (self.warp_mask & ((1 << min(warps_per_cta, WARPS)) - 1)).bit_count() if taken else 0

    def warps(self, ctas: int, warps_per_cta: int) -> int:
        """How many warps of a launch of ``ctas`` CTAs are traced."""
        chosen = max(ctas - self.cta_offset + self.cta_every - 1, 0) // self.cta_every
        return chosen * self.warps_of(self.cta_offset, warps_per_cta)

    def __str__(self) -> str:
        """The rule as it can be given; empty if it takes everything."""
        parts = []
        if self.cta_every > 1:
            parts.append(_written("cta", self.cta_every, self.cta_offset))
        if not self.every_warp:
            parts.append(f"warp={','.join(_runs(self.warp_mask))}")
        if self.launch_every > 1:
            parts.append(_written("launch", self.launch_every, self.launch_offset))
        return ",".join(parts)

    def document(self) -> dict[str, Any]:
        """As a trace map writes it; launches are the host's business."""
        warps = None if self.every_warp else [k for k in range(WARPS) if self.warp_mask >> k & 1]
        return {"rule": str(self.image), "cta_every": self.cta_every, "cta_offset": self.cta_offset, "warps": warps}

    @classmethod
    def of_document(cls, document: object, where: str) -> Sampling:
        """Back from a map; ``BadInput`` XT3063 if it is not what :meth:`document` writes."""
        if isinstance(document, Mapping):
            every, offset, warps = (document.get(key) for key in ("cta_every", "cta_offset", "warps"))
            listed = warps is None or (
                isinstance(warps, list) and all(type(k) is int and 0 <= k < WARPS for k in warps) and bool(warps)
            )
            if type(every) is int and type(offset) is int and 0 <= offset < every <= MAX_EVERY and listed:
                return cls(every, offset, _ALL if warps is None else sum(1 << k for k in set(warps)))
        raise BadInput("XT3063", "the trace map's sampling rule is malformed", where=where)

    @classmethod
    def of_kernel(cls, entry: Mapping[str, Any]) -> Sampling:
        """The rule of a kernel's entry in a trace map; one that takes everything if it has none."""
        document = entry.get("sample")
        return EVERYTHING if document is None else cls.of_document(document, str(entry.get("name"))[:200])


EVERYTHING = Sampling()


def probe_set(name: str) -> str:
    """The group of matched sites that a probe set traces: ``pp`` of ``pp@cta8``."""
    return name.partition("@")[0]


def sampling(name: str) -> Sampling | None:
    """The rule of a sampled probe set, which is named so that it can stand in file names.

    ``pp@cta8`` is ``--probes pp --sample cta=8``, ``pp@cta8-3+warpgroup1`` is ``--sample cta=8/3,warpgroup=1``. None
    for a set that is not sampled; BadInput XT3060 to XT3064 as for ``--sample``.
    """
    _, at, rule = name.partition("@")
    if not at:
        return None
    parts = []
    for part in rule.split("+"):
        key = part.rstrip("0123456789-")
        value = part[len(key) :]
        parts.append(f"{key}={value.replace('-', '/') if key == 'cta' else value}")
    return Sampling.parse(",".join(parts))


def _parts(text: str) -> dict[str, list[str]]:
    """Values by key; a value without a key belongs to the list before it."""
    parts: dict[str, list[str]] = {}
    key = ""
    for piece in text.split(","):
        name, equals, value = piece.strip().partition("=")
        if equals:
            key = "warpgroup" if name.strip() == "role" else name.strip()
            if key in parts:
                raise _bad("XT3060", f"{key}= is given twice")
            parts[key] = []
        elif key not in ("warp", "warpgroup"):
            raise _bad("XT3060", f"{piece.strip()!r} is not KEY=VALUE" if piece.strip() else "an empty rule")
        if key == "iteration":
            hint = "docs/decisions/0004 says why; sample CTAs, warps or launches instead"
            raise BadInput("XT3062", "iterations of a loop cannot be sampled yet", where=_WHERE, hint=hint)
        if key not in ("cta", "launch", "warp", "warpgroup"):
            raise _bad("XT3060", f"{key!r} is not one of cta, warp, warpgroup, launch")
        parts[key].append((value if equals else name).strip())
    return parts


def _every(key: str, items: list[str]) -> tuple[int, int]:
    every, slash, offset = items[0].partition("/")
    if not _number(every) or (slash and not _number(offset)):
        raise _bad("XT3060", f"{key}={items[0]} is not {key}=N or {key}=N/OFFSET")
    n, first = int(every), int(offset or 0)
    if not 1 <= n <= MAX_EVERY or first >= n:
        raise _bad("XT3061", f"{key}={items[0]}: N goes from 1 to {MAX_EVERY}, OFFSET from 0 to N-1")
    return n, first


def _warps(item: str, width: int, key: str) -> int:
    low, dash, high = item.partition("-")
    if not _number(low) or (dash and not _number(high)):
        raise _bad("XT3060", f"{key}={item} is not a number or a range such as 4-7")
    first, last = int(low), int(high if dash else low)
    if first > last or last >= WARPS // width:
        raise _bad("XT3061", f"{key}={item}: numbers go from 0 to {WARPS // width - 1}, the smaller one first")
    return ((1 << width * (last - first + 1)) - 1) << width * first


def _number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 8


def _written(key: str, every: int, offset: int) -> str:
    return f"{key}={every}/{offset}" if offset else f"{key}={every}"


def _runs(mask: int) -> list[str]:
    runs, k = [], 0
    while mask >> k:
        if mask >> k & 1:
            first = k
            while mask >> (k + 1) & 1:
                k += 1
            runs.append(str(first) if first == k else f"{first}-{k}")
        k += 1
    return runs


def _bad(code: str, what: str) -> BadInput:
    return BadInput(code, what, where=_WHERE, hint=_EXAMPLE)
