"""Where a packet of a striped slot goes, for every number of packets before it, read off the disassembled text.

The dry run sees rings wrap once or twice. What a bit of the offset does that is set only later, this check tells: the
number that chooses the stripe is the offset cut to the ring, and nothing but it.
"""

from __future__ import annotations

import re

from xtrace.verify.certificate import Promise
from xtrace.verify.pair import Pair

__all__ = ["PATCH", "SIZES", "check"]

PATCH = "stripe_slots"  # value that loading patches: slots of a stripe
SIZES = (16, 32, 64)  # bytes of a packet
_TIMES = re.compile(r"UIMAD\.WIDE\.U32 (UR\d+), (UR\d+), 0x0, (UR\d+)[\s;]*")
_CUT = re.compile(r"ULOP3\.LUT (UR\d+), (UR\d+), (0x[0-9a-f]+), URZ, 0xc0, !UPT[\s;]*")


def check(pair: Pair, patches: dict[int, str]) -> None:
    """Every multiplication by the number of slots takes the offset, cut to the ring a few words before."""
    ring = ((pair.claim or {}).get("slot") or {}).get("ring")
    layout, code = pair.isa.layout["UR"], pair.output.code
    for _, island in pair.align.islands():
        for j in island:
            if patches.get(j) != PATCH:
                continue
            times = _TIMES.fullmatch(code[j].text.strip())
            taken = 0 if times is None else layout.bit(int(times[2][2:]))
            before = next((k for k in range(j - 1, island.start - 1, -1) if code[k].writes & taken), None)
            cut = None if before is None else _CUT.fullmatch(code[before].text.strip())
            if times is None or cut is None or cut[1] != times[2]:
                pair.fail(Promise.EFFECTS, "packet's place is not computed from the offset, cut to the ring", code[j])
            elif int(cut[3], 16) + 1 != ring:
                why = f"packet's place is cut to {cut[3]}, which is not the last byte of a ring of {ring}"
                pair.fail(Promise.EFFECTS, why, code[j])
