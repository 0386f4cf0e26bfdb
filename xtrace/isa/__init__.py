"""Instruction sets: words to instructions and back."""

from __future__ import annotations

from functools import lru_cache

from xtrace.errors import Unsupported
from xtrace.isa.protocol import Isa

__all__ = ["Isa", "for_arch"]


def for_arch(arch: str, *, where: str = "") -> Isa:
    """Instruction set of an architecture name such as ``"sm_90a"``.

    Raises :class:`~xtrace.errors.Unsupported` XT2001 for an unknown architecture, XT2002 for one whose model nobody has
    verified yet, with the reason and the architectures that are supported. ``where`` names the image in the error.
    """
    try:
        return _model(arch)
    except Unsupported as error:
        raise Unsupported(error.code, error.what, where=where, hint=error.hint) from error


@lru_cache(maxsize=32)
def _model(arch: str) -> Isa:
    from xtrace.isa.nvidia.decode import NvidiaIsa
    from xtrace.isa.nvidia.families import family_of

    if arch.startswith("gfx"):
        raise Unsupported("XT2002", f"AMD architecture {arch} is not modelled yet", hint="supported: sm_90, sm_90a")
    family = family_of(arch)
    if not family.verified:
        raise Unsupported("XT2002", f"{arch} is not verified yet: {family.reason}", hint="supported: sm_90, sm_90a")
    return NvidiaIsa(arch, family)
