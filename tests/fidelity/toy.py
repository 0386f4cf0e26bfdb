"""A toy instruction set: opcode in the low byte, registers next, control above, a code address on top.

The tests below edit streams of it in known ways, so that each level's answer is known by construction.
"""

from __future__ import annotations

from dataclasses import replace

from xtrace.isa.model import Control, Flow, Instruction

OPCODES = ["IADD3", "LDG.E", "STG.E", "FFMA", "HGMMA.64x128x16.F32.BF16", "BRA", "EXIT", "NOP", "MOV"]
CONTROL = Control(stall=4, yields=False, write_sb=None, read_sb=None, wait_mask=0)
TARGET_SHIFT = 64


class ToyIsa:
    def code_field_mask(self, word: int) -> int:
        return 0xFFFFFFFF << TARGET_SHIFT if OPCODES[word & 0xFF] == "BRA" else 0

    def retarget(self, word: int, old_pc: int, new_pc: int, new_target: int | None) -> int:
        return word


ISA = ToyIsa()


def make(lines: list[tuple[str, tuple[int, ...]]], *, targets: dict[int, int] | None = None) -> list[Instruction]:
    """Instructions from (opcode, register numbers); ``targets`` gives a BRA at index k its target index."""
    out = []
    for k, (opcode, registers) in enumerate(lines):
        target = (targets or {}).get(k)
        word = OPCODES.index(opcode)
        for position, number in enumerate(registers):
            word |= (number + 1) << (8 + 8 * position)
        text = f"{opcode} " + ", ".join(f"R{r}" for r in registers)
        flow = Flow.FALL
        pc = 16 * k
        if opcode == "BRA":
            flow = Flow.BRANCH
            if target is not None:
                word |= ((16 * target - pc) & 0xFFFFFFFF) << TARGET_SHIFT  # relative, as in real code
                text += f" 0x{16 * target:x}"
        if opcode == "EXIT":
            flow = Flow.EXIT
        out.append(
            Instruction(
                index=k,
                pc=pc,
                word=word | CONTROL.stall << 120,
                size=16,
                text=text.strip(),
                opcode=opcode,
                guard="",
                reads=0,
                writes=0,
                control=CONTROL,
                flow=flow,
                target=None if target is None else 16 * target,
                falls_through=flow is Flow.FALL,
            )
        )
    return out


def with_stall(ins: Instruction, stall: int) -> Instruction:
    word = ins.word & ~(0x1F << 120) | stall << 120
    return replace(ins, word=word, control=replace(ins.control, stall=stall))


BODY: list[tuple[str, tuple[int, ...]]] = [
    ("MOV", (1,)),
    ("LDG.E", (2, 3)),
    ("IADD3", (4, 2, 1)),
    ("FFMA", (5, 4, 2)),
    ("BRA", ()),  # back to 1
    ("STG.E", (3, 5)),
    ("EXIT", ()),
    ("BRA", ()),  # to itself: padding
    ("NOP", ()),
    ("NOP", ()),
]
TARGETS = {4: 1, 7: 7}
REAL = 7  # instructions without padding


def body() -> list[Instruction]:
    return make(BODY, targets=TARGETS)


def spliced(before: int, count: int = 2) -> list[Instruction]:
    """The body with ``count`` MOVs in front of instruction ``before``; branches land in front of them."""
    lines = BODY[:before] + [("MOV", (200 + n,)) for n in range(count)] + BODY[before:]

    def moved(k: int, *, as_target: bool) -> int:
        return k if k < before or (as_target and k == before) else k + count

    targets = {moved(k, as_target=False): moved(t, as_target=t != k) for k, t in TARGETS.items()}
    return make(lines, targets=targets)
