"""What is outstanding at every point: the verifier's own scoreboard simulation, one pass over all paths.

The state is one big integer made of lanes. For each scoreboard there is a lane of registers that will be written and
one of registers that will still be read, kept apart for the kernel's and the probes' claims, each with a claim bit for
operations that hold no register. Two more lanes hold sources of memory operations that claim no scoreboard at all. A
wait clears a scoreboard's lanes, a claim adds to them, joins unite: so "outstanding" means "on some path".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from xtrace.isa.model import Instruction
from xtrace.verify.program import Program, forward_may

__all__ = ["Pending", "cleared_by", "simulate"]

_LANE = 400
_REGISTERS = (1 << 392) - 1
_CLAIM = 1 << 392
_KERNEL_WRITE, _KERNEL_READ, _PROBE_WRITE, _PROBE_READ = range(4)
_SCOREBOARDS = 6
_UNTRACKED = 4 * _SCOREBOARDS  # kernel sources without a scoreboard, then the same of probes
_DEPBAR = re.compile(r"DEPBAR\.LE\s+SB(\d),\s*(0x[0-9a-f]+)(.*)")
_EXTRA = re.compile(r"\{([0-5,\s]+)\}")


def _lane(kind: int, sb: int) -> int:
    return (kind * _SCOREBOARDS + sb) * _LANE


_SB_MASK = [sum(((1 << _LANE) - 1) << _lane(kind, sb) for kind in range(4)) for sb in range(_SCOREBOARDS)]

_PROBES = sum(
    ((1 << _LANE) - 1) << _lane(kind, sb) for kind in (_PROBE_WRITE, _PROBE_READ) for sb in range(_SCOREBOARDS)
)
_PROBES |= ((1 << _LANE) - 1) << (_UNTRACKED + 1) * _LANE


def cleared_by(ins: Instruction) -> int:
    """Bit set of the scoreboards that are certainly zero when ``ins`` has issued."""
    mask = ins.control.wait_mask
    if ins.base == "DEPBAR" and (match := _DEPBAR.match(ins.text.split("} ")[-1].strip())):
        if int(match[2], 16) == 0:
            mask |= 1 << int(match[1])
        if extra := _EXTRA.search(match[3]):
            for sb in extra[1].replace(",", " ").split():
                mask |= 1 << int(sb)
    return mask


@dataclass(frozen=True)
class Pending:
    """Outstanding operations before each instruction (before its own wait)."""

    states: list[int]

    def writes(self, i: int, sb: int, *, probe: bool) -> int:
        """Registers that scoreboard ``sb`` still guards against being read or written."""
        return self.states[i] >> _lane(_PROBE_WRITE if probe else _KERNEL_WRITE, sb) & _REGISTERS

    def reads(self, i: int, sb: int, *, probe: bool) -> int:
        """Registers that scoreboard ``sb`` still guards against being overwritten."""
        return self.states[i] >> _lane(_PROBE_READ if probe else _KERNEL_READ, sb) & _REGISTERS

    def probes_at_work(self, i: int) -> bool:
        """Whether any operation of a probe may be outstanding."""
        return bool(self.states[i] & _PROBES)

    def claimed(self, i: int, *, probe: bool) -> int:
        """Bit set of scoreboards with an outstanding claim of the kernel or of probes."""
        kinds = (_PROBE_WRITE, _PROBE_READ) if probe else (_KERNEL_WRITE, _KERNEL_READ)
        state, found = self.states[i], 0
        for sb in range(_SCOREBOARDS):
            if any(state >> _lane(kind, sb) & _CLAIM for kind in kinds):
                found |= 1 << sb
        return found

    def untracked(self, i: int, *, probe: bool) -> int:
        """Sources of memory operations in flight that no scoreboard tracks."""
        return self.states[i] >> (_UNTRACKED + probe) * _LANE & _REGISTERS


def simulate(program: Program) -> Pending:
    """Run the simulation. Effects of an instruction: its wait, then its claims."""
    keep: list[int] = []
    gen: list[int] = []
    # Guards and predicate sources are read at issue; only register operands are fetched late.
    late_sources = program.layout["R"].mask | program.layout["UR"].mask
    everything = (1 << (_UNTRACKED + 2) * _LANE) - 1
    for i, ins in enumerate(program.code):
        clear = 0
        waits = cleared_by(ins)
        for sb in range(_SCOREBOARDS):
            if waits >> sb & 1:
                clear |= _SB_MASK[sb]
        # Without a scoreboard only the kernel's own next certain access shows that a source has been read.
        if not ins.conditional and not ins.opaque:
            clear |= ((ins.reads | ins.writes) & _REGISTERS) << (_UNTRACKED + program.probe[i]) * _LANE
        keep.append(everything & ~clear)
        gen.append(_claims(ins, late_sources, probe=program.probe[i]))
    return Pending(forward_may(program, keep, gen))


def _claims(ins: Instruction, late_sources: int, *, probe: bool) -> int:
    control = ins.control
    write_kind, read_kind = (_PROBE_WRITE, _PROBE_READ) if probe else (_KERNEL_WRITE, _KERNEL_READ)
    sources = ins.reads & late_sources
    late = "memory" in ins.tags
    added = 0
    if control.write_sb is not None and control.write_sb < _SCOREBOARDS:
        added |= ((ins.writes & _REGISTERS) | _CLAIM) << _lane(write_kind, control.write_sb)
        if late and control.read_sb is None:
            added |= sources << _lane(read_kind, control.write_sb)
    if control.read_sb is not None and control.read_sb < _SCOREBOARDS:
        added |= (sources | _CLAIM) << _lane(read_kind, control.read_sb)
    elif late and control.write_sb is None:
        added |= sources << (_UNTRACKED + probe) * _LANE
    return added
