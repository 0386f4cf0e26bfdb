"""Everything the planner asks about one kernel, computed once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from xtrace.image import Image, Kernel
from xtrace.isa import for_arch
from xtrace.isa.model import Instruction
from xtrace.isa.protocol import Isa

from .affine import Affine
from .budget import register_caps
from .cfg import ControlFlow, build_cfg
from .divergence import Lanes, lanes
from .inflight import InFlight, inflight
from .liveness import Liveness, liveness
from .loops import Loop, find_loops
from .occupancy import SM90, register_slack

__all__ = ["KernelAnalysis", "analyse", "analyse_all"]

_EIATTR_INDIRECT_BRANCH_TARGETS = 0x34
_OPERAND_READ, _RESULT, _SLOW_RESULT = 8, 16, 40  # cycles after issue, upper bounds


@dataclass(frozen=True)
class KernelAnalysis:
    """Lazily computed views of one kernel. All tuples are indexed by instruction."""

    kernel: Kernel
    isa: Isa
    instructions: tuple[Instruction, ...]
    where: str
    probed: frozenset[int] = frozenset()  # instructions at which records stand

    def probing(self, sites: Iterable[int]) -> KernelAnalysis:
        """The same kernel with records at ``sites``, on which :attr:`divergent` depends; what is known is kept."""
        other = replace(self, probed=frozenset(sites))
        known = {k: v for k, v in self.__dict__.items() if k not in ("probed", "lanes")}
        other.__dict__.update(known)
        return other

    @cached_property
    def cfg(self) -> ControlFlow:
        return build_cfg(self.instructions, indirect=_indirect_targets(self.kernel), where=self.where)

    @cached_property
    def liveness(self) -> Liveness:
        return liveness(self.cfg)

    @cached_property
    def inflight(self) -> InFlight:
        layout = self.isa.layout
        return inflight(self.cfg, self.isa.scoreboards, layout["R"].mask | layout["UR"].mask)

    @cached_property
    def lanes(self) -> Lanes:
        return lanes(self.cfg, self.isa.layout, self.probed)

    @property
    def divergent(self) -> tuple[bool, ...]:
        """Whether a second lane group of the warp may run, and pass records, before each instruction."""
        return self.lanes.apart

    @property
    def sole(self) -> tuple[bool, ...]:
        """Whether at most one lane of the warp gets to each instruction."""
        return self.lanes.sole

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        return find_loops(self.cfg)

    @cached_property
    def affine(self) -> Affine:
        return Affine(self.cfg, self.loops, self.isa)

    @cached_property
    def caps(self) -> tuple[int, ...]:
        return register_caps(self.cfg, self.loops, self.isa, self.kernel.registers)

    @cached_property
    def named(self) -> int:
        """Registers that any instruction reads or writes, implicit widths included (opaque ones left out)."""
        bits = 0
        for ins in self.instructions:
            if not ins.opaque:
                bits |= ins.reads | ins.writes
        return bits

    @cached_property
    def moves_registers(self) -> bool:
        """Whether warp roles trade registers at run time (setmaxnreg)."""
        return any(self.isa.max_registers(ins) is not None for ins in self.instructions)

    @cached_property
    def register_slack(self) -> int:
        """Highest register count at unchanged occupancy; the count itself where roles trade registers."""
        if self.moves_registers:
            return self.kernel.registers
        required = self.kernel.required_threads
        threads = required[0] * required[1] * required[2] if required else self.kernel.max_threads
        return register_slack(self.kernel.registers, threads, SM90)

    @property
    def free_uniform(self) -> list[int]:
        """Uniform registers that the kernel never names."""
        uniform = self.isa.layout["UR"]
        return list(self.isa.layout.numbers("UR", uniform.mask & ~self.named))

    @cached_property
    def loops_around(self) -> tuple[tuple[Loop, ...], ...]:
        """For each block, the loops around it, in the order of :attr:`loops`."""
        around: list[list[Loop]] = [[] for _ in self.cfg.blocks]
        for loop in self.loops:
            for block in loop.blocks:
                around[block].append(loop)
        return tuple(map(tuple, around))

    def loop_of(self, index: int) -> Loop | None:
        """Innermost loop around an instruction."""
        around = self.loops_around[self.cfg.block_of[index]]
        return max(around, key=lambda x: x.depth) if around else None

    def reachable(self, index: int) -> bool:
        return self.cfg.block_of[index] in self.cfg.reachable

    def recently_used(self, index: int, *, signalled: bool = True) -> int:
        """Registers whose fixed-latency read or write may not be over yet when control reaches ``index``.

        Such results are not signalled, only counted (facts/sass.md 7.1): operands are read within 8 cycles of
        issue, results arrive within 16, those of matrix and double-precision instructions within 40. Operands that a
        scoreboard guards are left out if not ``signalled``.
        """
        bits = self._slow_results.get(index, 0)
        issue, predecessors = self.issue_cycles, self.cfg.predecessors
        best: dict[int, int] = {}
        stack = [(p, 0) for p in predecessors[index]]
        while stack:
            i, later = stack.pop()
            age = later + issue[i]
            if best.get(i, _RESULT) <= age:
                continue
            best[i] = age
            ins = self.instructions[i]
            bits |= ins.writes
            claims = ins.control.write_sb is not None or ins.control.read_sb is not None
            if age < _OPERAND_READ and (signalled or not claims):
                bits |= ins.reads
            stack += [(p, age) for p in predecessors[i]]
        return bits

    @cached_property
    def issue_cycles(self) -> tuple[int, ...]:
        """Least cycles from each instruction's issue to the next one's."""
        return tuple(max(ins.control.stall, 1) for ins in self.instructions)

    @cached_property
    def _slow_results(self) -> Mapping[int, int]:
        """Results of matrix and double-precision instructions that may be outstanding before an instruction."""
        out: dict[int, int] = {}
        for ins in self.instructions:
            if "matrix" not in ins.tags and not ins.opcode.startswith("D"):
                continue
            best: dict[int, int] = {}
            stack = [(ins.index, 0)]
            while stack:
                i, passed = stack.pop()
                age = passed + self.issue_cycles[i]
                if age >= _SLOW_RESULT:
                    continue
                for k in self.cfg.successors[i]:
                    if age < best.get(k, _SLOW_RESULT):
                        best[k] = age
                        out[k] = out.get(k, 0) | ins.writes
                        stack.append((k, age))
        return out


def _indirect_targets(kernel: Kernel) -> Mapping[int, Sequence[int]]:
    """Parse INDIRECT_BRANCH_TARGETS: per BRX {u32 offset, u32 0, u32 n, u32 target[n]} (facts/sass.md 4.5)."""
    out: dict[int, list[int]] = {}
    for record in kernel.info:
        if record.attr != _EIATTR_INDIRECT_BRANCH_TARGETS:
            continue
        words = [int.from_bytes(record.payload[k : k + 4], "little") for k in range(0, len(record.payload) // 4 * 4, 4)]
        at = 0
        while at + 3 <= len(words):
            pc, _, count = words[at : at + 3]
            out[pc] = words[at + 3 : at + 3 + count]
            at += 3 + count
    return out


def analyse(image: Image, kernel: Kernel) -> KernelAnalysis:
    """Decode one kernel and wrap it for analysis."""
    return analyse_all(image, [kernel])[0]


def analyse_all(image: Image, kernels: Sequence[Kernel]) -> list[KernelAnalysis]:
    """Decode several kernels of one image.

    Raises
    ------
    Unsupported, BadInput, MissingTool
        From :mod:`xtrace.isa`, with the kernel's name.
    """
    isa = for_arch(image.arch, where=image.arch_place)
    decoded = isa.decode_many([k.text for k in kernels], where=image.name)
    return [
        KernelAnalysis(kernel, isa, instructions, f"{image.name}: {kernel.demangled or kernel.name}")
        for kernel, instructions in zip(kernels, decoded, strict=True)
    ]
