"""Readable names of kernels: Itanium C++ demangling without an external program, and short forms for people."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from types import ModuleType
from typing import Any

__all__ = ["demangle", "short_name", "short_names"]

MAX_MANGLED = 1 << 14
MAX_CALLS = 20_000  # a FlashAttention-3 kernel takes about 2,000
_CAST = re.compile(r"\((?:unsigned |signed )?(?:int|long|long long|short|char)\)(?=-?\d)")
MAX_READ = 1 << 16  # characters of a demangled name that its short form looks at
_TOKEN = re.compile(r"operator *(?:\(\)|\[\]|<=>|<<=?|>>=?|->\*?|[<>]=?)|->|[<>(){}\[\] ,]")
_SCOPES = re.compile(r"(?<![\w$)>}\]'])(?:::)?(?:(?:\(anonymous namespace\)|[A-Za-z_][\w$]*+)::)++")
_CLOSES = {">": "<", ")": "(", "]": "[", "}": "{"}


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


def short_name(demangled: str, limit: int = 72) -> str:
    """One line for people: no return type, parameter list or namespaces, at most ``limit`` characters.

    Longer names end in ``…``. Names without C++ syntax stay as they are; characters that a terminal would act upon
    become ``?``. Scopes are taken for namespaces unless they have template arguments.
    """
    return _cut(_bare(demangled), limit)


def short_names(demangled: Sequence[str], limit: int = 96) -> list[str]:
    """Short names of kernels that are shown together: names that begin alike also show where they differ.

    That place is the last template argument of the outermost list that has several (of a CUTLASS kernel: the tile
    scheduler) or else the first difference. Kernels that differ in several places may still look alike: number them.
    """
    bare = [_bare(name) for name in demangled]
    shown = [_cut(name, limit) for name in bare]
    head = limit // 3
    alike: dict[str, list[int]] = {}
    for number, name in enumerate(bare):
        if len(name) > limit:
            alike.setdefault(name[:head], []).append(number)
    for numbers in alike.values():
        if len({bare[n] for n in numbers}) < 2:
            continue
        tails = [_last_argument(bare[n]) for n in numbers]
        if len(set(tails)) < 2:
            low, high = min(bare[n] for n in numbers), max(bare[n] for n in numbers)  # share what all of them share
            common = next((k for k, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
            tails = [bare[n][max(head, common - 12) :] for n in numbers]
        for number, tail in zip(numbers, tails, strict=True):
            shown[number] = f"{_cut(bare[number], head)} {_cut(tail, limit - head - 1)}"
    return shown


def _cut(name: str, limit: int) -> str:
    return name if len(name) <= limit else name[: max(limit - 1, 0)].rstrip(" ,") + "…"


def _bare(demangled: str) -> str:
    """The name alone, in full length."""
    text = "".join(c if c.isprintable() else "?" for c in demangled[:MAX_READ])
    if not any(c in text for c in "<(: "):
        return text
    text = _SCOPES.sub("", text)
    start, end = 0, len(text)
    stack: list[str] = []
    opened = end  # the last parenthesis outside of all others: where the parameters begin
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark in ("<", "(", "[", "{"):
            if mark == "(" and not stack:
                opened = token.start()
            stack.append(mark)
        elif mark in _CLOSES:
            if stack and stack[-1] == _CLOSES[mark]:
                stack.pop()
        elif mark == " " and not stack and opened == end and not text.startswith("operator", start):
            start = token.end()
    if opened == end and not text.startswith("void "):  # no function: the spaces are part of something else
        return text
    return text[start:opened].strip() or text


def _last_argument(name: str) -> str:
    """The last template argument of the outermost list that has several, with what closes after it; else ``""``."""
    depth, several, last = 0, 0, ""
    for token in _TOKEN.finditer(name):
        mark = token[0]
        if mark in ("<", "(", "[", "{"):
            depth += 1
        elif mark in _CLOSES:
            depth = max(depth - 1, 0)
        elif mark == "," and (not several or depth <= several):
            several, last = depth, name[token.end() :].strip()
    return last if "<" in last else ""
