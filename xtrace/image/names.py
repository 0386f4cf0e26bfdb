"""Readable names of kernels: Itanium C++ demangling without an external program."""

from __future__ import annotations

import re
from functools import lru_cache

import itanium_demangler  # type: ignore[import-untyped]

__all__ = ["demangle"]

MAX_MANGLED = 1 << 14
MAX_NODES = 20_000  # a name may repeat its parts exponentially; beyond this it is not readable anyway
_CAST = re.compile(r"\((?:unsigned |signed )?(?:int|long|long long|short|char)\)(?=-?\d)")


@lru_cache(maxsize=16384)
def demangle(name: str) -> str:
    """Demangled form of an Itanium C++ name, or the name itself when it is none or too intricate."""
    if not name.startswith("_Z") or len(name) > MAX_MANGLED:
        return name
    try:
        tree = itanium_demangler.parse(name)
        if tree is None or _count(tree, {}) > MAX_NODES:
            return name
        text = str(tree)
    except Exception:  # the grammar of the library is partial and raises many kinds; the mangled name always works
        return name
    text = text.replace("(bool)0", "false").replace("(bool)1", "true")
    return _CAST.sub("", text)


def _count(node: object, seen: dict[int, int]) -> int:
    """Nodes of the tree as printed: shared parts count every time, but are walked once."""
    if not isinstance(node, tuple):
        return 1
    known = seen.get(id(node))
    if known is None:
        known = 1 + sum(_count(child, seen) for child in node)
        seen[id(node)] = known
    return known
