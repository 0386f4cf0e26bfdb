"""Which clocks of a packet are of this time around, and which are left over from an earlier one.

The register of an *uncleared* event is cleared in front of its loop alone: where an iteration leaves the event out, its
packet holds the clock of the last iteration that had it (0: none had).

**Rule.** The event happened exactly if its clock is younger than that of the certain event before it, wherever that
stands in the warp's ring; ages are measured back from the next certain event of its packet, modulo 2**32. A *certain*
event is one whose clock is not 0 and that is cleared each time, or never left out.

**Proof.** Only the event's own capture and the clear write the register, so what is stored is 0, or a clock of this
iteration, which lies between the two neighbours, or one of an iteration whose packet the warp stored earlier. That
packet ended with a certain event, which is younger than the left-over clock and not younger than the neighbour before.
So the two cases lie on different sides of that neighbour's clock, and ages tell the sides as long as none reaches
2**32 cycles (2.2 s): no silence is so long, nor was the event left out for so long within one run of its loop. (If it
was, and a clock is taken for a new one, the warp has more events than its header counts, unless its ring overflowed.)

Two events of a warp never have the same clock. What comes first in a warp's trace has no neighbour before, and no
earlier packet that it could be left over from. What comes first behind overwritten packets, or behind a gap, may have
lost its neighbour: then nobody can tell, and it is left out. If it did happen, it is missing like the events before it:
the counts stay exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["left_over"]

Array = npt.NDArray[Any]


def left_over(clock: Array, loose: Array, there: Array, warp: Array, gaps: Array, before: Array) -> Array:
    """Numbers of the events, among those with a clock, that did not happen or of which nobody can tell.

    Parameters
    ----------
    clock, loose, there, warp, gaps
        Per event, by warp and time: clock (u32), whether it is uncleared, whether its clock is not 0, its warp, and the
        gaps in the ring behind it.
    before
        Per warp: gaps in the ring; -1 where packets were overwritten.
    """
    some, certain = np.flatnonzero(loose & there), np.flatnonzero(there & ~loose)
    if not len(some) or not len(certain):
        return some
    place = np.searchsorted(certain, some)
    following = certain[np.minimum(place, len(certain) - 1)]
    previous = certain[np.maximum(place - 1, 0)]
    known = (place > 0) & (warp[previous] == warp[some])
    younger = (clock[following] - clock[some]) < (clock[following] - clock[previous])
    happened = np.where(known, younger & (gaps[previous] == gaps[some]), gaps[some] == before[warp[some]])
    happened &= (place < len(certain)) & (warp[following] == warp[some])
    lost: Array = some[~happened]
    return lost
