"""Scheduling fields: what a word holds, and writing it back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xtrace.errors import BadInput
from xtrace.isa.model import Control
from xtrace.isa.nvidia import control

STALLS = st.sampled_from([*range(16), *range(17, 28)])  # codes that exist
SCOREBOARD = st.sampled_from([0, 1, 2, 3, 4, 5, 7])


@given(STALLS, SCOREBOARD, SCOREBOARD, st.integers(0, 63), st.integers(0, 7), st.integers(0, (1 << 105) - 1))
def test_encoding_what_was_decoded_gives_the_same_bits(
    stall: int, write: int, read: int, wait: int, reuse: int, rest: int
) -> None:
    field = stall | write << 5 | read << 8 | wait << 11 | reuse << 17
    word = field << 105 | rest | 5 << 125
    assert control.encode(control.decode(word)) == field << 105
    assert control.replace(word, control.decode(word)) == word


def test_fields_stand_where_the_hardware_has_them() -> None:
    # IMAD R8, R3, UR4, R8 of a shipped kernel: stall 5, wait for scoreboard 0, no claims.
    got = control.decode(0x001FCA000F8E0208_0000000403087C24)
    assert got == Control(stall=5, yields=True, write_sb=None, read_sb=None, wait_mask=1, reuse=0)
    # LDG with write scoreboard 2, waiting for 0 and 1.
    assert control.decode(2 << 110 | 7 << 113 | 3 << 116).write_sb == 2
    assert control.decode(7 << 110 | 4 << 113).read_sb == 4


def test_every_golden_word_keeps_its_control_bits(decoded: dict) -> None:
    for kernel in decoded.values():
        for ins in kernel:
            assert control.replace(ins.word, ins.control) == ins.word


@pytest.mark.parametrize(
    "wrong",
    [
        Control(stall=16, yields=True, write_sb=None, read_sb=None, wait_mask=0),
        Control(stall=12, yields=False, write_sb=None, read_sb=None, wait_mask=0),
        Control(stall=0, yields=False, write_sb=None, read_sb=None, wait_mask=0),
        Control(stall=1, yields=True, write_sb=6, read_sb=None, wait_mask=0),
        Control(stall=1, yields=True, write_sb=None, read_sb=-1, wait_mask=0),
        Control(stall=1, yields=True, write_sb=None, read_sb=None, wait_mask=64),
        Control(stall=1, yields=True, write_sb=None, read_sb=None, wait_mask=0, reuse=8),
    ],
)
def test_what_the_hardware_rejects_is_not_encoded(wrong: Control) -> None:
    with pytest.raises(BadInput, match="XT2101"):
        control.encode(wrong)
