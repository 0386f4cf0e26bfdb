"""Probe code: every dependence inside it is satisfied, checked with the instruction set's own latency tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from xtrace.isa import for_arch
from xtrace.isa.model import Instruction, Latency
from xtrace.isa.nvidia import encode
from xtrace.isa.nvidia.decide import Decision
from xtrace.isa.nvidia.emit import (
    Carry,
    Cursor,
    SlotLayout,
    Step,
    Store,
    Transfer,
    UniformState,
    packet,
)
from xtrace.isa.nvidia.exits import ExitRegisters, Guard, exit_island
from xtrace.isa.nvidia.prologue import PrologueRegisters, head, prologue, rest
from xtrace.isa.nvidia.schedule import Island

STATE = UniformState(address=60, offset=59, header=56, timer=55, clock=54, smid=53)
SLOT = SlotLayout(stride=16384, ring=8192)
STRIPED = replace(STATE, base=40), SlotLayout(stride=8192, ring=8192, stripe=32)
UNIFORM = (4, 5, 6, 7, 8, 9, 10, 11)


def _packet(gaps: list[int]) -> list[Island]:
    steps = [
        Step(capture=21, elect=6, cursor=Cursor(16, 2), moves=((23, 7), (24, 0)), wait_first=1),
        Step(capture=22),
        Step(stores=(Store(20, 0, 4),), predicate=6, scoreboard=3, wait_last=True),
    ]
    return packet(STATE, SLOT, steps, gaps * 2)


def _carried(gaps: list[int]) -> list[Island]:
    """Two clocks put together in general registers, parked one island further on, and fetched."""
    steps = [
        Step(capture=21, cursor=Cursor(32, 2)),
        Step(capture=22),
        Step(transfers=(Transfer(Carry.JOIN, 21, 21, 22, settle=True),)),
        Step(elect=5, transfers=(_park(42, 21), Transfer(Carry.COPY, 29, 22))),
        Step(transfers=(_fetch(30, 42),), moves=((31, 9),), stores=(Store(28, 16, 4),), predicate=5, scoreboard=3),
    ]
    return packet(*STRIPED, steps, gaps * 4)


def _park(target: int, source: int) -> Transfer:
    return Transfer(Carry.PARK, target, source)


def _fetch(target: int, source: int) -> Transfer:
    return Transfer(Carry.FETCH, target, source)


def _parked(gaps: list[int]) -> list[Island]:
    steps = [
        Step(capture=21, transfers=(_park(40, 21),), cursor=Cursor(16, 1), uniform_moves=((41, 0),)),
        Step(transfers=(_fetch(30, 40), _fetch(29, 41)), moves=((31, 9),), stores=(Store(28, 0, 4),), scoreboard=3),
    ]
    return packet(STATE, SLOT, steps, gaps)


def _short(gaps: list[int]) -> list[Island]:
    """Parked clocks of which two go into a word, in a striped slot."""
    steps = [
        Step(capture=21, transfers=(_park(42, 21),), cursor=Cursor(32, 2)),
        Step(capture=21, transfers=(_park(43, 21),)),
        Step(elect=5, transfers=(Transfer(Carry.JOIN_PARKED, 42, 42, 43), _fetch(30, 42)), moves=((31, 9),),
             stores=(Store(28, 16, 4),), predicate=5, scoreboard=3),
    ]  # fmt: skip
    return packet(*STRIPED, steps, gaps * 2)


def _registers(block: tuple[int, int, int] | None) -> PrologueRegisters:
    return PrologueRegisters((30, 31), tuple(range(PrologueRegisters.needed(block))), UNIFORM, 0, 2, block)


def _prologue(block: tuple[int, int, int] | None, decision: Decision | None = None, *, striped: bool = False) -> Island:
    return prologue(*(STRIPED if striped else (STATE, SLOT)), _registers(block), decision=decision)


def _sunk(
    block: tuple[int, int, int] | None, *, carried: bool, slot: SlotLayout | None = SLOT, settled: int = 1
) -> list[Island]:
    second = rest(STATE, slot, _registers(block), ((40, 3), (41, 0)), carried=carried, settled=settled)
    return [head(STATE, (30, 31), carried=carried), second]


def _exit(quads: tuple[int, ...], pair: int | None, predicate: int | None = 3) -> Island:
    return exit_island(STATE, ExitRegisters(quads, pair, predicate, 4), 0x120, wait_first=1, wait_last=True)


def _passable(
    quads: tuple[int, ...], pair: int | None, predicate: int | None, guard: Guard, *, described: bool
) -> list[Island]:
    state = replace(STATE, descriptor=42) if described else STATE
    regs = ExitRegisters(quads, pair, predicate, 4, 20 if described else None, guard)
    return [exit_island(state, regs, 0x120, wait_first=1, wait_last=True)]


def _split() -> list[Island]:
    stores = (Store(21, 8, 1), Store(21, 12, 1, fill=7))
    step = Step(capture=21, cursor=Cursor(16, 1), stores=stores, scoreboard=2, wait_last=True)
    return packet(STATE, SLOT, [step], [])


ISLANDS = {
    "prologue, line block": [_prologue((256, 1, 1))],
    "prologue, known block": [_prologue((16, 8, 2))],
    "prologue, any block": [_prologue(None)],
    "sunk prologue, neighbours": _sunk((256, 1, 1), carried=True),
    "sunk prologue, times kept at once": _sunk((256, 1, 1), carried=False),
    "sunk prologue of any block, no packets": _sunk(None, carried=True, slot=None, settled=40),
    "prologue, every third CTA": [_prologue((256, 1, 1), Decision(3, 2, None, 0))],
    "prologue, some warps": [_prologue((16, 8, 2), Decision(1, 0, 0xF0, 0))],
    "prologue, some warps of some CTAs": [_prologue(None, Decision(12, 5, 0x2A, 0))],
    "packet, neighbours": _packet([1]),
    "packet, apart": _packet([40]),
    "parked, neighbours": _parked([1]),
    "parked, apart": _parked([40]),
    "carried, neighbours": _carried([1]),
    "carried, apart": _carried([40]),
    "short clocks in stripes, neighbours": _short([1]),
    "short clocks in stripes, apart": _short([40]),
    "prologue, stripes": [_prologue((256, 1, 1), striped=True)],
    "single register, all lanes": _split(),
    "exit, two quads": [_exit((8, 12), None)],
    "exit, one quad": [_exit((8,), None)],
    "exit, a pair, all lanes": [_exit((), 10, None)],
    "exit, two quads, those who leave": _passable((8, 12), None, 3, Guard(1, True, 5), described=False),
    "exit, one quad, those who leave, described": _passable((8,), None, 3, Guard(1, False, 0), described=True),
    "exit, a pair, all who leave, described": _passable((), 10, None, Guard(1, True, 9), described=True),
}


@pytest.fixture(scope="module")
def decoded() -> dict[str, list[tuple[Instruction, ...]]]:
    isa = for_arch("sm_90a")
    flat = [i for islands in ISLANDS.values() for i in islands]
    codes = isa.decode_many([b"".join(w.to_bytes(16, "little") for w in i.words) for i in flat])
    out, at = {}, 0
    for name, islands in ISLANDS.items():
        out[name] = codes[at : at + len(islands)]
        at += len(islands)
    return out


def _timeline(parts: list[tuple[Instruction, ...]], gap: int) -> list[tuple[int, Instruction]]:
    time, out = 0, []
    for part in parts:
        for ins in part:
            out.append((time, ins))
            time += max(ins.control.stall, 1)
        time += gap
    return out


@pytest.mark.parametrize("name", ISLANDS)
def test_fixed_latency_results_are_ready_when_read(
    name: str, decoded: dict[str, list[tuple[Instruction, ...]]]
) -> None:
    isa = for_arch("sm_90a")
    line = _timeline(decoded[name], 40 if "apart" in name else 1)
    pairs = 0
    for k, (at, consumer) in enumerate(line):
        for earlier, producer in line[:k]:
            need = isa.required_distance(producer, consumer)
            overwritten = any(earlier < t < at and i.writes & producer.writes & consumer.reads for t, i in line[:k])
            if need and not overwritten:
                pairs += 1
                assert at - earlier >= need, f"{producer.text} -> {consumer.text}: {at - earlier} < {need}"
    assert pairs >= 1


@pytest.mark.parametrize("name", ISLANDS)
def test_scoreboards_are_waited_for_before_their_registers_are_used(
    name: str, decoded: dict[str, list[tuple[Instruction, ...]]]
) -> None:
    pending: dict[int, tuple[int, int, int]] = {}  # scoreboard -> written, read, time of the claim
    for time, ins in _timeline(decoded[name], 40 if "apart" in name else 1):
        for k in [k for k in pending if ins.control.wait_mask >> k & 1]:
            assert time - pending.pop(k)[2] >= 2, "a wait one cycle after the claim does not see it"
        for written, read, _ in pending.values():
            assert not (ins.reads | ins.writes) & written, ins.text
            assert not ins.writes & read, ins.text
        c = ins.control
        assert c.stall >= 1, "stall 0 drains the pipeline"
        if ins.latency is Latency.VARIABLE and ins.writes:
            assert c.write_sb is not None, ins.text
        for k, bits in ((c.write_sb, (ins.writes, 0)), (c.read_sb, (0, ins.reads))):
            if k is not None:
                old = pending.get(k, (0, 0, 0))
                pending[k] = (old[0] | bits[0], old[1] | bits[1], time)


@pytest.mark.parametrize("name", ISLANDS)
def test_probe_code_only_computes_and_stores(name: str, decoded: dict[str, list[tuple[Instruction, ...]]]) -> None:
    allowed = {
        "CS2R",
        "S2R",
        "S2UR",
        "ULDC",
        "UMOV",
        "R2UR",
        "SHF",
        "USHF",
        "IMAD",
        "UIMAD",
        "UIADD3",
        "UISETP",
        "USEL",
    }
    allowed |= {"MOV", "ELECT", "ULOP3", "STG", "NOP", "PRMT", "UPRMT"}
    allowed |= {"ISETP", "BRA"} if "CTA" in name or "warps" in name else set()
    assert {ins.base for part in decoded[name] for ins in part} <= allowed


def test_only_the_prologue_and_records_move_the_record_address(
    decoded: dict[str, list[tuple[Instruction, ...]]],
) -> None:
    # A guarded exit lets other lanes go on and record: its island must leave the cursor alone.
    layout = for_arch("sm_90a").layout
    state = STATE.bits
    for name, parts in decoded.items():
        written = 0
        for part in parts:
            for ins in part:
                written |= ins.writes
        if name.startswith("exit"):
            assert not written & state, layout.names(written & state)


@pytest.mark.parametrize("name", [n for n in ISLANDS if n.startswith("sunk")])
def test_a_sunk_prologue_is_done_when_it_says(name: str, decoded: dict[str, list[tuple[Instruction, ...]]]) -> None:
    isa = for_arch("sm_90a")
    settled = 40 if "no packets" in name else 1
    reader = next(ins for part in decoded["exit, two quads"] for ins in part if ins.base == "MOV")
    line = [(time, ins) for time, ins in _timeline(decoded[name][1:], settled)]
    at = line[-1][0] + max(line[-1][1].control.stall, 1) + settled
    for time, ins in line:
        everything = replace(reader, reads=isa.layout.everything)
        assert at - time >= isa.required_distance(ins, everything), ins.text


def test_the_head_of_a_sunk_prologue_reads_the_times_and_nothing_else(
    decoded: dict[str, list[tuple[Instruction, ...]]],
) -> None:
    first, second = decoded["sunk prologue, neighbours"]
    assert [ins.base for ins in first] == ["CS2R", "CS2R"]
    assert not [ins for ins in second if "CLOCK" in ins.text or "TIMER" in ins.text]
    assert [ins.base for ins in decoded["sunk prologue, times kept at once"][0]] == ["CS2R", "CS2R", "R2UR", "R2UR"]


def test_a_kernel_without_packets_has_no_ring_to_set_up(decoded: dict[str, list[tuple[Instruction, ...]]]) -> None:
    written = 0
    for part in decoded["sunk prologue of any block, no packets"]:
        for ins in part:
            written |= ins.writes
    layout = for_arch("sm_90a").layout["UR"]
    assert not written & (layout.bit(STATE.address) | layout.bit(STATE.address + 1) | layout.bit(STATE.offset))
    assert written & layout.bit(STATE.header)
    assert written & layout.bit(STATE.smid)


def test_a_captured_clock_is_stored_in_the_next_island_without_stalling(
    decoded: dict[str, list[tuple[Instruction, ...]]],
) -> None:
    def cycles(part: tuple[Instruction, ...]) -> int:
        return sum(ins.control.stall for ins in part)

    near, far = decoded["packet, neighbours"], decoded["packet, apart"]
    assert [ins.base for ins in far[0] if ins.base == "STG"] == []
    assert cycles(far[2]) < cycles(near[2])
    assert cycles(far[0]) <= 7


def test_clocks_that_are_carried_on_in_later_islands_stall_for_nothing(
    decoded: dict[str, list[tuple[Instruction, ...]]],
) -> None:
    join, rest = decoded["carried, apart"][2:4]
    assert [(ins.base, ins.control.stall) for ins in join] == [("PRMT", 2)]  # its sources may be overwritten at once
    assert sorted(ins.base for ins in rest) == ["ELECT", "MOV", "R2UR"]
    assert sum(ins.control.stall for ins in rest) <= 4


def test_words_of_stripes_and_short_clocks_are_what_the_disassembler_reads() -> None:
    ops = {
        "PRMT R5, R5, 0x5410, R21": encode.permute(5, 5, encode.LOW_HALVES, 21),
        "UPRMT UR4, UR4, 0x5410, UR9": encode.upermute(4, 4, encode.LOW_HALVES, 9),
        "ULOP3.LUT UR60, UR62, 0x7fff, URZ, 0xc0, !UPT": encode.uand_imm(60, 62, 0x7FFF),
        "UIMAD.WIDE.U32 UR60, UR60, 0x12345, UR52": encode.uimad_wide_imm(60, 60, 0x12345, 52, "stripe_slots"),
    }
    code = b"".join((op.word | 0xFE2 << 105).to_bytes(16, "little") for op in ops.values())
    for text, op, ins in zip(ops, ops.values(), for_arch("sm_90a").decode(code), strict=True):
        assert (ins.text, ins.reads, ins.writes) == (text, op.reads, op.writes)


def test_words_of_exits_are_what_the_disassembler_reads() -> None:
    ops = {
        "ELECT P3, URZ, PT": encode.elect(3),
        "ELECT P3, URZ, P0": encode.elect(3, 0),
        "ELECT P3, URZ, !P1": encode.elect(3, 1, negated=True),
        "STG.E.128 desc[UR52][R50.64+0x10], R8": encode.store_described(50, 52, 16, 8, 4, 1),
        "STG.E.64 desc[UR52][R50.64], R8": encode.store_described(50, 52, 0, 8, 2, 1),
    }
    code = b"".join((op.word | 0xFE2 << 105).to_bytes(16, "little") for op in ops.values())
    for text, op, ins in zip(ops, ops.values(), for_arch("sm_90a").decode(code), strict=True):
        assert (ins.text, ins.reads, ins.writes) == (text, op.reads, op.writes)


def test_a_striped_packet_goes_to_its_ring_place_times_the_slots_behind_the_warps_first_packet(
    decoded: dict[str, list[tuple[Instruction, ...]]],
) -> None:
    """The number of slots is filled in when the image is loaded."""
    first = ISLANDS["short clocks in stripes, apart"][0]
    text = {k: ins.text for k, ins in enumerate(decoded["short clocks in stripes, apart"][0])}
    (patch,) = first.patches
    assert patch.value == "stripe_slots"
    assert text[patch.word_index] == "UIMAD.WIDE.U32 UR60, UR60, 0x0, UR40"
    before = next(k for k in text if text[k].startswith("ULOP3.LUT UR60, UR59, 0x1fff, URZ, 0xc0"))
    behind = next(k for k in text if text[k].startswith("UIADD3 UR59, UR59, 0x20"))
    assert before < patch.word_index
    assert before < behind
