"""Xtrace: splice trace probes into finished GPU binaries, prove it, run it, read the trace."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xtrace.api import diff, load, plan, splice, trace, verify

__version__ = "0.1.0"
__all__ = ["__version__", "diff", "load", "plan", "splice", "trace", "verify"]

_ROOMS = ("splice", "trace", "verify")  # packages that can be called: see xtrace.verbs


def __getattr__(name: str) -> Any:
    """The verbs are imported on first use, so that ``xtrace --help`` does not load pandas."""
    if name in _ROOMS:
        return importlib.import_module(f"xtrace.{name}")
    if name in __all__:
        return getattr(importlib.import_module("xtrace.api"), name)
    raise AttributeError(f"module 'xtrace' has no attribute {name!r}")
