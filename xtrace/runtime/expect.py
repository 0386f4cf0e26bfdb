"""How many records a launch must leave, from the trip counts of the source's loops.

A site inside the machine loop of a source loop is passed ``trips`` times by every warp of a CTA, fewer by a constant
if the compiler peeled iterations off; a site outside loops is passed once, by all CTAs or by those that get there
(early exit, a guarded loop). So the expectation is a vector over CTAs, and a site's counts must equal one of few
candidate vectors in every CTA. A count that no candidate explains is reported, never rounded away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Explanation", "Trips", "explain", "explain_totals"]

Trips = Mapping[str, Sequence[int]]
"""Trip count of every source loop (in source order) for every CTA."""
MAX_PEELED = 3
Vector = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Explanation:
    """``expected`` is the total over all explained sites; ``unexplained`` lists site ids with no candidate."""

    expected: int | None
    unexplained: tuple[int, ...]
    rules: Mapping[int, str]  # site id -> the candidate that fits, in words
    ctas_predicted: int = 0  # CTAs whose total was predicted from the source beforehand, by the caller
    ctas_wrong: int = 0  # ... and differs

    @property
    def complete(self) -> bool:
        return not self.unexplained


def explain(entry: Mapping[str, Any], per_cta: Vector, warps_per_cta: int | Vector, trips: Trips) -> Explanation:
    """Match the counts of every site (``per_cta[cta, id]``) with what ``trips`` allows.

    ``warps_per_cta`` are the traced ones; where a rule samples warps, a number for every CTA.
    ``entry`` is the kernel's entry of the trace map: ``loop`` of a site names the innermost machine loop around it.
    All sites of one machine loop must agree on the source loop and on the number of peeled iterations.
    """
    vectors = {name: np.asarray(values, np.int64) for name, values in trips.items()}
    rules: dict[int, str] = {}
    unexplained: list[int] = []
    by_loop: dict[int | None, list[int]] = {}
    for site in entry["sites"]:
        if site["id"] is not None:
            by_loop.setdefault(site["loop"], []).append(int(site["id"]))
    for loop, ids in by_loop.items():
        candidates = _looped(vectors) if loop is not None else _straight(vectors, len(per_cta))
        fitting = {
            site: [name for name, v in candidates.items() if np.array_equal(per_cta[:, site], warps_per_cta * v)]
            for site in ids
        }
        if loop is not None:  # one candidate for the whole loop
            common = [name for name in candidates if all(name in names for names in fitting.values())]
            fitting = dict.fromkeys(ids, common)
        for site, names in fitting.items():
            if names:
                rules[site] = names[0]
            else:
                unexplained.append(site)
    total = int(sum(per_cta[:, site].sum() for site in rules))
    return Explanation(None if unexplained else total, tuple(sorted(unexplained)), rules)


def explain_totals(entry: Mapping[str, Any], per_site: Mapping[int, int], candidates: Mapping[str, int]) -> Explanation:
    """The weaker check for kernels whose work is handed out at run time: only totals over all CTAs are fixed.

    ``candidates`` are possible totals by name. Sites of one machine loop need not agree: warp roles differ.
    """
    rules: dict[int, str] = {}
    unexplained: list[int] = []
    for site in (int(s["id"]) for s in entry["sites"] if s["id"] is not None):
        names = [name for name, total in candidates.items() if total == per_site[site]]
        if names:
            rules[site] = names[0]
        elif per_site[site] == 0:
            rules[site] = "never reached"
        else:
            unexplained.append(site)
    total = sum(per_site[site] for site in rules)
    return Explanation(None if unexplained else total, tuple(sorted(unexplained)), rules)


def _looped(vectors: Mapping[str, Vector]) -> dict[str, Vector]:
    out = {}
    for peeled in range(MAX_PEELED + 1):
        for name, trips in vectors.items():
            words = f"trips of {name}" + (f" less {peeled}" if peeled else "")
            out[words] = np.maximum(trips - peeled, 0)
    return out


def _straight(vectors: Mapping[str, Vector], ctas: int) -> dict[str, Vector]:
    one = np.ones(ctas, np.int64)
    out = {"once per warp": one}
    if vectors:
        ran = np.minimum(sum(np.minimum(t, 1) for t in vectors.values()), 1)
        out["once per warp that does not leave early"] = ran * one
    for name, trips in vectors.items():
        out[f"once per warp that enters {name}"] = np.minimum(trips, 1) * one
        for peeled in range(1, MAX_PEELED + 1):
            out[f"once per warp with more than {peeled} trips of {name}"] = (trips > peeled).astype(np.int64)
        if len(set(trips.tolist())) == 1:  # a loop of known length may be unrolled into straight code
            out[f"each of {name}, unrolled"] = trips
    return out
