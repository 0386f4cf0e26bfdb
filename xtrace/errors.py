"""Typed errors: every failure a user can cause says code, place, reason and what to do."""

from __future__ import annotations

__all__ = ["BadInput", "MissingTool", "Refused", "Unsupported", "XtraceError"]


class XtraceError(Exception):
    """Base of all errors that Xtrace raises on purpose.

    Parameters
    ----------
    code
        Stable identifier, ``XTnnnn``. 1xxx image bytes, 2xxx instruction set, 3xxx splice,
        4xxx verify, 5xxx runtime and device, 6xxx tools and environment, 7xxx configuration,
        8xxx trace files.
    what
        What went wrong, one clause, no trailing full stop.
    where
        File, kernel and offset as far as known, e.g. ``"fa3.cubin: .symtab @0x1a0"``.
    hint
        What the user can do about it.
    """

    exit_code = 2

    def __init__(self, code: str, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.code = code
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        place = f" {self.where}:" if self.where else ""
        hint = f" ({self.hint})" if self.hint else ""
        text = f"error[{self.code}]{place} {self.what}{hint}"
        return " ".join(text.split())  # one line, whatever a hostile name contained


class BadInput(XtraceError):
    """The bytes, names or numbers given cannot be what they claim to be."""


class Unsupported(XtraceError):
    """The input is well formed, but this version of Xtrace cannot handle it."""


class Refused(XtraceError):
    """Xtrace could do it but declines: it would not be certain, or the licence forbids it."""


class MissingTool(XtraceError):
    """An external tool, package or device is not there."""
