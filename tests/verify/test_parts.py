"""Building blocks of the verifier against small examples and slow but obvious references."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.verify import handmade as h
from xtrace import isa
from xtrace.image import parse
from xtrace.isa.model import Flow
from xtrace.verify.align import Alignment, derive, from_islands, subsequence
from xtrace.verify.emulate import NotUnderstood, Warp, compile_word
from xtrace.verify.liveness import live_before
from xtrace.verify.pending import simulate
from xtrace.verify.program import backward_may, build, forward_may
from xtrace.verify.resources import blocks_per_sm, same_occupancy

MODEL = isa.for_arch("sm_90a")
SPIN = MODEL.decode(parse(h.SPIN.read_bytes(), "spin").kernels[0].text)
words = st.lists(st.integers(0, 5), max_size=30)


def lcs(a: list[int], b: list[int]) -> int:
    row = [0] * (len(b) + 1)
    for x in a:
        row = [0, *row[1:]]
        new = [0]
        for j, y in enumerate(b, 1):
            new.append(max(new[-1], row[j], row_before(row, j) + (x == y)))
        row = new
    return row[-1]


def row_before(row: list[int], j: int) -> int:
    return row[j - 1] if j else 0


@given(words, words)
def test_subsequence_is_exact(a: list[int], b: list[int]) -> None:
    """The earliest match finds an embedding exactly when the longest common subsequence is the whole original."""
    assert (subsequence(a, b) == len(a)) == (lcs(a, b) == len(a))
    assert (derive(a, b) is not None) == (lcs(a, b) == len(a))


@given(words, st.lists(st.tuples(st.integers(0, 30), words), max_size=4))
def test_derived_alignment_is_an_embedding(a: list[int], inserted: list[tuple[int, list[int]]]) -> None:
    b = list(a)
    for at, extra in inserted:
        b[min(at, len(b)) : min(at, len(b))] = extra
    align = derive(a, b)
    assert align is not None
    assert [b[j] for j in align.position] == a
    assert list(align.position) == sorted(set(align.position))


def test_islands_of_a_map_place_every_instruction() -> None:
    align = from_islands(4, 9, [(0, 2), (3, 1)])
    assert isinstance(align, Alignment)
    assert align.position == (2, 3, 4, 6)
    assert align.islands() == [(0, range(2)), (3, range(5, 6))]
    assert align.target_index(3) == 5
    assert align.instr_index(3) == 6
    assert align.padding == range(7, 9)
    assert isinstance(from_islands(4, 5, [(0, 2)]), str)
    assert isinstance(from_islands(4, 9, [(7, 1)]), str)


def test_flow_graph_of_a_kernel_with_loops() -> None:
    program = build(SPIN, MODEL.layout)
    at = {ins.pc: ins.index for ins in SPIN}
    assert program.succ[at[0x100]] == [at[0x110], at[0x1F0]]
    assert program.succ[at[0x1A0]] == [at[0x170], at[0x1B0]]
    assert program.succ[at[0x1B0]] == [at[0x1C0]]  # BSYNC goes on where its BSSY said
    assert program.succ[at[0x1E0]] == [at[0x260]]
    assert program.succ[at[0x2C0]] == []
    assert program.unknown == []
    assert not program.reachable()[at[0x2D0]]


def _paths(program, start: int, length: int):  # type: ignore[no-untyped-def]
    stack = [(start,)]
    while stack:
        path = stack.pop()
        yield path
        if len(path) < length:
            stack += [(*path, j) for j in program.succ[path[-1]]]


def test_liveness_agrees_with_walking_paths() -> None:
    """A register is live where some path reads it before it is overwritten."""
    program = build(SPIN, MODEL.layout)
    live = live_before(program)
    for i in range(0, 44, 3):
        found = 0
        for path in _paths(program, i, 14):
            written = 0
            for j in path:
                found |= SPIN[j].reads & ~written
                written |= SPIN[j].kills
        assert found & ~live[i] == 0
    r = MODEL.layout["R"]
    at = {ins.pc: ins.index for ins in SPIN}
    assert live[at[0x1F0]] & r.bit(9)
    assert not live[at[0x1F0]] & r.bit(11)
    assert live[at[0x200]] & r.bit(11)


def test_solver_directions() -> None:
    program = build(SPIN, MODEL.layout)
    keep, gen = [-1] * len(SPIN), [0] * len(SPIN)
    gen[0x130 // 16] = 1
    seen = forward_may(program, keep, gen)
    assert seen[0x1C0 // 16] == 1
    assert seen[0x110 // 16] == 1  # around the outer loop
    assert seen[0x90 // 16] == 0
    comes = backward_may(program, keep, gen)
    assert comes[0] == 1
    assert comes[0x2C0 // 16] == 0


def test_pending_operations_of_a_kernel() -> None:
    program = build(SPIN, MODEL.layout)
    pending = simulate(program)
    r = MODEL.layout["R"]
    at = {ins.pc: ins.index for ins in SPIN}
    assert pending.claimed(at[0x40], probe=False) == 0
    assert pending.writes(at[0xA0], 0, probe=False) == r.bit(9) | r.bit(0)
    assert pending.writes(at[0xB0], 0, probe=False) == 0
    assert pending.reads(at[0x1E0], 0, probe=False) & r.bit(11)
    assert pending.claimed(at[0xF0], probe=False) == 1 << 0 | 1 << 5  # from around the loop
    assert pending.claimed(at[0x2C0], probe=True) == 0


def _do(text_word: int, warp: Warp) -> Warp:
    ins = MODEL.decode(text_word.to_bytes(16, "little"))[0]
    compile_word(ins)(warp)
    return warp


def test_interpreter_computes_what_the_words_say() -> None:
    warp = Warp({"SR_TID.X": 77}, {0: 128})
    _do(h.mov(4, 0xFFFFFFFF), warp)
    _do(h.word(0x7811 | 5 << 16 | 4 << 24 | 3 << 32, 0x078E0000 | 4 << 11 | 0xFF, h.control()), warp)  # LEA
    assert warp.registers["R5"] == ((0xFFFFFFFF << 4) + 3) & 0xFFFFFFFF
    _do(h.umov(10, 0x1234), warp)
    _do(h.word(0x7892 | 11 << 16 | 10 << 24 | 0xFF << 32, 0x0F8EC03F, h.control()), warp)  # AND
    assert warp.registers["UR11"] == 0x34
    _do(h.s2r_tid(6, h.control(write=0)), warp)
    _do(h.word(0x7819 | 6 << 16 | 255 << 24 | 5 << 32, 0x11600 | 6, h.control()), warp)
    assert warp.registers["R6"] == 2
    with pytest.raises(NotUnderstood):
        _do(h.BAR_SYNC, warp)
    with pytest.raises(NotUnderstood):
        _do(h.mov(7, 0) & ~0xFFF | 0x202 | 9 << 32, warp)  # a register no probe has set


@pytest.mark.parametrize(
    ("registers", "warps", "shared", "blocks"),
    [
        (32, 4, 0, 16),  # limited by 64 warps
        (32, 1, 0, 32),  # limited by 32 blocks
        (168, 12, 0, 1),
        (255, 8, 0, 1),
        (64, 8, 0, 4),
        (65, 8, 0, 3),  # allocated as 72
        (32, 4, 100 * 1024, 2),  # 228 KiB of shared memory, 1 KiB per block reserved
        (168, 12, 200 * 1024, 1),
    ],
)
def test_occupancy(registers: int, warps: int, shared: int, blocks: int) -> None:
    assert blocks_per_sm(registers, warps, shared) == blocks


def test_occupancy_slack() -> None:
    assert same_occupancy(57, 64, range(1, 33), 0)
    assert not same_occupancy(64, 65, range(8, 9), 0)
    assert same_occupancy(64, 72, range(8, 9), 100 * 1024)  # shared memory is the limit anyway


def test_every_flow_is_known_to_the_graph() -> None:
    assert {ins.flow for ins in SPIN} <= set(Flow)
