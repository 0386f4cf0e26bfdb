"""What to record and where."""

from .selectors import SELECTORS, select, validate
from .site import Site

__all__ = ["SELECTORS", "Site", "select", "validate"]
