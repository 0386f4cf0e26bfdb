"""What the vendor-neutral rooms ask of an instruction set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from xtrace.isa.model import Access, Instruction, RegisterLayout

__all__ = ["Isa"]


class Isa(Protocol):
    """One architecture's instruction set. Implementations are immutable and may be shared."""

    @property
    def arch(self) -> str:
        """Architecture name as in the image, e.g. ``"sm_90a"``."""

    @property
    def layout(self) -> RegisterLayout: ...

    @property
    def word_bytes(self) -> int:
        """Bytes per instruction."""

    @property
    def scoreboards(self) -> int:
        """Scoreboards (or wait counters) per warp."""

    @property
    def reserved_registers(self) -> int:
        """General registers below the register count that a kernel must not touch."""

    def decode(self, code: bytes, *, where: str = "") -> tuple[Instruction, ...]:
        """Instructions of one kernel's text, in order; instruction i stands at byte ``i * word_bytes``.

        ``where`` goes into error messages. Raises BadInput for bytes that are no code of this architecture and
        MissingTool if the disassembler is not installed.
        """

    def decode_many(self, codes: Sequence[bytes], *, where: str = "") -> list[tuple[Instruction, ...]]:
        """The same for several kernels with one disassembler run."""

    def code_field_mask(self, word: int) -> int:
        """Bits of the word that hold a code address; 0 if it holds none."""

    def retarget(self, word: int, old_pc: int, new_pc: int, new_target: int | None) -> int:
        """The word moved from ``old_pc`` to ``new_pc`` and pointing at ``new_target`` (bytes in the text).

        ``None`` as target: the word has no address, or jumps through a register, whose anchor is then kept. Raises
        Refused for words that cannot be moved.
        """

    def max_registers(self, ins: Instruction) -> int | None:
        """Register cap per thread behind ``ins`` if it changes the cap, else None."""

    def global_access(self, ins: Instruction) -> Access | str | None:
        """The access to global memory that ``ins`` makes lane by lane, or why its address cannot be stated exactly.

        None if it makes none.
        """

    def required_distance(self, producer: Instruction, consumer: Instruction) -> int:
        """Fewest cycles between the issue of two instructions of which the second reads a result of the first.

        0 if it does not, or if the result is signalled by a scoreboard instead.
        """
