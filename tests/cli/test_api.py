"""The Python API mirrors the command line's verbs."""

from __future__ import annotations

from pathlib import Path

import xtrace

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def test_load_plan_splice_verify_diff() -> None:
    image = xtrace.load(GOLDEN / "triton_gemm.cubin")
    plan = xtrace.plan(image, probes="pp")
    result = xtrace.splice(image, probes="pp")
    assert plan.placed == sum(len(k["sites"]) for k in result.map["kernels"])
    assert xtrace.verify(image, result).ok
    assert xtrace.diff(image, result)[0].relocated == 1.0


def test_rooms_stay_importable_beside_the_verbs() -> None:
    from xtrace.splice import Options
    from xtrace.verify import PROMISES

    assert Options().records > 0
    assert PROMISES
