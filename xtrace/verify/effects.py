"""Promise ``effects``: probe code does nothing but compute and store into the warp's own slot of the trace buffer.

Three parts: an allow-list of instructions; the form of every store (through a uniform address pair that only probes
set); and a dry run of the islands on made-up launches, which checks where each store would go.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from xtrace.isa.model import Flow, Instruction
from xtrace.verify.certificate import Promise
from xtrace.verify.emulate import MNEMONICS, Action, NotUnderstood, Store, Warp, compile_word
from xtrace.verify.forms import misaligned
from xtrace.verify.pair import Pair

__all__ = ["check"]

_EFFECTS = Promise.EFFECTS
_FORBIDDEN = {
    "barrier", "barrier_arrive", "mbarrier_wait", "mbarrier_arrive", "copy_async", "copy_commit", "copy_wait",
    "global_load", "shared_load", "shared_store", "local_load", "local_store", "atomic", "setmaxreg", "converge",
    "nanosleep", "matrix", "matrix_async", "matrix_commit", "matrix_fence", "matrix_wait",
}  # fmt: skip
_VALUES = ("buffer_lo", "buffer_hi", "slot_count")
_HEADER_VALUES = ("header_lo", "header_hi")  # only where some island writes headers
_EMITTED = 28  # offset in the header of the bytes that the warp says it emitted
_SLACK = 512  # a group of records may run this far past the ring
_MOST_ROUNDS = 1 << 14  # rings of more records than this are not run until they wrap
_FREE_BITS = sum(((1 << n) - 1) << b for b, n in ((125, 3), (102, 2), (104, 1)))  # reserved, performance monitor select


def check(pair: Pair) -> None:
    """All effect checks of one kernel."""
    islands = pair.align.islands()
    if not islands:
        return
    for _, island in islands:
        for j in island:
            _allowed(pair, pair.output.code[j])
    if pair.claim is None:
        pair.skip(_EFFECTS, "where stores go and what is patched at load is only known with a trace map")
        return
    patches = _patches(pair)
    if patches is not None and not pair.findings.failed(_EFFECTS, pair.name):
        _dry_run(pair, patches)


def _allowed(pair: Pair, ins: Instruction) -> None:
    if ins.opaque:
        pair.fail(_EFFECTS, "probe instruction that the instruction set model does not know", ins)
    elif ins.flow is not Flow.FALL:
        pair.fail(_EFFECTS, "probe changes the control flow", ins)
    elif hit := sorted(ins.tags & _FORBIDDEN):
        pair.fail(_EFFECTS, f"probe has a forbidden effect ({', '.join(hit)})", ins)
    elif ins.base not in MNEMONICS:
        pair.fail(_EFFECTS, f"{ins.base} is not among what a probe may consist of", ins)
    elif ins.writes & ~_writable(pair):
        pair.fail(_EFFECTS, "probe writes a convergence barrier", ins)
    elif register := misaligned(ins):
        pair.fail(_EFFECTS, f"{register} does not start an aligned group of registers: an illegal instruction", ins)
    elif ins.word & _FREE_BITS:
        pair.fail(_EFFECTS, "probe word has reserved bits set", ins)


def _writable(pair: Pair) -> int:
    classes = pair.isa.layout.classes
    return sum(classes[name].mask for name in ("R", "P", "UR", "UP") if name in classes)


def _patches(pair: Pair) -> dict[int, str] | None:
    """Index of the traced instruction -> name of the value patched into its immediate."""
    claim, found = pair.claim or {}, {}
    origin = pair.align.origin()
    start, end = pair.after.offset, pair.after.offset + len(pair.after.text)
    good = True
    for patch in claim.get("patches") or ():
        offset, value = patch["offset"], patch.get("value")
        index, inside = divmod(offset - start, pair.word_bytes)
        if value not in _VALUES + _HEADER_VALUES:
            why = f"map patches an unknown value {value!r}"
        elif not start <= offset < end or inside != 4:
            why = f"map patches file offset {offset:#x}, which is no immediate of this kernel"
        elif origin[index] >= 0 or index in pair.align.padding:
            why = f"map patches an instruction of the kernel at file offset {offset:#x}"
        elif pair.output.code[index].word >> 32 & 0xFFFFFFFF:
            why = f"patched immediate at {offset:#x} is not zero before loading"
        elif index in found:
            why = f"map patches file offset {offset:#x} twice"
        else:
            found[index] = value
            continue
        good = False
        pair.fail(_EFFECTS, why, pair.output.code[index] if 0 <= index < len(pair.output.code) else None)
    needed = _VALUES + _HEADER_VALUES * any(v in found.values() for v in _HEADER_VALUES)
    missing = [v for v in needed if v not in found.values()]
    if missing:
        good = False
        pair.fail(_EFFECTS, f"map patches no {' and no '.join(missing)}")
    return found if good else None


def _dry_run(pair: Pair, patches: dict[int, str]) -> None:
    layout = _Layout.of((pair.claim or {}).get("slot") or {})
    if isinstance(layout, str):
        pair.fail(_EFFECTS, layout)
        return
    islands = pair.align.islands()
    if islands[0][0] != 0:
        pair.fail(_EFFECTS, "no prologue at the kernel's entry")
        return
    plain: dict[int, Action] = {}
    for _, island in islands:
        for j in island:
            if j not in patches and (action := _compile(pair, j)) is not None:
                plain[j] = action
    if pair.findings.failed(_EFFECTS, pair.name):
        return
    per_island = max(sum(pair.output.code[j].base == "STG" for _, r in islands[1:] for j in r), 1)
    rounds_to_wrap = min((layout.ring + _SLACK) // (8 * per_island) + 2, _MOST_ROUNDS)
    # The first launch runs long enough for the ring to wrap; the others vary the grid. Buffers lie high and unpatched.
    for number, rounds in enumerate((rounds_to_wrap, 2, 2, 2, 1)):
        launch = _Launch(random.Random(number), layout, pair.before.required_threads, unpatched=number == 4)
        actions = dict(plain)
        for j, value in patches.items():
            action = _compile(pair, j, launch.patched[value])  # the same code with the values that loading fills in
            if action is None:
                return
            actions[j] = action
        if not _run(pair, launch, actions, rounds):
            return
        if number == 0:
            _site_numbers(pair, launch)


def _site_numbers(pair: Pair, launch: _Launch) -> None:
    """The numbers that records carry must be those by which the map names its sites."""
    ids = [site.get("id") for site in (pair.claim or {}).get("sites") or ()]
    if any(type(n) not in (int, type(None)) for n in ids):
        pair.fail(_EFFECTS, "map names a site by something that is no number")
        return
    named = {n for n in ids if n is not None}
    if stray := launch.numbers - named:
        pair.fail(_EFFECTS, f"records carry site number {min(stray)}, which the map does not have")
    if silent := sorted(str(n) for n in named - launch.numbers):
        pair.fail(_EFFECTS, f"map names site number {silent[0]}, which no record carries")


def _compile(pair: Pair, j: int, patch: int | None = None) -> Action | None:
    ins = pair.output.code[j]
    try:
        return compile_word(ins, patch)
    except NotUnderstood as error:
        pair.fail(_EFFECTS, f"effect is not understood: {error}", ins)
        return None


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where a warp may store: the first ``ring`` bytes of its slot and some slack, and its entry in the headers."""

    stride: int
    ring: int
    header_bytes: int

    @classmethod
    def of(cls, slot: dict[str, Any]) -> _Layout | str:
        values = [slot.get(key) for key in ("stride", "ring", "header_bytes")]
        if any(type(v) is not int or not 0 < v < 1 << 40 for v in values):
            return "map does not describe the slot"
        stride, ring, size = (int(v) for v in values if v is not None)
        if ring + _SLACK > stride:
            return f"slot layout of the map overlaps: ring {ring} and {_SLACK} bytes of slack in a stride of {stride}"
        return cls(stride, ring, size)


class _Launch:
    """A made-up launch and one warp of it: what its registers see, and the address ranges it may store to."""

    def __init__(
        self, rng: random.Random, layout: _Layout, block: tuple[int, int, int] | None, *, unpatched: bool
    ) -> None:
        threads = [rng.choice((1, 2, 3, 7, 32, 33, 100, 128)), rng.choice((1, 2, 3)), rng.choice((1, 1, 2))]
        if block:  # the image fixes the block size, so a probe may build on it
            threads = list(block)
        grid = [rng.randrange(1, 70000), rng.randrange(1, 8), rng.randrange(1, 4)]
        cta = [rng.randrange(n) for n in grid]
        tid = [rng.randrange(n) for n in threads]
        warps = -(-threads[0] * threads[1] * threads[2] // 32)
        warp = ((tid[2] * threads[1] + tid[1]) * threads[0] + tid[0]) // 32
        wanted = ((cta[2] * grid[1] + cta[1]) * grid[0] + cta[0]) * warps + warp
        count = 0 if unpatched else rng.choice((wanted + 1, wanted, max(wanted // 2, 1), 2 * wanted + 3))
        base, table = (0 if unpatched else rng.randrange(1, 1 << 20) << 32 | rng.randrange(1 << 28) for _ in range(2))
        base -= base % layout.stride
        table -= table % 4096
        index = min(wanted, count)
        self.slot = base + index * layout.stride
        header = table + index * layout.header_bytes  # the table does not cross a multiple of 4 GiB
        self.allowed = ((self.slot, self.slot + layout.ring + _SLACK), (header, header + layout.header_bytes))
        self.records = 0
        self.emitted: int | None = None
        self.numbers: set[int] = set()  # second word of every record stored in the ring
        self.patched = {
            "buffer_lo": base & 0xFFFFFFFF,
            "buffer_hi": base >> 32,
            "header_lo": table & 0xFFFFFFFF,
            "header_hi": table >> 32,
            "slot_count": count,
        }
        axes = "XYZ"
        special = {f"SR_CTAID.{axes[k]}": cta[k] for k in range(3)} | {f"SR_TID.{axes[k]}": tid[k] for k in range(3)}
        special |= {"SR_VIRTUALSMID": rng.randrange(132), "SR_VIRTID": rng.randrange(64), "SR_LANEID": 0}
        constants = {4 * k: threads[k] for k in range(3)} | {0xC + 4 * k: grid[k] for k in range(3)}
        self.warp = Warp(special, constants)

    def saw(self, store: Store) -> None:
        """Count records and note what the header says."""
        (slot, end), (header, _) = self.allowed
        for k, value in enumerate(store.data):
            at = store.address + 4 * k
            if slot <= at < end and (at - slot) % 8 == 4:
                self.numbers.add(value)
                self.records += 1
            elif at == header + _EMITTED:
                self.emitted = value


def _run(pair: Pair, launch: _Launch, actions: dict[int, Action], rounds: int) -> bool:
    """Prologue once, all islands that the warp survives in turn, ``rounds`` times, then each of its possible ends.

    False after the first bad store.
    """
    (_, prologue), *others = pair.align.islands()
    ending: list[range] = []
    lasting: list[range] = []
    for i, island in others:
        site = pair.original.code[i]
        (ending if site.flow is Flow.EXIT and not site.conditional else lasting).append(island)
    if not _steps(pair, launch, actions, prologue):
        return False
    for _ in range(rounds):
        if not all(_steps(pair, launch, actions, island) for island in lasting):
            return False
    registers = dict(launch.warp.registers)
    for island in ending:
        launch.warp.registers = dict(registers)
        if not _steps(pair, launch, actions, island):
            return False
        if launch.emitted not in (None, 8 * launch.records):
            why = f"header says {launch.emitted} bytes were emitted, {launch.records} records of 8 bytes were stored"
            pair.fail(_EFFECTS, why, pair.output.code[island[-1]])
            return False
    return True


def _steps(pair: Pair, launch: _Launch, actions: dict[int, Action], island: range) -> bool:
    warp = launch.warp
    for j in island:
        try:
            actions[j](warp)
        except NotUnderstood as error:
            pair.fail(_EFFECTS, f"effect is not understood: {error}", pair.output.code[j])
            return False
        if warp.stores:
            store = warp.stores.pop()
            if not any(low <= store.address and store.address + store.size <= high for low, high in launch.allowed):
                at = store.address - launch.slot
                why = f"stores {store.size} bytes at slot offset {at:#x}, outside the warp's ring and header"
                pair.fail(_EFFECTS, why, pair.output.code[j])
                return False
            launch.saw(store)
    return True
