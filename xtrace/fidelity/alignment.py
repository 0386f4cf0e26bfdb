"""Longest common subsequence of two instruction streams, with the alignment.

Bit-parallel row update of H. Hyyro, "Bit-parallel LCS-length computation revisited" (2004), a
refinement of M. Crochemore et al., "A fast and practical bit-vector algorithm for the longest
common subsequence problem" (2001): one bit per element of the second stream, one row per element
of the first, a zero bit where the LCS length grows from left to right. Python's big integers are
the bit vectors, so a row of 9,000 elements costs a few hundred machine words.

All rows are kept (8,000 x 9,000 bits are 9 MB), which makes the traceback exact; see :func:`align`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from xtrace.errors import Unsupported

__all__ = ["MAX_CELLS", "align", "lcs_length"]

MAX_CELLS = 4_000_000_000
"""Largest ``len(a) * len(b)`` after equal ends are cut: 500 MB of rows, some seconds of work."""


def align(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Pairs ``(i, j)``, increasing in both, of one longest common subsequence of ``a`` and ``b``.

    Equal ends are paired first: some longest common subsequence always contains them. Where
    several alignments are equally long, the one whose last pairs stand earliest is returned.

    Raises
    ------
    Unsupported
        XT4210 when the streams are too long to compare in bounded memory (see :data:`MAX_CELLS`).
    """
    head = 0
    limit = min(len(a), len(b))
    while head < limit and a[head] == b[head]:
        head += 1
    tail = 0
    limit -= head
    while tail < limit and a[len(a) - 1 - tail] == b[len(b) - 1 - tail]:
        tail += 1
    middle = _align_middle(a[head : len(a) - tail], b[head : len(b) - tail])
    pairs = [(k, k) for k in range(head)]
    pairs += [(i + head, j + head) for i, j in middle]
    pairs += [(len(a) - tail + k, len(b) - tail + k) for k in range(tail)]
    return pairs


def lcs_length(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """Length of the longest common subsequence of ``a`` and ``b``."""
    return len(align(a, b))


def _align_middle(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    if not a or not b:
        return []
    if len(a) * len(b) > MAX_CELLS:
        raise Unsupported(
            "XT4210",
            f"cannot align {len(a)} with {len(b)} instructions without an address map",
            hint="give the trace map with --map",
        )
    rows = _rows(a, b)
    # Row i, bit j is zero exactly when L[i+1][j+1] = L[i+1][j] + 1 (L: LCS length of prefixes).
    # Walking back from the corner: a set bit means column j adds nothing, so drop it. A clear bit
    # that is clear in the row above too means row i adds nothing. Otherwise (i, j) is a match,
    # because L[i+1][j+1] never exceeds L[i][j] + 1.
    pairs: list[tuple[int, int]] = []
    i, j = len(a) - 1, len(b) - 1
    while i >= 0 and j >= 0:
        below = ~rows[i] & ((1 << (j + 1)) - 1)
        if not below:
            break
        j = below.bit_length() - 1
        column = 1 << j
        while i > 0 and not rows[i - 1] & column:
            i -= 1
        pairs.append((i, j))
        i -= 1
        j -= 1
    pairs.reverse()
    return pairs


def _rows(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[int]:
    where: dict[Hashable, int] = {}
    for j, key in enumerate(b):
        where[key] = where.get(key, 0) | (1 << j)
    full = (1 << len(b)) - 1
    row = full
    rows = []
    for key in a:
        match = where.get(key, 0)
        if match:
            hit = row & match
            row = ((row + hit) | (row - hit)) & full
        rows.append(row)
    return rows
