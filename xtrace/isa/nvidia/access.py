"""Global memory accesses: which registers hold the address, and under which condition a lane makes the access.

Forms of the address (facts: memory operands of sm_90): a 64-bit register pair, ``[R2.64+0x10]``, with or without a
descriptor (which carries no address bits); a uniform pair, ``[UR4+0x10]``; a uniform pair plus a 32-bit register,
``[R2.U32+UR4+0x10]``. The immediate is signed and added last.
"""

from __future__ import annotations

import re

from xtrace.isa.model import Access, Instruction

__all__ = ["global_access"]

_KINDS = {
    "LDG": "global load", "LD": "generic load", "STG": "global store", "ST": "generic store", "LDGSTS": "async copy",
    "ATOMG": "global atomic", "ATOM": "generic atomic", "REDG": "global reduction", "RED": "generic reduction",
}  # fmt: skip
_BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
_PLACE = re.compile(r"(desc\[UR\d+\])?\[([^\[\]]*)\]")
_PARTS = re.compile(
    r"(?:R(?P<low>\d+|Z)\.(?P<width>64|U32)(?:\.reuse)?)?\+?(?:UR(?P<uniform>\d+)(?:\.64)?)?(?:\+?(?P<offset>-?0x[0-9a-f]+))?"
)
_CONDITION = re.compile(r"(!?)P(\d)")


def global_access(ins: Instruction) -> Access | str | None:
    """What ``ins`` accesses; a sentence where it cannot be stated exactly; None if it is no such access.

    Copies by the tensor memory accelerator (UTMALDG, UBLKCP, ...) have coordinates or are not made by a lane: None.
    """
    kind = _KINDS.get(ins.base)
    if kind is None or ins.never:
        return None
    text = ins.text.split(" ", 1)[1] if ins.text.startswith("@") else ins.text
    operands = [part.strip() for part in text.partition(" ")[2].split(",")]
    places = [m for x in operands if (m := _PLACE.fullmatch(x))]
    if ins.base == "LDGSTS":
        places = places[1:]  # the first one is in shared memory
    if not places or ".E" not in f"{ins.opcode}.":
        return f"the address of {ins.text} has less than 64 bits"
    parts = _PARTS.fullmatch(places[0][2])
    if parts is None or not (parts["low"] or parts["uniform"]):
        return f"the model does not know the form of the address {places[0][0]}"
    low = None if parts["low"] in (None, "Z") else int(parts["low"])
    uniform = None if parts["uniform"] is None else int(parts["uniform"])
    wide = parts["width"] == "64"
    if low is None and uniform is None:
        return f"the address {places[0][0]} is a constant"
    if (low is not None and wide) == (uniform is not None):
        return f"the address {places[0][0]} is a sum of two 64-bit registers, or has only 32 bits"
    conditions = _conditions(ins, operands)
    if isinstance(conditions, str):
        return conditions
    size = next((_BYTES[m] for m in reversed(ins.opcode.split(".")) if m in _BYTES), 4)
    return Access(kind, size, low, uniform, int(parts["offset"] or "0", 16), conditions)


def _conditions(ins: Instruction, operands: list[str]) -> tuple[tuple[int, bool], ...] | str:
    """Guard and, of an asynchronous copy, the predicate without which nothing is read."""
    wanted = [ins.guard.lstrip("@")] if ins.guard else []
    if ins.base == "LDGSTS" and len(operands) > 2:
        wanted += operands[2:]
    found = []
    for name in wanted:
        match = _CONDITION.fullmatch(name)
        if match is not None:
            found.append((int(match[2]), bool(match[1])))
        elif name not in ("PT", "UPT"):
            return f"{ins.text} depends on {name}, which is no predicate of a lane"
    return tuple(found)
