"""Preservation: how much of an original image survives in another image of it.

Two ways to pair instructions:

* with a trace map, exactly: every original instruction has one known place in the other image;
* without, by the longest common subsequence of the instruction keys, one alignment per level.

**Targets without a map.** At level ``relocated`` a code address must still mean the same
instruction. Let the alignment of the masked words send original instruction ``t`` (the target) to
``A(t)`` and the last aligned instruction before it to ``A(t-)``. The other image's target is
equivalent when it lies in ``(A(t-), A(t)]``: what stands between the two was inserted in front of the
target, and control flow that enters there still reaches it. A target that is not aligned itself
counts as changed. With a map the same interval rule holds with the map's addresses.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from xtrace.errors import BadInput
from xtrace.fidelity import blocks, levels
from xtrace.fidelity.addresses import AddressMap, address_maps
from xtrace.fidelity.alignment import align
from xtrace.isa.model import Instruction

if TYPE_CHECKING:
    from xtrace.image import Image, Kernel

__all__ = ["KernelPreservation", "compare", "compare_instructions"]

Pairs = list[tuple[int, int]]


@dataclass(frozen=True)
class KernelPreservation:
    """Preservation of one kernel. Shares are 0..1 of ``instructions``.

    Attributes
    ----------
    instructions
        Instructions of the original, without trailing padding.
    inserted, removed
        Instructions of the other image, and of the original, that have no partner even at level
        ``opcode``.
    strict, relocated, operands, form, opcode
        Share of the original's instructions found unchanged and in order; see DESIGN.md section 3.
    blocks, changed_blocks
        Basic blocks of the original, and those in which some instruction is not preserved at level
        ``relocated``.
    control_fields_changed
        Instructions with equal guard, opcode and operands whose scheduling fields differ.
    retargeted
        Preserved control-flow instructions whose code-address bits differ.
    misdirected
        Control-flow instructions with all bits equal that lead to another instruction now. 0 in any sound rewrite;
        between two compilations of a kernel it says little.
    method
        ``"map"`` or ``"lcs"``.
    sites
        Number of probe sites, if a map tells.
    """

    name: str
    other_name: str
    instructions: int
    other_instructions: int
    inserted: int
    removed: int
    strict: float
    relocated: float
    operands: float
    form: float
    opcode: float
    blocks: int
    changed_blocks: int
    control_fields_changed: int
    retargeted: int
    misdirected: int
    method: str
    sites: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """All fields as plain JSON types."""
        return asdict(self)


def compare(
    original: Image,
    other: Image,
    kernel_glob: str = "*",
    map: Mapping[str, Any] | None = None,
) -> list[KernelPreservation]:
    """Preservation of every kernel of ``original`` that ``kernel_glob`` selects.

    Kernels are matched by name; if each image holds exactly one kernel, these two are compared
    whatever they are called.

    Parameters
    ----------
    map
        A trace map (``xtrace/map/2``) that belongs to exactly these two images, or None.

    Raises
    ------
    BadInput
        XT4201 architectures differ, XT4202 a kernel is missing in ``other``, XT4203-XT4205 the map is
        malformed, belongs to other files, or does not fit the code.
    Unsupported
        XT4210 for kernels too long to align without a map, XT2xxx for unknown architectures.
    """
    from xtrace import isa as isa_room

    isa = isa_room.for_arch(original.arch, where=original.arch_place)
    isa_room.for_arch(other.arch, where=other.arch_place)
    if original.arch != other.arch:
        raise BadInput(
            "XT4201",
            f"cannot compare {original.arch} code with {other.arch} code",
            where=f"{original.name}, {other.name}",
            hint="both images must be built for one architecture",
        )
    maps = address_maps(map, original, other) if map is not None else {}
    result = []
    for kernel in original.select(kernel_glob):
        partner = _partner(kernel, original, other)
        before = isa.decode(kernel.text, where=f"{original.name}: {kernel.name}")
        after = isa.decode(partner.text, where=f"{other.name}: {partner.name}")
        result.append(
            compare_instructions(
                isa, before, after, name=kernel.name, other_name=partner.name, addresses=maps.get(kernel.name)
            )
        )
    return result


def _partner(kernel: Kernel, original: Image, other: Image) -> Kernel:
    for candidate in other.kernels:
        if candidate.name == kernel.name:
            return candidate
    if len(original.kernels) == 1 and len(other.kernels) == 1:
        return other.kernels[0]
    names = ", ".join(k.name for k in other.kernels[:8]) or "none"
    raise BadInput(
        "XT4202",
        f"kernel {kernel.name} is not in the other image",
        where=other.name,
        hint=f"kernels there: {names}; choose common ones with --kernel",
    )


def compare_instructions(
    isa: levels.CodeFields,
    original: Sequence[Instruction],
    other: Sequence[Instruction],
    *,
    name: str = "",
    other_name: str = "",
    addresses: AddressMap | None = None,
) -> KernelPreservation:
    """Preservation of one decoded kernel in another; see :func:`compare`."""
    a, b = levels.without_padding(original), levels.without_padding(other)
    text_a, text_b = ([levels.operands_key(i, isa) for i in side] for side in (a, b))
    form_a, form_b = [levels.form_key(t) for t in text_a], [levels.form_key(t) for t in text_b]
    op_a, op_b = [levels.opcode_key(i) for i in a], [levels.opcode_key(i) for i in b]
    if addresses is not None:
        fixed = addresses.pairs(a, b)

        def matched(keys_a: Sequence[object], keys_b: Sequence[object]) -> Pairs:
            return [(i, j) for i, j in fixed if keys_a[i] == keys_b[j]]
    else:
        fixed = None

        def matched(keys_a: Sequence[object], keys_b: Sequence[object]) -> Pairs:
            return align(keys_a, keys_b)

    strict = matched([i.word for i in a], [i.word for i in b])
    masked = matched([levels.masked_key(i, isa) for i in a], [levels.masked_key(i, isa) for i in b])
    relocated, retargeted, misdirected = _relocated(isa, a, b, masked, masked if fixed is None else fixed)
    if len(strict) > len(relocated):  # equal words are preserved whatever alignment found them
        relocated, retargeted = strict, 0
    operands = matched(text_a, text_b)
    opcode = matched(op_a, op_b)
    kept = {i for i, _ in relocated}
    parts = blocks.split(a)
    n = len(a)

    def share(pairs: Pairs) -> float:
        return len(pairs) / n if n else 1.0

    return KernelPreservation(
        name=name,
        other_name=other_name or name,
        instructions=n,
        other_instructions=len(b),
        inserted=len(b) - len(opcode),
        removed=n - len(opcode),
        strict=share(strict),
        relocated=share(relocated),
        operands=share(operands),
        form=share(matched(form_a, form_b)),
        opcode=share(opcode),
        blocks=len(parts),
        changed_blocks=sum(any(i not in kept for i in part) for part in parts),
        control_fields_changed=sum(a[i].control != b[j].control for i, j in operands),
        retargeted=retargeted,
        misdirected=misdirected,
        method="lcs" if addresses is None else "map",
        sites=None if addresses is None else addresses.sites,
    )


def _relocated(
    isa: levels.CodeFields, a: Sequence[Instruction], b: Sequence[Instruction], masked: Pairs, places: Pairs
) -> tuple[Pairs, int, int]:
    """Pairs preserved at level ``relocated``, how many have other address bits, and how many lead elsewhere unchanged.

    ``places`` says where original instructions stand now, to judge targets by.
    """
    from_index = [i for i, _ in places]
    to_pc = [b[j].pc for _, j in places]
    index_of = {ins.pc: k for k, ins in enumerate(a)}
    kept: Pairs = []
    retargeted = misdirected = 0
    for i, j in masked:
        old, new = a[i], b[j]
        if old.word == new.word:
            kept.append((i, j))
            if old.target is not None and old.target in index_of:
                misdirected += not _same_target(old.target, new.target, index_of, from_index, to_pc)
        elif old.target is None:  # a jump through a register: the distance to its anchor must have been kept up
            if isa.retarget(old.word, old.pc, new.pc, None) == new.word:
                kept.append((i, j))
                retargeted += 1
        elif _same_target(old.target, new.target, index_of, from_index, to_pc):
            kept.append((i, j))
            retargeted += 1
    return kept, retargeted, misdirected


def _same_target(
    old: int, new: int | None, index_of: Mapping[int, int], from_index: Sequence[int], to_pc: Sequence[int]
) -> bool:
    if new is None or old not in index_of:  # e.g. a target in the cut padding: nothing to align
        return False
    k = bisect_left(from_index, index_of[old])
    if k == len(from_index) or from_index[k] != index_of[old]:
        return False
    before = to_pc[k - 1] if k else -1
    return before < new <= to_pc[k]
