"""The kernels compute what their names say: run on the CPU by Triton's interpreter, against independent references."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from workflow.kernels import cases

# Whole blocks, odd tails, several CTAs per row of blocks, experts with padding: see SHAPES in interpret.py.
# The interpreter truncates to bf16 where the hardware rounds, so bounds are about twice those of configs/suite.yaml.
BOUNDS = {
    "fa_fwd_hd128_causal_triton": {"OUT": 0.007, "LSE": 1e-6},
    "gemm_bf16_triton": {"C": 0.005},
    "rmsnorm_triton": {"R_OUT": 0.004, "Y": 0.006},
    "softmax_triton": {"Y": 0.004},
    "moe_gemm_triton": {"OUT": 0.005},
}


@pytest.mark.golden
def test_kernels_agree_with_their_references_on_the_cpu() -> None:
    pytest.importorskip("triton")
    script = Path(__file__).with_name("interpret.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    errors = json.loads(done.stdout)
    assert errors.keys() == BOUNDS.keys()
    for workload, bounds in BOUNDS.items():
        assert errors[workload].keys() == bounds.keys()
        for output, bound in bounds.items():
            assert errors[workload][output] <= bound, (workload, output)


def test_rounding_to_bf16_is_to_nearest_even() -> None:
    values = np.array([1.0, 1.0 + 2**-8, 1.0 + 3 * 2**-8, 1.0 + 2**-8 + 2**-20, -3.1415927], np.float32)
    assert cases.from_bf16(cases.bf16(values)).tolist() == [1.0, 1.0, 1.015625, 1.0078125, -3.140625]


def test_poisoned_output_has_infinite_error() -> None:
    poisoned = cases.lift_numpy(np.full(4, 0xFFFF, np.uint16))
    assert cases.relative_error(np, poisoned, np.ones(4)) == float("inf")


def test_inputs_depend_on_the_seed_alone() -> None:
    shape = {"tokens": 64, "experts": 4, "top_k": 2, "n": 64, "k": 64}
    first, again, other = (cases.make("moe_gemm_triton", shape, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(first.inputs[k], again.inputs[k]) for k in first.inputs)
    assert not np.array_equal(first.inputs["X"], other.inputs["X"])


def test_every_slot_is_routed_once() -> None:
    shape = {"tokens": 300, "experts": 8, "top_k": 2, "n": 64, "k": 64}
    case = cases.make("moe_gemm_triton", shape, 3)
    slots = case.inputs["SLOTS"]
    assert sorted(slots[slots < 600].tolist()) == list(range(600))
    assert sum(case.shape[f"expert_slots_{e}"] for e in range(8)) == 600
    assert case.inputs["PADDED"][0] % 128 == 0
