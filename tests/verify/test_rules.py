"""One fault per rule, in hand-made islands of a golden kernel: which promise breaks, and what the witness says."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from tests.verify import handmade as h
from xtrace.verify import Certificate, verify


def certificate(traced: h.Traced) -> Certificate:
    return verify(traced.original, traced.data, traced.map)


def failed(traced: h.Traced) -> dict[str, str]:
    """Broken promises with all their reasons."""
    found: dict[str, str] = {}
    for w in certificate(traced).failures:
        found[w.promise] = found.get(w.promise, "") + f"{w.why} [{w.instruction}]\n"
    return found


def changed(at: int, word: int) -> list[int]:
    words = h.record_words()
    words[at] = word
    return words


def test_sound_islands_keep_all_promises() -> None:
    verdict = certificate(h.spin())
    assert verdict.ok
    assert set(verdict.promises.values()) == {"PASS"}
    assert verdict.totals["original_instructions"] == 56
    assert verdict.totals["identical_words"] + verdict.totals["retargeted_words"] == 56
    assert verdict.totals["probe_words"] == len(h.PROLOGUE) + len(h.record_words()) + len(h.exit_words())
    assert verdict.totals["kernel_control_fields_changed"] == 0


HAZARDS: dict[str, tuple[list[int], str]] = {
    "clock to store too close": (
        [*h.record_words()[2:6], h.elect(1, h.control(9)), h.clock(10, h.control(4)), *h.record_words()[6:]],
        "reads after 4 of 8 cycles",
    ),
    "guard before ELECT arrives": (
        [h.clock(10, h.control(8)), h.mov(11, 1, h.control(12)), *h.record_words()[3:6], h.elect(1, h.control(5))]
        + h.record_words()[6:],
        "reads after 5 of 13 cycles",
    ),
    "cursor before the store": (changed(5, h.uadd(57, 256, h.control(4))), "of 12 cycles"),
    "wait one cycle after the claim": (
        changed(6, h.store(60, 8, 10, h.control(1, read=3), 1)),
        "waits 1 cycle after the claim",
    ),
    "store nobody tracks": (changed(6, h.store(60, 8, 10, h.control(2), 1)), "no scoreboard tells when"),
    "drain": (changed(1, h.clock(10, h.control(0))), "drains"),
    "reuse flag": (changed(2, h.mov(11, 1) | 1 << 122), "reuse"),
    "fixed latency with scoreboard": (changed(2, h.mov(11, 1, h.control(1, write=4))), "never releases"),
    "special register without scoreboard": (changed(2, h.s2r_tid(11, h.control(15))), "without a scoreboard"),
    "special register never waited for": (
        changed(2, h.s2r_tid(11, h.control(15, write=4))),
        "before the probe's result is waited for",
    ),
    "no wait at all": (h.record_words()[:-1], "before the probe's store has read it"),
}


@pytest.mark.parametrize("name", HAZARDS)
def test_hazard_is_found(name: str) -> None:
    words, why = HAZARDS[name]
    found = failed(h.spin(words))
    assert why in found.get("hazards", "none"), found


def test_scoreboards_of_the_kernel_are_left_alone() -> None:
    """Around the loop's back edge (0x2b0 to 0xf0) the kernel holds scoreboard 0, and not 3."""
    own = failed(h.spin(h.record_words(), site=0xF0))
    assert "hazards" not in own
    assert "probe claims scoreboard 0" in failed(h.spin(h.record_words(sb=0), site=0xF0))["hazards"]
    waiting = [*h.record_words(), h.nop(h.control(1, wait=1))]
    assert "probe waits for scoreboard 0" in failed(h.spin(waiting, site=0xF0))["hazards"]


def test_word_that_is_no_instruction_is_found() -> None:
    """Stall code 31 does not exist: the disassembler refuses the word."""
    verdict = certificate(h.spin(changed(1, h.clock(10, 31 << 105 | 63 << 110))))
    assert verdict.promises["instructions"] == "FAIL"
    assert verdict.promises["liveness"] == "NOT-CHECKED"
    assert "does not decode" in str(verdict.first("instructions"))


def test_predicates_need_thirteen_cycles_and_get_them() -> None:
    assert "hazards" not in failed(h.spin(h.record_words(elect_stall=1)))


LIVENESS: dict[str, tuple[list[int], str]] = {
    "live general register": (changed(2, h.mov(9, 1)), "writes R9, live"),
    "live pair member": (h.record_words(data=8), "R8"),
    "reserved register": (changed(2, h.mov(12, 1)), "14 registers minus 2"),
    "uniform register of the kernel": (changed(2, h.umov(4, 0)), "UR4"),
}


@pytest.mark.parametrize("name", LIVENESS)
def test_live_register_is_found(name: str) -> None:
    words, why = LIVENESS[name]
    found = failed(h.spin(words))
    assert why in found.get("liveness", "none"), found


def test_live_predicate_is_found() -> None:
    # between ISETP (0xf0) and the branch that it steers (0x100)
    found = failed(h.spin([h.elect(0, h.control(13))], site=0x100))
    assert "writes P0, live" in found["liveness"]
    assert "may read P0 as written by a probe" in found["liveness"]


def test_dead_predicate_is_allowed() -> None:
    assert certificate(h.spin(h.record_words(predicate=0))).ok


def test_result_in_flight_is_found() -> None:
    """R0 is dead behind 0x190's compare, but at 0x140 an atomic still owes its result to R0."""
    found = failed(h.spin([h.mov(0, 1)], site=0x140))
    assert "while a kernel result guarded by scoreboard 2 is due" in found["liveness"]


def test_store_data_in_flight_is_found() -> None:
    """R11 is dead behind the store at 0x1d0, which may not have read it yet."""
    found = failed(h.spin([h.mov(11, 1)], site=0x1E0))
    assert "source of a kernel operation on scoreboard 0" in found["liveness"]


def test_state_that_no_probe_set_is_found() -> None:
    """Without the prologue the record's cursor comes from nowhere."""
    traced = h.insert(h.SPIN, {h.SITE: h.record_words()}, probe_registers=h.STATE)
    found = failed(traced)
    assert "no probe has set" in found["liveness"]


@pytest.mark.parametrize(
    ("name", "word", "why"),
    [
        ("barrier", h.BAR_SYNC, "forbidden effect (barrier)"),
        ("exit", h.EXIT, "changes the control flow"),
        ("shared store", h.word(0x000000FFFF007388, 0x800, h.control(2)), "forbidden effect"),
        ("reserved bit", h.mov(11, 1) | 1 << 103, "reserved bits"),
    ],
)
def test_effect_is_found(name: str, word: int, why: str) -> None:
    found = failed(h.spin(changed(2, word)))
    assert why in found["effects"], name


def test_parameter_reads_are_not_allowed() -> None:
    """Launch dimensions in constant bank 0 may be read, parameters may not."""
    words = changed(2, h.word(0x7AB9 | 20 << 16 | 0x210 << 38, 0x800, h.control(2)))
    assert "no launch dimension" in failed(h.spin(words))["effects"]


def test_store_outside_the_slot_is_found() -> None:
    assert "outside the warp's ring and header" in failed(h.spin(h.record_words(offset=65536)))["effects"]


def test_store_through_a_kernel_pointer_is_found() -> None:
    found = failed(h.spin(changed(6, h.store(4, 8, 10, h.control(2, read=3), 1))))
    assert "effects" in found or "liveness" in found


def test_cursor_that_ignores_the_slot_is_found() -> None:
    """Every warp would write to slot 0: right for one warp only."""
    prologue = list(h.PROLOGUE)
    prologue[-2] = h.nop(h.control(15))  # no UIMAD.WIDE
    islands = {0: prologue, h.SITE: h.record_words(), h.END: h.exit_words()}
    traced = h.insert(h.SPIN, islands, probe_registers=h.STATE, patches=h.PATCHES)
    assert "outside the warp's ring" in failed(traced)["effects"]


def test_ring_that_is_longer_than_the_map_says_is_found() -> None:
    """The cursor wraps at 32 KiB, the map says 16 KiB: found only by running long enough."""
    traced = h.spin()
    slot = {**next(k for k in traced.map["kernels"])["slot"], "ring": 16384}
    assert "outside the warp's ring" in failed(traced.with_kernel(slot=slot))["effects"]


@pytest.mark.parametrize(
    ("word", "register"),
    [
        (h.store(60, 8, 11, h.control(2, read=3), 1), "R11"),
        (h.store(60, 0, 10, h.control(2, read=3), 1, words=4), "R10"),
        (h.store(61, 8, 10, h.control(2, read=3), 1), "UR61"),
        (h.word(0x7805 | 11 << 16, 0x15000, h.control(2)), "R11"),
    ],
)
def test_misaligned_register_is_found(word: int, register: str) -> None:
    assert f"{register} does not start an aligned group" in failed(h.spin(changed(6, word)))["effects"]


LIES: dict[str, tuple[Callable[[dict], dict], str]] = {
    "registers": (lambda k: {"registers": {"before": 14, "after": 16}}, "resources"),
    "instructions": (lambda k: {"instructions": {"before": 56, "after": 57}}, "instructions"),
    "site without island": (lambda k: {"sites": [{"pc": 0x40, "op": "S2R"}]}, "instructions"),
    "wrong site number": (lambda k: {"sites": [{"id": 2, "pc": h.SITE}]}, "effects"),
    "site that never records": (lambda k: {"sites": [*k["sites"], {"id": 2, "pc": h.SITE}]}, "effects"),
    "site with another opcode": (lambda k: {"sites": [{"pc": h.SITE, "op": "HGMMA"}]}, "instructions"),
    "hidden state": (lambda k: {"probe_registers": ["UR58"]}, "liveness"),
    "no patches": (lambda k: {"patches": []}, "effects"),
    "unknown tag": (lambda k: {"packets": [{"tag": 2, "sites": [1]}]}, "effects"),
    "no packets": (lambda k: {"packets": []}, "effects"),
    "packet of an unknown site": (lambda k: {"packets": [*k["packets"], {"tag": 2, "sites": [9]}]}, "effects"),
    "site in two packets": (lambda k: {"packets": [*k["packets"], {"tag": 2, "sites": [1]}]}, "effects"),
    "two packets of one tag": (lambda k: {"packets": 2 * k["packets"]}, "effects"),
    "records of eight bytes": (lambda k: {"slot": {**k["slot"], "record": 8}}, "effects"),
    "unknown patch": (lambda k: {"patches": [*k["patches"], {**k["patches"][0], "value": "x"}]}, "effects"),
    "no slot": (lambda k: {"slot": None}, "effects"),
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
def test_lying_map_is_found(name: str) -> None:
    traced = h.spin()
    change, promise = LIES[name]
    entry = copy.deepcopy(next(k for k in traced.map["kernels"]))
    assert promise in failed(traced.with_kernel(**change(entry)))


def test_map_of_another_file_is_found() -> None:
    traced = h.spin()
    other = copy.deepcopy(traced.map)
    other["output"]["sha256"] = "0" * 64
    assert "another output file" in failed(h.Traced(traced.original, traced.data, other))["instructions"]


def test_register_count_may_rise_inside_the_granule() -> None:
    """14 registers are allocated as 16: using R12 and R13 costs nothing, if the count says so."""
    words = h.record_words(data=12)
    assert certificate(h.spin(words, registers=16)).ok
    found = failed(h.spin(words))
    assert "probes use R13" in found["resources"]
    assert "14 registers minus 2 are certain" in found["liveness"]


def test_register_count_must_not_rise_without_need_or_beyond_the_granule() -> None:
    assert "more than the 14" in failed(h.spin(registers=16))["resources"]
    assert "occupancy" in failed(h.spin(h.record_words(data=40), registers=44))["resources"]


CALLS = [0xF0, 0x260, 0x2E0, 0x390, 0x430, 0x530, 0x780, 0x8B0, 0x9E0, 0xB10, 0xC80]
LITERALS = [0xD0, 0x240, 0x2A0, 0x360, 0x400, 0x510, 0x770, 0x8A0, 0x9D0, 0xB00, 0xC70]


def test_return_addresses_must_move_with_the_code() -> None:
    """Calls load their return address as a plain number: each must be the image of the old one, and only those."""
    image = h.GOLDEN / "call_rel.cubin"
    sound = h.insert(image, {0: [h.nop()]}, literals=LITERALS)
    verdict = certificate(sound)
    assert verdict.promises["instructions"] == verdict.promises["targets"] == "PASS"
    assert verdict.totals["retargeted_words"] >= len(LITERALS)
    stale = failed(h.insert(image, {0: [h.nop()]}, literals=LITERALS[1:]))
    assert "return address 0x100, expected 0x110" in stale["targets"]
    # 0x610 holds an ordinary constant: nobody may touch it
    touched = failed(h.insert(image, {0: [h.nop()]}, literals=[*LITERALS, 0x610]))
    assert "instructions" in touched


def test_callees_stay_reachable_for_the_liveness_of_callers() -> None:
    """What is live behind a call is live in the callee: R10 holds the return address all the way."""
    found = failed(h.insert(h.GOLDEN / "call_rel.cubin", {0x650: [h.mov(10, 0)]}, literals=LITERALS))
    assert "writes R10, live" in found["liveness"]


def test_jump_table_is_followed() -> None:
    """The targets of an indirect branch are listed in the image; a stale list is found."""
    image = h.GOLDEN / "brx_table.cubin"
    assert certificate(h.insert(image, {0x40: [h.nop()]})).promises["targets"] == "PASS"
