"""How phases look: the same phase has the same look in every picture.

Work is drawn in full colours, waiting in pale hatched ones, so that the two stay apart in grey print
too. The full colours are those of M. Okabe and K. Ito, "Color Universal Design" (2008), which people
with any common colour vision deficiency can tell apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Look", "looks"]


@dataclass(frozen=True, slots=True)
class Look:
    """Face colour, hatch (matplotlib's notation) and the letter used in the terminal."""

    colour: str
    hatch: str
    letter: str


KNOWN = {
    "compute": ("#0072B2", ""),
    "matrix issue": ("#D55E00", ""),
    "copy issue": ("#009E73", ""),
    "prologue": ("#8C8C8C", ""),
    "running": ("#56B4E9", ""),
    "matrix wait": ("#F7CDAE", "////"),
    "copy wait": ("#B8E4D6", "\\\\\\\\"),
    "mbarrier wait": ("#D3EAF9", "...."),
    "barrier wait": ("#E3E3E3", "xxxx"),
}
WORK = ["#E69F00", "#56B4E9", "#CC79A7", "#0072B2", "#009E73", "#D55E00", "#F0E442", "#000000"]
WAIT = ["#D3EAF9", "#F7CDAE", "#B8E4D6", "#EBCFE0", "#FBE5B5", "#E3E3E3"]
HATCHES = ["////", "\\\\\\\\", "....", "xxxx", "----", "++++"]
WORK_AGAIN = ["", "oo", "**", "||"]  # second and later rounds through the full colours
_WAITING = ("wait", "barrier", "stall", "idle", "sleep")


def looks(phases: Iterable[str]) -> dict[str, Look]:
    """A look for each phase, in the order given; no two of up to 32 phases look the same."""
    names = list(dict.fromkeys(phases))
    taken = {KNOWN[name] for name in names if name in KNOWN}
    work = (pair for hatch in WORK_AGAIN for pair in ((c, hatch) for c in WORK))
    wait = (pair for turn in range(len(WAIT)) for pair in _turned(turn))
    letters = _letters(names)
    result = {}
    for name in names:
        pair = KNOWN.get(name)
        if pair is None:
            source = wait if any(word in name.lower() for word in _WAITING) else work
            pair = next((p for p in source if p not in taken), ("#FFFFFF", "**"))
            taken.add(pair)
        result[name] = Look(*pair, letters[name])
    return result


def _turned(turn: int) -> list[tuple[str, str]]:
    return [(colour, HATCHES[(k + turn) % len(HATCHES)]) for k, colour in enumerate(WAIT)]


def _letters(names: list[str]) -> dict[str, str]:
    """One letter per phase, a telling one where it is free: capitals for work, small ones for waiting."""
    free = list("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
    result = {}
    for name in names:
        waiting = any(word in name.lower() for word in _WAITING)
        initials = [word[0] for word in name.split()]
        wanted = [c.lower() if waiting else c.upper() for c in initials + list(name) if c.isascii() and c.isalpha()]
        letter = next((c for c in wanted if c in free), free[0] if free else "?")
        if letter in free:
            free.remove(letter)
        result[name] = letter
    return result
