"""Trace maps: the address rule, and refusal of maps that do not belong."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fidelity.toy import ISA, body, spliced
from xtrace.errors import BadInput, XtraceError
from xtrace.fidelity import compare_instructions
from xtrace.fidelity.addresses import AddressMap, address_maps, belongs, read_map

ORIGINAL = SimpleNamespace(name="a.cubin", sha256="aa")
TRACED = SimpleNamespace(name="b.cubin", sha256="bb")
MAP: dict[str, Any] = {
    "schema": "xtrace/map/2",
    "input": {"name": "a.cubin", "sha256": "aa"},
    "output": {"sha256": "bb"},
    "kernels": [
        {
            "name": "k",
            "islands": [{"pc": 0, "words": 3, "kind": "prologue", "site": None}, {"pc": 48, "words": 1}],
            "sites": [{"id": 1}],
        }
    ],
}


@pytest.mark.parametrize("schema", ["xtrace/map/2", "xtrace/map/1"])
def test_an_island_moves_its_own_instruction_and_all_behind_it(schema: str) -> None:
    addresses = address_maps({**MAP, "schema": schema}, ORIGINAL, TRACED)["k"]  # type: ignore[arg-type]
    assert [addresses.new_pc(pc) for pc in (0, 16, 32, 48, 64)] == [48, 64, 80, 112, 128]
    assert addresses.sites == 1


def test_a_map_of_other_files_is_refused() -> None:
    other = SimpleNamespace(name="c.cubin", sha256="cc")
    assert not belongs(MAP, ORIGINAL, other)  # type: ignore[arg-type]
    with pytest.raises(BadInput) as caught:
        address_maps(MAP, ORIGINAL, other)  # type: ignore[arg-type]
    assert caught.value.code == "XT4204"


def test_a_map_that_points_outside_the_code_is_refused() -> None:
    with pytest.raises(BadInput) as caught:
        compare_instructions(ISA, body(), spliced(3), addresses=AddressMap([(0, 1000)]))
    assert caught.value.code == "XT4205"


def test_a_wrong_map_shows_as_damage() -> None:
    result = compare_instructions(ISA, body(), spliced(3), addresses=AddressMap([(16, 2)], sites=1))
    assert result.strict < 1.0
    assert result.changed_blocks > 0


def test_files_that_are_no_maps_are_refused(tmp_path: Path) -> None:
    for text in ("", "[]", "{", "[" * 100_000):
        path = tmp_path / "m.json"
        path.write_text(text)
        with pytest.raises(BadInput):
            read_map(path)
    with pytest.raises(BadInput):
        read_map(tmp_path / "absent.json")


@pytest.mark.fuzz
def test_mutated_maps_only_raise_our_errors() -> None:
    rng = random.Random(3)
    junk = [None, -1, 2**70, 1.5, "x", [], {}, True, [[]], 1 << 41]
    for _ in range(2000):
        mutated = copy.deepcopy(MAP)
        node: Any = mutated
        while True:
            key = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
            if not isinstance(node[key], dict | list) or not node[key] or rng.random() < 0.3:
                node[key] = rng.choice(junk)
                break
            node = node[key]
        try:
            loaded = json.loads(json.dumps(mutated))
            for addresses in address_maps(loaded, ORIGINAL, TRACED).values():  # type: ignore[arg-type]
                compare_instructions(ISA, body(), spliced(3), addresses=addresses)
        except XtraceError:
            pass
