"""Lets a room that carries a verb's name be called like the verb: ``xtrace.splice(image, probes="pp")``.

A module's ``__class__`` may be assigned (documented in the data model, "Customizing module attribute access").
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

__all__ = ["make_callable"]


class _Verb(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        verb = self.__name__.rpartition(".")[2]
        return getattr(importlib.import_module("xtrace.api"), verb)(*args, **options)


def make_callable(module: str) -> None:
    """Make the package ``xtrace.<verb>`` callable; the call goes to ``xtrace.api.<verb>``."""
    sys.modules[module].__class__ = _Verb
