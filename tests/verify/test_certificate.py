"""The certificate as users and other programs see it."""

from __future__ import annotations

import ast
import copy
import json
from pathlib import Path

import pytest

import xtrace.verify
from tests.verify import handmade as h
from xtrace.errors import BadInput, XtraceError
from xtrace.verify import PROMISES, verify


def test_untouched_image_keeps_all_promises() -> None:
    data = h.SPIN.read_bytes()
    verdict = verify(data, data)
    assert verdict.ok
    assert verdict.totals["probe_words"] == 0


def test_certificate_document() -> None:
    traced = h.spin()
    verdict = verify(traced.original, traced.data, traced.map)
    document = json.loads(verdict.to_json())
    assert document["schema"] == "xtrace/certificate/1"
    assert document["ok"] is True
    assert list(document["promises"]) == [str(p) for p in PROMISES]
    assert document["input"]["sha256"] == traced.map["input"]["sha256"]
    assert document["output"]["sha256"] == traced.map["output"]["sha256"]
    assert len(document["map_sha256"]) == len(document["isa_sha256"]) == 64
    kernel = document["kernels"][0]
    assert kernel["name"] == "spin"
    assert kernel["original_instructions"] == kernel["identical_words"] + kernel["retargeted_words"]
    assert verdict.to_json() == verify(traced.original, traced.data, traced.map).to_json()


def test_failure_names_place_instruction_and_reason() -> None:
    traced = h.spin(h.record_words(data=8))
    verdict = verify(traced.original, traced.data, traced.map)
    witness = next(w for w in json.loads(verdict.to_json())["failures"] if w["promise"] == "liveness")
    assert witness["kernel"] == "spin"
    assert witness["pc"] == h.SITE + 16 * (len(h.PROLOGUE) + 1)
    assert witness["instruction"].startswith("CS2R.32 R8")
    assert "live" in witness["why"]


def test_not_checked_is_not_a_pass() -> None:
    """Without a map the alignment is found from the code; where stores go stays unknown, and ok is false."""
    traced = h.spin()
    verdict = verify(traced.original, traced.data)
    assert verdict.promises["effects"] == "NOT-CHECKED"
    assert {p for p, s in verdict.promises.items() if s == "PASS"} == {str(p) for p in PROMISES} - {"effects"}
    assert not verdict.ok
    assert verdict.totals["probe_words"] == len(h.PROLOGUE) + len(h.record_words()) + len(h.exit_words())


@pytest.mark.parametrize("broken", [{}, {"schema": "other"}, {"schema": "xtrace/map/2"}])
def test_document_that_is_no_map_is_refused(broken: dict[str, object]) -> None:
    traced = h.spin()
    with pytest.raises(BadInput, match="XT4001"):
        verify(traced.original, traced.data, broken)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("kernels",), {}),
        (("kernels", 0), 3),
        (("kernels", 0, "name"), None),
        (("kernels", 0, "islands", 0), []),
        (("kernels", 0, "islands", 0, "pc"), "0"),
        (("kernels", 0, "islands", 0, "words"), -1),
        (("kernels", 0, "islands", 0, "words"), 1 << 60),
        (("kernels", 0, "patches", 0, "offset"), None),
        (("kernels", 0, "probe_registers"), [1]),
        (("kernels", 0, "slot"), []),
        (("kernels", 0, "packets"), {}),
        (("kernels", 0, "packets", 0), 1),
        (("kernels", 0, "packets", 0, "tag"), 0),
        (("kernels", 0, "packets", 0, "tag"), 1 << 16),
        (("kernels", 0, "packets", 0, "sites"), []),
        (("kernels", 0, "packets", 0, "sites"), list(range(1, 17))),
        (("kernels", 0, "packets", 0, "sites"), ["1"]),
        (("input",), None),
    ],
)
def test_malformed_map_is_refused_or_found(path: tuple[object, ...], value: object) -> None:
    """Whatever a map holds, the answer is a typed error or a broken promise, never another exception."""
    traced = h.spin()
    document: dict = copy.deepcopy(traced.map)
    place: object = document
    for key in path[:-1]:
        place = place[key]  # type: ignore[index]
    place[path[-1]] = value  # type: ignore[index]
    try:
        outcome = verify(traced.original, traced.data, document).ok
    except XtraceError as error:
        outcome = not error.code.startswith("XT4")
    assert outcome is False


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"stride": 1},
        {"stride": "x", "ring": None},
        {"stride": 1024, "ring": 1024, "header_bytes": 32},
        {"stride": 1024, "ring": 768, "record": 4, "header_bytes": 32},
        {"stride": 1024, "ring": 16, "record": 4, "header_bytes": 32},
        {"stride": 1024, "ring": 1000, "record": 4, "header_bytes": 32},
    ],
)
def test_nonsense_slot_is_found(values: dict[str, object]) -> None:
    traced = h.spin().with_kernel(slot=values)
    assert verify(traced.original, traced.data, traced.map).promises["effects"] == "FAIL"


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"not an image" * 20])
def test_file_that_is_no_image_is_refused(data: bytes) -> None:
    good = h.SPIN.read_bytes()
    for original, traced in ((data, good), (good, data)):
        with pytest.raises(XtraceError, match="XT1"):
            verify(original, traced)


def test_other_kernel_is_not_the_original() -> None:
    verdict = verify(h.SPIN.read_bytes(), (h.GOLDEN / "early_exit.cubin").read_bytes())
    assert verdict.promises["instructions"] == "FAIL"
    assert not verdict.ok


def test_verifier_shares_nothing_with_the_splicer() -> None:
    """Independence is a property of the imports: nothing of splice, probe or analysis."""
    forbidden = (
        "xtrace.splice",
        "xtrace.probe",
        "xtrace.analysis",
        "xtrace.isa.nvidia.emit",
        "xtrace.isa.nvidia.encode",
        "xtrace.isa.nvidia.exits",
        "xtrace.isa.nvidia.prologue",
    )
    for source in Path(xtrace.verify.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, source
                names = [f"{node.module}.{a.name}" for a in node.names]
            assert not [n for n in names if n.startswith(forbidden)], source
