"""Readable names of kernels: Itanium C++ demangling without an external program."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from functools import lru_cache, wraps
from types import ModuleType
from typing import Any

__all__ = ["demangle"]

MAX_MANGLED = 1 << 14
MAX_CALLS = 20_000  # a FlashAttention-3 kernel takes about 2,000
_CAST = re.compile(r"\((?:unsigned |signed )?(?:int|long|long long|short|char)\)(?=-?\d)")


class _Budget:
    """Calls left for the name at hand: a short hostile name can stand for a tree of any size."""

    left = 0

    def limited(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise OverflowError("name unfolds without end")
            return function(*args)

        return call


@lru_cache(maxsize=1)
def _parser() -> tuple[ModuleType, _Budget]:
    """A copy of the library of our own, whose tree walks count their calls."""
    spec = importlib.util.find_spec("itanium_demangler")
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError("itanium_demangler")
    module, budget = importlib.util.module_from_spec(spec), _Budget()
    spec.loader.exec_module(module)
    for kind in vars(module).values():
        if isinstance(kind, type) and hasattr(kind, "_fields"):
            for method in ("map", "left", "right", "__str__"):
                setattr(kind, method, budget.limited(getattr(kind, method)))
    return module, budget


@lru_cache(maxsize=16384)
def demangle(name: str) -> str:
    """Demangled form of an Itanium C++ name, or the name itself when it is none or too intricate."""
    if not name.startswith("_Z") or len(name) > MAX_MANGLED:
        return name
    try:
        module, budget = _parser()
        budget.left = MAX_CALLS
        tree = module.parse(name)
        if tree is None:
            return name
        text = str(tree)
    except Exception:  # the grammar of the library is partial and raises many kinds; the mangled name always works
        return name
    text = text.replace("(bool)0", "false").replace("(bool)1", "true")
    return _CAST.sub("", text)
