"""Whatever the files and the map hold: a verdict or one typed error, never another exception, never a false pass."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.verify import handmade as h
from xtrace.errors import XtraceError
from xtrace.verify import verify

JUNK: tuple[Any, ...] = (None, -1, 0, 1, 1 << 70, 1.5, "", "x", [], {}, [[]], True, "\x00", float("nan"))


def _nodes(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from _nodes(child, (*path, key))


def _outcome(original: bytes, traced: bytes, document: Any) -> str:
    """The verdict, or the code of the one error that is allowed to come out."""
    try:
        return str(verify(original, traced, document).ok)
    except XtraceError as error:
        return error.code


@pytest.mark.fuzz
def test_damaged_maps() -> None:
    traced, rng = h.spin(), random.Random(1)
    places = [p for p in _nodes(traced.map) if p]
    for _ in range(80):
        document, path = copy.deepcopy(traced.map), rng.choice(places)
        node: Any = document
        for key in path[:-1]:
            node = node[key]
        if isinstance(node, dict) and rng.random() < 0.3:
            del node[path[-1]]
        else:
            node[path[-1]] = rng.choice(JUNK)
        assert _outcome(traced.original, traced.data, document) in ("True", "False", "XT4001"), path


@pytest.mark.fuzz
def test_damaged_files() -> None:
    traced, rng = h.spin(), random.Random(2)
    for n in range(60):
        data = bytearray(traced.data if n % 2 else traced.original)
        for _ in range(rng.choice((1, 1, 2, 8))):
            data[rng.randrange(len(data))] ^= rng.randrange(1, 256)
        if rng.random() < 0.1:
            del data[rng.randrange(len(data)) :]
        pair = (traced.original, bytes(data)) if n % 2 else (bytes(data), traced.data)
        assert _outcome(*pair, traced.map) != "True"
        assert _outcome(*pair, None) != "True"
