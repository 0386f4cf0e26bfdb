"""NVIDIA words to :class:`~xtrace.isa.model.Instruction`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from xtrace.isa.model import Access, Control, Flow, Instruction, Latency, RegisterLayout
from xtrace.isa.nvidia import access, control, flow, latency
from xtrace.isa.nvidia.disasm import disassemble
from xtrace.isa.nvidia.effects import Effects, effects, shape_of
from xtrace.isa.nvidia.families import Family
from xtrace.isa.nvidia.layout import make_layout
from xtrace.isa.nvidia.opcodes import OPCODES
from xtrace.isa.nvidia.operands import parse_operand, split_operands
from xtrace.isa.nvidia.tags import tags_of

__all__ = ["NvidiaIsa"]

_TEXT = re.compile(r"(?:(@!?(U?P)([0-6]|T)) +)?(\S+)(?: +(.*))?")
_ADDRESS = re.compile(r"(.*?)\b0x([0-9a-f]+)")
_NEVER = ("@!PT", "@!UPT")
_MASK64 = (1 << 64) - 1


class NvidiaIsa:
    """One NVIDIA architecture. See :class:`xtrace.isa.protocol.Isa`."""

    word_bytes = flow.WORD_BYTES
    scoreboards = control.SCOREBOARDS

    def __init__(self, arch: str, family: Family) -> None:
        self.arch = arch
        self.family = family
        self.layout: RegisterLayout = make_layout(family.uniform_registers)
        self.reserved_registers = family.reserved_registers
        self._everything = self.layout.everything
        self._body = lru_cache(maxsize=65536)(self._parse_body)

    def decode(self, code: bytes, *, where: str = "") -> tuple[Instruction, ...]:
        return self.decode_many([code], where=where)[0]

    def decode_many(self, codes: Sequence[bytes], *, where: str = "") -> list[tuple[Instruction, ...]]:
        listings = disassemble(codes, self.arch, where=where)
        result = []
        for code, texts in zip(codes, listings, strict=True):
            words = (
                int.from_bytes(code[i : i + self.word_bytes], "little") for i in range(0, len(code), self.word_bytes)
            )
            result.append(
                tuple(self.instruction(i, word, text) for i, (word, text) in enumerate(zip(words, texts, strict=True)))
            )
        return result

    def code_field_mask(self, word: int) -> int:
        return flow.code_field_mask(word, self.family)

    def retarget(self, word: int, old_pc: int, new_pc: int, new_target: int | None) -> int:
        return flow.retarget(word, old_pc, new_pc, new_target, self.family)

    def max_registers(self, ins: Instruction) -> int | None:
        """Cap that USETMAXREG sets. TRY_ALLOC sets it only on the path where its predicate comes out true."""
        if "setmaxreg" not in ins.tags:
            return None
        last = parse_operand(split_operands(ins.text.rpartition(" ")[2])[-1])
        return last.value

    def global_access(self, ins: Instruction) -> Access | str | None:
        return access.global_access(ins)

    def required_distance(self, producer: Instruction, consumer: Instruction) -> int:
        return latency.required_distance(producer, consumer)

    def instruction(self, index: int, word: int, text: str) -> Instruction:
        """The instruction that ``word`` at position ``index`` is; ``text`` is its disassembly at any base address."""
        pc = index * self.word_bytes
        kind, pinned = flow.flow_of(word, self.family)
        target = flow.target_of(word, pc, self.family)
        shown = flow.shown_address(word, pc, self.family)
        if shown is not None:
            text = _with_address(text, shown)
        match = _TEXT.fullmatch(text)
        if not match:  # nothing that the tool prints for an instruction
            guard, opcode, operands, guard_bits = "", text.split(" ", 1)[0] or "?", "", 0
        else:
            guard, opcode, operands = match[1] or "", match[4], match[5] or ""
            guard_bits = self.layout[match[2]].bit(int(match[3])) if guard and match[3] != "T" else 0
        found, tags = self._body(opcode, operands, kind)
        # A call through a register may run anything, so it is as opaque as an instruction that is not understood.
        opaque = found is None or not match or (kind is Flow.INDIRECT and opcode.startswith("CALL"))
        if found is None or opaque:
            reads = writes = self._everything
        elif guard in _NEVER:
            reads = writes = 0
        else:
            reads, writes = found.reads | guard_bits, found.writes
        scheduling = control.decode(word)
        if pinned:
            tags |= {"pinned"}
        return Instruction(
            index=index,
            pc=pc,
            word=word,
            size=self.word_bytes,
            text=text,
            opcode=opcode,
            guard=guard,
            reads=reads,
            writes=writes,
            control=scheduling,
            flow=kind,
            target=target,
            falls_through=not match or _falls_through(kind, guard, opcode, operands),
            latency=_latency(opcode, tags, scheduling),
            opaque=opaque,
            tags=tags,
        )

    def _parse_body(self, opcode: str, operands: str, kind: Flow) -> tuple[Effects | None, frozenset[str]]:
        """Effects without the guard (None: not understood, or text and word disagree), and tags."""
        parsed = [parse_operand(t) for t in split_operands(operands)]
        tags = tags_of(opcode, parsed, operands)
        shape = shape_of(opcode)
        if shape is None or not (kind is Flow.FALL or shape.base in _FLOWS):
            return None, tags
        return effects(shape, parsed, self.layout), tags


def _latency(opcode: str, tags: frozenset[str], scheduling: Control) -> Latency:
    row = OPCODES.get(opcode.split(".", 1)[0])
    if "matrix_async" in tags:
        return Latency.ASYNC_MATRIX
    return Latency.VARIABLE if row is None or row.variable or scheduling.write_sb is not None else Latency.FIXED


# Mnemonics whose words may hold a code address; any other text for such a word is a contradiction.
_FLOWS = frozenset(
    ("BRA", "BRX", "BRXU", "CALL", "RET", "EXIT", "KILL", "JMP", "JMX", "JMXU", "BSSY", "WARPSYNC", "LEPC")
)


def _with_address(text: str, target: int) -> str:
    """``text`` with its code address, which counts from the start of a disassembler run, replaced by ``target``."""
    head, _, _ = text.rpartition("0x")
    return f"{head}{target & _MASK64:#x}" if head else text


def _falls_through(kind: Flow, guard: str, opcode: str, operands: str) -> bool:
    """Whether execution can go on behind the instruction (for a call: after it came back)."""
    if kind in (Flow.FALL, Flow.PUSH, Flow.CALL) or guard not in ("", "@PT", "@UPT"):
        return True
    if opcode.startswith("CALL"):
        return True
    # A branch with operands before its address (a predicate, a uniform mask) is conditional.
    return kind is Flow.BRANCH and ("," in operands or ".DIV" in opcode or ".CONV" in opcode or ".ANY" in opcode)
