"""Packets: what is captured on every way through a kernel must be what a reader finds in the warp's slot."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.verify import handmade as h
from tests.verify.test_rules import certificate, failed
from xtrace.verify.packets import Packet, packets_of
from xtrace.verify.ring import Ring, Word

Islands = dict[int, list[int]]


def test_packet_across_blocks_keeps_all_promises() -> None:
    """Elected, captured and stored in different blocks; the packet's first word is of a register that nobody set."""
    verdict = certificate(h.chain())
    assert verdict.ok, [str(w) for w in verdict.failures]


def _clobbered(x: Islands) -> None:
    """The kernel writes R11 between the sites."""
    x[h.HEAD][1] = h.clock(11)
    x[h.COMMIT][1] = h.store(60, 0, 10, h.control(2, read=3), 1)


def _early_store(x: Islands) -> None:
    x[h.REJOINED] = [h.mov(1, 2, h.control(8)), x[h.COMMIT].pop(2), h.nop(h.control(1, wait=8)), *x[h.REJOINED]]


def _lost_predicate(x: Islands) -> None:
    """The kernel compares into P0 between election and store."""
    x[h.HEAD][0] = h.elect(0)
    x[h.COMMIT][1:3] = [h.store(60, 0, 12, h.control(2, read=3), 0), h.store(60, 8, 0, h.control(2, read=3), 0)]


def _late_cursor(x: Islands) -> None:
    words, cursor = x[h.COMMIT], x[h.HEAD][2:]
    del x[h.HEAD][2:]
    x[h.COMMIT] = [*words[:2], h.nop(h.control(1, wait=8)), *cursor, *words[2:]]


def _put(pc: int, at: int, word: int) -> Callable[[Islands], None]:
    return lambda x: x[pc].__setitem__(at, word)


FAULTS: dict[str, tuple[Callable[[Islands], None], str, str]] = {
    "capture overwritten by the kernel": (_clobbered, "liveness", "R11 that no probe has set"),
    "capture overwritten, seen on the way": (_clobbered, "effects", "is not the clock that was read at its site"),
    "store before its capture": (_early_store, "effects", "is not the clock that was read at its site"),
    "other tag": (_put(h.COMMIT, 0, h.mov(1, 3, h.control(8))), "effects", "no packet of the map ends"),
    "event not counted": (_put(h.HEAD, 4, h.uadd(57, 0x100, h.control(11))), "effects", "header counts"),
    "offset too far": (_put(h.HEAD, 3, h.uadd(58, 32)), "effects", "bytes were emitted"),
    "offset not moved": (_put(h.HEAD, 3, h.uadd(58, 0)), "effects", "bytes were emitted"),
    "other quad": (_put(h.COMMIT, 2, h.store(60, 24, 0, h.control(2, read=3), 1)), "effects", "no packet of the map"),
    "other half": (_put(h.COMMIT, 1, h.store(60, 8, 12, h.control(2, read=3), 1)), "effects", "not the clock"),
    "election overwritten by the kernel": (_lost_predicate, "effects", "P0 is read before a probe sets it"),
    "election overwritten, on some path": (_lost_predicate, "liveness", "P0 that no probe has set"),
    "cursor behind the first store": (_late_cursor, "effects", "is not the clock"),
    "one clock for both": (_put(h.REJOINED, 0, h.nop()), "effects", "is not the clock"),
    "kernel overwrites what is still being stored": (
        lambda x: x[h.COMMIT].__setitem__(slice(1, 4), [h.nop(), *x[h.COMMIT][1:3]]), "hazards", "R0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_fault_in_a_packet_is_found(name: str) -> None:
    change, promise, why = FAULTS[name]
    islands = h.chain_islands()
    change(islands)
    assert why in failed(h.chain(islands)).get(promise, "none")


def test_sites_of_a_packet_in_another_order_are_found() -> None:
    traced = h.chain().with_kernel(packets=[{"tag": 2, "sites": [2, 1]}])
    assert "is not the clock that was read at its site" in failed(traced)["effects"]


def test_packet_that_some_way_leaves_out_is_found() -> None:
    """A second capture where not every lane group passes: no way through the kernel may count what it did not do."""
    islands = h.chain_islands()
    islands[h.SITE] = islands.pop(h.REJOINED)
    traced = h.chain(islands, sites=[{"id": 1, "pc": h.HEAD}, {"id": 2, "pc": h.SITE}])
    assert "header says 16 bytes" in failed(traced)["effects"]


def _optional() -> tuple[Islands, dict[str, object]]:
    """A third event between the two, on a way that only some lane groups take."""
    islands = h.chain_islands()
    islands[h.HEAD][1:2] = [h.clock(12), h.mov(13, 0)]
    islands[h.SITE] = [h.clock(13), h.uadd(57, 0x100, h.control(12))]
    sites = [{"id": n, "pc": pc} for n, pc in enumerate((h.HEAD, h.SITE, h.REJOINED), 1)]
    return islands, {"sites": sites, "packets": [{"tag": 2, "sites": [1, 2, 3]}]}


def test_event_that_only_some_lanes_leave_out_is_found() -> None:
    """Each way of one lane group is recorded right, but the lane that stores may be one of another group."""
    islands, options = _optional()
    found = failed(h.chain(islands, **options))
    assert set(found) == {"hazards"}
    assert "leaves R13 to a later island where another lane group may pass one before" in found["hazards"]


@pytest.mark.parametrize(
    ("pc", "at", "word", "why"),
    [
        (h.HEAD, 2, h.nop(), "is not the clock that was read at its site"),  # the last turn's clock is stored again
        (h.HEAD, 2, h.mov(13, 1), "is not the clock that was read at its site"),
        (h.SITE, 0, h.nop(), "is in the slot"),
        (h.SITE, 1, h.nop(h.control(12)), "header counts"),
    ],
)
def test_fault_in_an_optional_event_is_found(pc: int, at: int, word: int, why: str) -> None:
    islands, options = _optional()
    islands[pc][at] = word
    assert why in failed(h.chain(islands, **options))["effects"]


def _no_slack(islands: Islands, size: int, **options: object) -> h.Traced:
    """Slots of exactly ``size`` bytes, all of them ring."""
    prologue = list(h.PROLOGUE)
    prologue[-2] = prologue[-2] & ~(0xFFFFFFFF << 32) | size << 32
    mask = 0x7FFF << 32
    changed = {pc: [w ^ mask ^ (size - 1) << 32 if w & 0xFFF == 0x892 else w for w in x] for pc, x in islands.items()}
    traced = h.chain({**changed, 0: prologue}, **options)
    return traced.with_kernel(slot={"stride": size, "ring": size, "record": 4, "header_bytes": 32})


def test_slot_without_slack_allows_no_store_in_a_loop() -> None:
    assert "store in a loop" in failed(_no_slack(h.chain_islands(), 32768))["effects"]


def test_slot_without_slack_is_enough_for_what_runs_once() -> None:
    """Packets in front of the loop, in a slot of exactly as many bytes as one warp can emit."""
    islands = {0x40: h.record_words(), 0x50: h.record_words()}
    islands[0x50][2] = h.mov(11, 2)
    sites = [{"id": 1, "pc": 0x40}, {"id": 2, "pc": 0x50}]
    packets = [{"tag": n, "sites": [n]} for n in (1, 2)]
    assert certificate(_no_slack(islands, 32, sites=sites, packets=packets, registers=None)).ok
    islands[0x60] = h.record_words()
    islands[0x60][2] = h.mov(11, 3)
    sites, packets = [*sites, {"id": 3, "pc": 0x60}], [*packets, {"tag": 3, "sites": [3]}]
    assert "a warp may emit 48 bytes" in failed(_no_slack(islands, 32, sites=sites, packets=packets))["effects"]


def test_exit_without_header_is_found() -> None:
    islands = {0: h.PROLOGUE, h.SITE: h.record_words()}
    sites = [{"id": 1, "pc": h.SITE}]
    traced = h.insert(h.SPIN, islands, probe_registers=h.STATE, patches=h.PATCHES, sites=sites, packets=h.ONE)
    assert "no exit of the kernel writes the header" in failed(traced)["effects"]


def _ring(size: int, stream: list[int], packets: dict[int, Packet]) -> Ring:
    """A slot as a faithful probe leaves it, one packet per tag of ``stream``."""
    ring, offset, clock, events = Ring(size, packets), 0, 1000, 0
    ring.runs[0] = [{1}]
    for tag in stream:
        packet = packets[tag]
        clocks = [clock + k for k in range(len(packet.sites))]
        clock += len(clocks)
        for site, tick in zip(packet.sites, clocks, strict=True):
            ring.runs.setdefault(site, []).append({tick})
        words = [None] * (packet.size // 4 - 1 - len(clocks)) + clocks + [tag]
        for k, value in enumerate(words):
            ring.slot[offset % size + 4 * k] = Word(value, tag, k)
        offset += packet.size
        events += len(clocks)
    ring.runs[99] = [{clock}]
    ring.header = dict(zip(range(0, 32, 4), [0, 1, events << 8 | 5, 16 * 99, 0, 0, clock, offset], strict=True))
    return ring


SIZES = st.lists(st.integers(1, 15), min_size=1, max_size=5)


@settings(max_examples=150, deadline=None)
@given(st.data(), SIZES, st.sampled_from([32, 64, 128, 1024]))
def test_any_stream_of_packets_is_read_back(data: st.DataObject, sizes: list[int], ring_size: int) -> None:
    """Of any sizes, however often the ring wraps; and one changed clock or tag among the last is found."""
    packets, site = {}, 1
    for tag, n in enumerate(sizes, 1):
        packets[tag] = Packet(tag, tuple(range(site, site + n)))
        site += n
    stream = data.draw(st.lists(st.sampled_from(sorted(packets)), min_size=1, max_size=40))
    ring = _ring(ring_size, stream, packets)
    assert ring.wrong(5, 99, 16 * 99) == ""
    last = packets[stream[-1]]
    if last.size > ring_size:
        return  # overwrites itself: nothing of it can be read
    place = (ring.header[28] - last.size) % ring_size + last.size
    part = data.draw(st.integers(1, len(last.sites) + 1))
    word = ring.slot[place - 4 * part]
    ring.slot[place - 4 * part] = Word(word.value + 1000, word.store, word.part)
    assert ring.wrong(5, 99, 16 * 99) != ""


def test_packets_name_their_sites_by_place() -> None:
    claim = {"sites": [{"id": 7, "pc": 32}, {"id": None, "pc": 0}], "packets": [{"tag": 3, "sites": [7]}]}
    assert packets_of(claim, 16) == {3: Packet(3, (2,))}
