"""The decision of a sampled kernel, part of promise ``effects``: it does what the map says, and nothing else.

The words of the prologue up to the branch are run for made-up warps, for every warp of a CTA and for CTA numbers
around the multiples of the rule, and the branch is compared with the rule.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from xtrace.verify import copies
from xtrace.verify.certificate import Promise
from xtrace.verify.emulate import NotUnderstood, compile_word
from xtrace.verify.launches import lone_warp
from xtrace.verify.pair import Pair

__all__ = ["check"]

_EFFECTS = Promise.EFFECTS
_WARPS = 32
_MOST_CTAS = 1 << 31
_RANDOM = 300
_SHAPES = ((1024, 1, 1), (32, 32, 1), (16, 8, 8), (1, 512, 2), (4, 4, 64))  # of CTAs of 32 warps


@dataclass(frozen=True, slots=True)
class _Rule:
    every: int
    offset: int
    warps: frozenset[int]

    @classmethod
    def of(cls, said: Any) -> _Rule | str:
        every, offset, warps = said.get("cta_every"), said.get("cta_offset"), said.get("warps")
        if type(every) is not int or type(offset) is not int or not 0 <= offset < every <= 1 << 20:
            return "the map's sampling rule names no sensible CTAs"
        if warps is None:
            return cls(every, offset, frozenset(range(_WARPS)))
        if not isinstance(warps, list) or not all(type(k) is int and 0 <= k < _WARPS for k in warps) or not warps:
            return "the map's sampling rule names no sensible warps"
        return cls(every, offset, frozenset(warps))

    def takes(self, cta: int, warp: int) -> bool:
        return cta % self.every == self.offset and warp in self.warps

    @property
    def whole_warpgroups(self) -> bool:
        groups = (self.warps & set(range(k, k + 4)) for k in range(0, _WARPS, 4))
        return all(len(group) in (0, 4) for group in groups)


def check(pair: Pair) -> None:
    """Compare the decision with the map's rule. Without a map, or without a copy, there is nothing to compare."""
    said = (pair.claim or {}).get("sample")
    if said is None or not pair.align.copy:
        return
    rule = _Rule.of(said)
    if isinstance(rule, str):
        pair.fail(_EFFECTS, rule)
        return
    if not rule.whole_warpgroups and copies.needs_whole_warpgroups(pair):
        pair.fail(_EFFECTS, "the rule splits warpgroups, of which this kernel needs all four warps at one instruction")
    branch = next((j for j in pair.align.island(0) if copies.is_decision(pair, j)), None)
    if branch is None:
        return  # a finding of the promise targets
    code = pair.output.code
    actions = []
    for j in range(branch):
        if code[j].base == "STG":
            pair.fail(_EFFECTS, "a warp stores before it is known whether it is sampled", code[j])
        try:
            actions.append(compile_word(code[j]))
        except NotUnderstood as error:
            pair.fail(_EFFECTS, f"effect is not understood: {error}", code[j])
            return
    name = code[branch].guard.lstrip("@!")
    for cta, warp in _cases(rule, pair.before.required_threads):
        block = pair.before.required_threads or _SHAPES[warp % len(_SHAPES)]
        made = lone_warp(random.Random(f"{cta}/{warp}"), block, cta, warp)
        try:
            for action in actions:
                action(made)
            leaves = bool(made.get(name)) != code[branch].guard.startswith("@!")
        except NotUnderstood as error:
            pair.fail(_EFFECTS, f"effect is not understood: {error}", code[branch])
            return
        if leaves == rule.takes(cta, warp):
            does = "leaves for the untouched copy" if leaves else "is traced"
            pair.fail(_EFFECTS, f"warp {warp} of CTA {cta} {does}, against the map's rule", code[branch])
            return


def _cases(rule: _Rule, fixed: tuple[int, int, int] | None) -> Iterator[tuple[int, int]]:
    threads = fixed[0] * fixed[1] * fixed[2] if fixed else 32 * _WARPS
    warps = range(min(-(-threads // 32), _WARPS))
    n = rule.every
    near = {0, 1, n - 1, n, n + 1, rule.offset, rule.offset + n, 7 * n + rule.offset, 7 * n + rule.offset + 1}
    last = (_MOST_CTAS // n - 1) * n + rule.offset
    near |= {last - 1, last, last + 1}
    for cta in sorted(c for c in near if 0 <= c < _MOST_CTAS):
        for warp in warps:
            yield cta, warp
    rng = random.Random(0)
    for _ in range(_RANDOM):
        cta = rng.randrange(_MOST_CTAS) if rng.random() < 0.5 else rng.randrange(4 * n + 4)
        yield cta - cta % n + rule.offset if rng.random() < 0.5 and cta >= n else cta, rng.choice(warps)
