"""Where each original instruction stands in the traced kernel: told by the trace map, or found without it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

__all__ = ["Alignment", "derive", "from_islands", "subsequence"]


@dataclass(frozen=True)
class Alignment:
    """``position[i]`` is the index in the traced kernel of original instruction ``i``; ascending."""

    position: tuple[int, ...]
    words: int  # words in the traced kernel
    copy: range = range(0)  # a second, untouched copy of the original in front of the first instruction

    def island(self, i: int) -> range:
        """Traced indices of the words that stand directly before original instruction ``i``.

        Those before the first one end where the copy begins.
        """
        if i == 0:
            return range(self.copy.start if self.copy else self.position[0])
        return range(self.position[i - 1] + 1, self.position[i])

    def islands(self) -> list[tuple[int, range]]:
        """All non-empty islands with the original index of their site."""
        return self._islands

    @cached_property
    def _islands(self) -> list[tuple[int, range]]:
        return [(i, r) for i in range(len(self.position)) if (r := self.island(i))]

    @cached_property
    def padding(self) -> range:
        """Words behind the last original instruction of the traced code."""
        return range(self.position[-1] + 1 if self.position else 0, self.words)

    def origin(self) -> list[int]:
        """For each traced word the original index, or -1: of a probe, padding or the copy."""
        result = [-1] * self.words
        for i, j in enumerate(self.position):
            result[j] = i
        return result

    def instr_index(self, i: int) -> int:
        return self.position[i] if i < len(self.position) else self.words

    def target_index(self, i: int) -> int:
        """First word of the island in front of original instruction ``i``; ``i`` may be one past the end."""
        if i >= len(self.position):
            return self.words
        return self.position[i - 1] + 1 if i else 0

    def row_index(self, i: int) -> int:
        """The same for rows of debug tables, which say nothing about the copy."""
        return self.position[0] if self.copy and i == 0 else self.target_index(i)


def from_islands(count: int, words: int, islands: Sequence[tuple[int, int]], copy: range = range(0)) -> Alignment | str:
    """Alignment that a map claims: ``islands`` are (original index of the site, words). A string says why not."""
    position: list[int] = []
    shift, k = 0, 0
    for i in range(count):
        while k < len(islands) and islands[k][0] == i:
            shift += islands[k][1]
            k += 1
        if i == 0 and copy:
            if shift != copy.start:
                return f"the copy begins at word {copy.start}, the island before it has {shift} words"
            shift += len(copy)
        position.append(i + shift)
    if k < len(islands):
        return f"island at original instruction {islands[k][0]} is outside the kernel or out of order"
    if position and position[-1] >= words:
        return f"the map needs {position[-1] + 1} words, the traced kernel has {words}"
    return Alignment(tuple(position), words, copy)


def subsequence(needle: Sequence[int], hay: Sequence[int]) -> int:
    """How many leading items of ``needle`` occur in ``hay`` in order (all of them: it is a subsequence).

    Taking the earliest match is exact: if any embedding exists, the earliest one does.
    """
    n = 0
    for word in hay:
        if n < len(needle) and word == needle[n]:
            n += 1
    return n


def derive(needle: Sequence[int], hay: Sequence[int], copy: range = range(0)) -> Alignment | None:
    """Alignment found from the words alone, ``None`` when the original is not a subsequence behind the copy.

    Among equal words the one that continues the current run is taken, else the one that starts the longest run.
    """
    latest = [0] * len(needle)
    j, first = len(hay) - 1, copy.stop
    for i in range(len(needle) - 1, -1, -1):
        while j >= first and hay[j] != needle[i]:
            j -= 1
        if j < first:
            return None
        latest[i] = j
        j -= 1
    places: dict[int, list[int]] = {}
    for j, word in enumerate(hay):
        places.setdefault(word, []).append(j)
    position: list[int] = []
    previous = first - 1
    for i, word in enumerate(needle):
        nearby = previous + 1
        if nearby < len(hay) and hay[nearby] == word and nearby <= latest[i]:
            previous = nearby
        else:
            spots = places[word]
            candidates = spots[bisect_left(spots, nearby) : bisect_right(spots, latest[i])][:16]
            previous = max(candidates, key=lambda c: (_run(needle, hay, i, c), -c))
        position.append(previous)
    return Alignment(tuple(position), len(hay), copy)


def _run(needle: Sequence[int], hay: Sequence[int], i: int, j: int, limit: int = 12) -> int:
    n = 0
    while n < limit and i + n < len(needle) and j + n < len(hay) and needle[i + n] == hay[j + n]:
        n += 1
    return n
