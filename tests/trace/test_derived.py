"""Derived addresses: computed from what the same warp recorded last, and never guessed where that is gone."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trace.synthetic import trace_map
from xtrace.errors import BadInput
from xtrace.trace.buffer import Records
from xtrace.trace.derived import Shown, expand
from xtrace.trace.headers import Headers
from xtrace.trace.layout import kernel_sites
from xtrace.trace.terms import Derived, Term

VALUE, PAIR, LEADER, CLOCK, NEAR, FAR = 1, 2, 3, 4, 10, 11
ITEMS = (
    Derived(NEAR, LEADER, 16, ()),
    Derived(
        FAR, LEADER, -8,
        (Term(VALUE, "low", True, 2), Term(VALUE, "high", False, -4), Term(PAIR, "pair", False, 1)),
    ),
)  # fmt: skip
BASE = 0x7F00_0000_0000
LOW, HIGH = -1000 & 0xFFFFFFFF, 0x9000_0000  # a negative offset, and one that is not
WORDS = LOW | HIGH << 32
DISTANCE = 2**64 - 4096


def shown(warps: list[list[tuple[int, int, int]]], emitted: list[int] | None = None) -> Shown:
    """Records of some warps as (sequence number, site, address or value)."""
    rows = [(n, *row) for n, warp in enumerate(warps) for row in warp]
    warp, seq, site, address = zip(*rows, strict=True)
    counts = np.array([len(w) for w in warps])
    total = np.array(emitted or counts)
    some, none = np.zeros(len(warps), np.int64), np.zeros(0, np.int64)
    records = Records(
        np.array(warp), np.array(seq), 100 * np.array(seq), np.array(site), np.array(address, np.uint64),
        counts, total - counts, some, some, some, some.astype(bool),
    )  # fmt: skip
    headers = Headers(some, some, some, some, some, some, total, some, some, none, none)
    return expand(records, headers, frozenset((VALUE, PAIR)), ITEMS)


def table(found: Shown) -> list[tuple[int, int, int, int]]:
    r = found.records
    return list(zip(r.warp.tolist(), r.seq.tolist(), r.site.tolist(), r.address.tolist(), strict=True))


def far(leader: int) -> int:
    return (leader - 8 + 2 * -1000 - 4 * HIGH + DISTANCE) % 2**64


def test_addresses_follow_the_values_recorded_last() -> None:
    found = shown(
        [
            [(0, VALUE, WORDS), (1, PAIR, DISTANCE), (2, LEADER, BASE), (3, CLOCK, 0), (4, LEADER, BASE + 64)],
            [(0, PAIR, DISTANCE), (1, VALUE, 0), (2, VALUE, WORDS), (3, LEADER, BASE)],
        ]
    )
    assert table(found) == [
        (0, 0, LEADER, BASE), (0, 1, NEAR, BASE + 16), (0, 2, FAR, far(BASE)), (0, 3, CLOCK, 0),
        (0, 4, LEADER, BASE + 64), (0, 5, NEAR, BASE + 80), (0, 6, FAR, far(BASE + 64)),
        (1, 0, LEADER, BASE), (1, 1, NEAR, BASE + 16), (1, 2, FAR, far(BASE)),
    ]  # fmt: skip
    assert (found.derived, found.unknown) == (6, 0)
    assert found.headers.emitted.tolist() == found.records.written.tolist() == [7, 3]
    assert found.records.clock_lo.tolist()[:3] == [200] * 3


def test_accesses_that_were_not_made_need_no_values() -> None:
    found = shown([[(0, LEADER, 0)]])
    assert table(found) == [(0, 0, LEADER, 0), (0, 1, NEAR, 0), (0, 2, FAR, 0)]
    assert found.unknown == 0


@pytest.mark.parametrize(
    "warps",
    [
        [[(5, PAIR, DISTANCE), (6, LEADER, BASE)]],  # the other value is overwritten
        [[(0, VALUE, WORDS), (1, PAIR, DISTANCE), (4, LEADER, BASE)]],  # a newer one may be missing
        [[(0, VALUE, WORDS), (1, PAIR, DISTANCE)], [(0, LEADER, BASE)]],  # another warp's
        [[(0, LEADER, BASE), (1, VALUE, WORDS), (2, PAIR, DISTANCE)]],  # recorded later
    ],
)
def test_without_its_values_an_address_is_unknown_and_counted(warps: list[list[tuple[int, int, int]]]) -> None:
    emitted = [warp[-1][0] + 1 for warp in warps]
    found = shown(warps, emitted)
    assert [site for _, _, site, _ in table(found)] == [LEADER, NEAR]
    assert (found.derived, found.unknown) == (1, 1)
    lost = sum(emitted) - sum(map(len, warps))
    assert int((found.headers.emitted - found.records.written).sum()) == lost


def test_sequence_numbers_keep_their_gaps() -> None:
    found = shown([[(3, LEADER, BASE), (4, CLOCK, 0), (7, LEADER, BASE)]], [8])
    assert [seq for _, seq, _, _ in table(found)] == [3, 4, 5, 8, 9]
    assert found.headers.emitted.tolist() == [10]


@pytest.mark.parametrize(
    "change",
    [
        {"from": 2}, {"from": 99}, {"offset": 1.5}, {"offset": 1 << 64}, {"id": 3}, {"terms": None}, {"terms": [7]},
        {"terms": [{"site": 3, "part": "pair", "signed": False, "times": 1}]},
        {"terms": [{"site": 2, "part": "middle", "signed": False, "times": 1}]},
        {"terms": [{"site": 2, "part": "low", "signed": 0, "times": 1}]},
        {"terms": [{"site": 2, "part": "low", "signed": True, "times": "1"}]},
    ],
)  # fmt: skip
def test_malformed_maps_are_refused(change: dict[str, object]) -> None:
    document = trace_map()
    entry = document["kernels"][0]
    entry["sites"][1] |= {"probe": "value"}
    entry["sites"][2] |= {"probe": "address"}
    good = {"id": 50, "pc": 64, "op": "LDG", "phase": "global load", "from": 3, "offset": 4, "terms": []}
    entry["derived"] = [good]
    sites = kernel_sites(document, entry["name"])
    assert sites.accesses == [3, 50]
    assert 2 not in [site.id for site in sites.shown]
    entry["derived"] = [{**good, **change}]
    with pytest.raises(BadInput, match="XT8101"):
        kernel_sites(document, entry["name"])
