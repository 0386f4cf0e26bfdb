"""The alignment is a longest common subsequence: checked against the textbook table."""

from __future__ import annotations

import random
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xtrace.errors import Unsupported
from xtrace.fidelity import alignment
from xtrace.fidelity.alignment import align, lcs_length


def reference_length(a: list[int], b: list[int]) -> int:
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


streams = st.lists(st.integers(0, 5), max_size=40)


@given(streams, streams)
def test_length_is_that_of_the_textbook_table(a: list[int], b: list[int]) -> None:
    assert lcs_length(a, b) == reference_length(a, b)


@given(streams, streams)
def test_pairs_are_equal_elements_in_rising_order(a: list[int], b: list[int]) -> None:
    pairs = align(a, b)
    assert all(a[i] == b[j] for i, j in pairs)
    assert all(i < k and j < m for (i, j), (k, m) in pairwise(pairs))


@given(streams, streams)
def test_length_does_not_depend_on_the_order_of_the_two_streams(a: list[int], b: list[int]) -> None:
    assert lcs_length(a, b) == lcs_length(b, a)


def test_empty_and_disjoint_streams() -> None:
    assert align([], [1, 2]) == []
    assert align([1, 2], [3, 4]) == []
    assert align([1, 2], [1, 2]) == [(0, 0), (1, 1)]


def test_streams_beyond_the_memory_bound_are_refused_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment, "MAX_CELLS", 10)
    with pytest.raises(Unsupported) as caught:
        align([1, 2, 3, 4], [2, 9, 4, 3])
    assert caught.value.code == "XT4210"
    assert "--map" in caught.value.hint


def test_kernels_of_8000_instructions_align_within_two_seconds() -> None:
    rng = random.Random(1)
    a = [rng.randrange(900) for _ in range(8000)]
    b = [rng.randrange(900) for _ in range(9000)]
    start = time.process_time()
    align(a, b)
    assert time.process_time() - start < 2.0  # about 0.05 s on one core; the bound is the promise
