import hashlib
import struct

import pytest

from tests.runtime.stand_ins import KERNEL, LAYOUT, images, trace_map
from xtrace.errors import BadInput
from xtrace.runtime.patching import BufferTarget, kernel_entry, patch_image

ADDRESS = 0x7F12_3456_7000 // LAYOUT.stride * LAYOUT.stride
TABLE = 0x7F13_0000_0000


def test_address_and_slot_count_are_written_and_nothing_else() -> None:
    _, traced = images()
    out = patch_image(traced, trace_map(traced), {KERNEL: BufferTarget(ADDRESS, 7, TABLE)})
    assert struct.unpack_from("<QQI", out, 10) == (ADDRESS, TABLE, 7)
    assert out[:10] == traced[:10]
    assert out[30:] == traced[30:]


def test_a_kernel_that_emits_no_packets_needs_no_address_of_a_ring() -> None:
    _, traced = images()
    document = trace_map(traced)
    entry = document["kernels"][0]
    entry["packets"], entry["patches"] = [], entry["patches"][2:]
    out = patch_image(traced, document, {KERNEL: BufferTarget(ADDRESS, 7, TABLE)})
    assert struct.unpack_from("<QQI", out, 10) == (0, TABLE, 7)


def test_slots_that_interleave_are_told_how_many_they_are() -> None:
    """The spill-over slot is one of them."""
    traced = images()[1] + bytes(8)
    document = trace_map(traced)
    entry = document["kernels"][0]
    place = {"offset": len(traced) - 4, "value": "stripe_slots"}
    entry["patches"].append(place)
    with pytest.raises(BadInput, match="unknown patch value"):
        patch_image(traced, document, {KERNEL: BufferTarget(ADDRESS, 7, TABLE)})
    entry["slot"] = {**entry["slot"], "stride": LAYOUT.ring, "stripe": 32}
    out = patch_image(traced, document, {KERNEL: BufferTarget(ADDRESS, 7, TABLE)})
    assert struct.unpack_from("<I", out, place["offset"]) == (8,)
    entry["patches"].remove(place)
    with pytest.raises(BadInput, match="no patch for stripe_slots"):
        patch_image(traced, document, {KERNEL: BufferTarget(ADDRESS, 7, TABLE)})


@pytest.mark.parametrize(("keep", "word"), [(False, 0), (True, 0x14F00000)])
def test_an_image_that_can_keep_its_headers_in_l2_is_told_whether_to(keep: bool, word: int) -> None:
    traced = images()[1] + bytes(8)
    document = trace_map(traced)
    target = {KERNEL: BufferTarget(ADDRESS, 7, TABLE, keep)}
    patch_image(traced, document, target)  # one that cannot is no error
    place = {"offset": len(traced) - 4, "value": "header_policy"}
    document["kernels"][0]["patches"].append(place)
    out = patch_image(traced, document, target)
    assert struct.unpack_from("<I", out, place["offset"]) == (word,)


def test_a_kernel_without_target_stays_unpatched() -> None:
    _, traced = images()
    assert patch_image(traced, trace_map(traced), {}) == traced


def test_the_demangled_name_is_accepted() -> None:
    _, traced = images()
    assert kernel_entry(trace_map(traced), "toy(int)")["name"] == "toy"


@pytest.mark.parametrize(
    ("target", "code"),
    [
        (BufferTarget(ADDRESS + 16, 7, TABLE), "XT5011"),
        (BufferTarget(0, 7, TABLE), "XT5011"),
        (BufferTarget(ADDRESS, 0, TABLE), "XT5011"),
        (BufferTarget(ADDRESS, 1 << 31, TABLE), "XT5011"),
        (BufferTarget((1 << 64) - LAYOUT.stride, 1, TABLE), "XT5011"),
        (BufferTarget(ADDRESS, 7, TABLE + 8), "XT5011"),
        (BufferTarget(ADDRESS, 7, TABLE - 32), "XT5011"),
        (BufferTarget(ADDRESS, 7, 0), "XT5011"),
    ],
)
def test_impossible_buffers_are_refused(target: BufferTarget, code: str) -> None:
    _, traced = images()
    with pytest.raises(BadInput) as info:
        patch_image(traced, trace_map(traced), {KERNEL: target})
    assert info.value.code == code


def _patched_twice(traced: bytes) -> tuple[bytes, dict]:
    once = patch_image(traced, trace_map(traced), {KERNEL: BufferTarget(ADDRESS, 7, TABLE)})
    document = trace_map(traced)
    document["output"]["sha256"] = hashlib.sha256(once).hexdigest()
    return once, document


def _offset(value: int):
    def change(traced: bytes) -> tuple[bytes, dict]:
        document = trace_map(traced)
        document["kernels"][0]["patches"][0]["offset"] = value
        return traced, document

    return change


def _not_traced(traced: bytes) -> tuple[bytes, dict]:
    document = trace_map(traced)
    document["kernels"][0]["slot"] = None
    return traced, document


def _value(value: str):
    def change(traced: bytes) -> tuple[bytes, dict]:
        document = trace_map(traced)
        document["kernels"][0]["patches"][0]["value"] = value
        return traced, document

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: (t + b"x", trace_map(t)), "sha256"),
        (_patched_twice, "patched twice"),
        (_offset(1 << 40), "outside"),
        (_offset(-4), "outside"),
        (_value("buffer_mid"), "unknown patch value"),
        (_value("buffer_hi"), "no patch for buffer_lo"),
        (lambda t: (t, {**trace_map(t), "schema": "x"}), "not a trace map"),
        (lambda t: (t, {**trace_map(t), "schema": "xtrace/map/1"}), "older version"),
        (lambda t: (t, {**trace_map(t), "kernels": []}), "no kernel"),
        (_not_traced, "was not traced"),
    ],
)
def test_an_image_and_a_map_that_do_not_belong_together_are_refused(change, words: str) -> None:
    image, document = change(images()[1])
    with pytest.raises(BadInput) as info:
        patch_image(image, document, {KERNEL: BufferTarget(ADDRESS, 7, TABLE)})
    assert info.value.code == "XT5010"
    assert words in str(info.value)
