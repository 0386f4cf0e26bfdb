"""Descriptions of kernels agree with the machine code: parameters, loops, trip counts, instructions."""

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("triton")

from workflow.kernels import cases
from workflow.kernels.build import parameter_layout
from workflow.kernels.expected import records_per_warp
from workflow.kernels.registry import WORKLOADS, spec
from workflow.kernels.suite import read_suite
from workflow.scripts.config import load_yaml
from xtrace import image, isa, splice
from xtrace.analysis import analyse
from xtrace.errors import BadInput

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
IMAGES = {
    "fa_fwd_hd128_causal_triton": "triton_fa_fwd",
    "gemm_bf16_triton": "triton_gemm",
    "moe_gemm_triton": "triton_moe_gemm",
    "rmsnorm_triton": "triton_rmsnorm",
    "softmax_triton": "triton_softmax",
}
SUITE = read_suite()
SITES = load_yaml(GOLDEN.parents[1] / "configs" / "matched_sites.yaml")


def compiled(workload: str) -> image.Image:
    return image.load(GOLDEN / f"{IMAGES[workload]}.cubin")


@pytest.mark.parametrize("workload", WORKLOADS)
def test_parameters_fill_the_parameter_block(workload: str) -> None:
    (kernel,) = compiled(workload).kernels
    last = parameter_layout(spec(workload))[-1]
    assert (kernel.name, kernel.param_size) == (spec(workload).entry, last["offset"] + last["size"])  # type: ignore[operator]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_machine_code_has_the_expected_instructions_and_no_spills(workload: str) -> None:
    found = compiled(workload)
    code = isa.for_arch("sm_90a").decode(found.kernels[0].text)
    for opcode in spec(workload).expect:
        assert any(ins.opcode.startswith(opcode) for ins in code), opcode
    assert not [ins.text for ins in code if ins.base in ("STL", "LDL")]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_matrix_instructions_are_not_serialised(workload: str) -> None:
    """One group wait per group of matrix instructions: the assembler waits after each one when it must serialise."""
    code = isa.for_arch("sm_90a").decode(compiled(workload).kernels[0].text)
    count = Counter(ins.base for ins in code)
    assert count["WARPGROUP"] <= count["HGMMA"]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_machine_loops_are_the_source_loops_that_are_not_unrolled(workload: str) -> None:
    found = compiled(workload)
    kernel = spec(workload)
    assert len(analyse(found, found.kernels[0]).loops) == len(kernel.machine_loops(kernel.variants["default"]))


def test_attention_trip_counts_add_up_to_the_causal_triangle() -> None:
    kernel = spec("fa_fwd_hd128_causal_triton")
    shape = {"batch": 2, "seqlen": 1024, "heads": 3, "head_dim": 128}
    for variant in kernel.variants.values():
        bm, bn = variant.constants["BM"], variant.constants["BN"]
        x, y, _ = kernel.grid(shape, variant.constants)
        blocks = sum(sum(kernel.trips(shape, variant, cta).values()) for cta in range(x * y))
        assert blocks == 6 * sum((row + 1) * bm // bn for row in range(1024 // bm))


def test_softmax_trip_counts_cover_every_row_once() -> None:
    kernel = spec("softmax_triton")
    for rows, ctas in ((77, 30), (5, 30), (528, 528)):
        shape = {"rows": rows, "columns": 8192, "ctas": ctas}
        variant = kernel.variants["default"]
        launched = kernel.grid(shape, variant.constants)[0]
        assert sum(kernel.trips(shape, variant, cta)["rows"] for cta in range(launched)) == rows


def test_moe_trip_counts_are_zero_for_ctas_beyond_the_padding() -> None:
    kernel = spec("moe_gemm_triton")
    case = cases.make("moe_gemm_triton", {"tokens": 300, "experts": 8, "top_k": 2, "n": 512, "k": 256}, 5)
    variant = kernel.variants["default"]
    ctas = kernel.grid(case.shape, variant.constants)[0]
    busy = sum(kernel.trips(case.shape, variant, cta)["depth"] > 0 for cta in range(ctas))
    assert busy == case.inputs["PADDED"][0] // 128 * (512 // 256) < ctas


def test_expected_records_are_sites_times_trips() -> None:
    kernel = spec("gemm_bf16_triton")
    entry = {
        "loops": [{"id": 4, "head": 0x800}],
        "sites": [
            {"id": None, "loop": None},
            {"id": 1, "loop": None},
            {"id": 2, "loop": 4},
            {"id": 3, "loop": 4},
        ],
    }
    shape = {"m": 512, "n": 512, "k": 640}
    assert records_per_warp(kernel, kernel.variants["default"], shape, 0, entry) == 1 + 2 * 10
    with pytest.raises(BadInput, match="XT7110"):
        records_per_warp(kernel, kernel.variants["default"], shape, 0, {**entry, "loops": []})


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_suite_bounds_the_records_of_a_warp(workload: str) -> None:
    """Rings are sized by these numbers, so they must hold for the images as they are spliced today."""
    entry, kernel = SUITE[workload], spec(workload)
    variant = kernel.variants["default"]
    shape = cases.resolve(workload, entry["shapes"]["default"], entry["seed"])
    found = compiled(workload)
    for group in entry["groups"]:
        probes = SITES["groups"][group]["xtrace"]
        traced = splice.apply(splice.plan(found, found.kernels, probes)).map["kernels"][0]
        counts = [records_per_warp(kernel, variant, shape, cta, traced) for cta in range(0, 512, 16)]
        assert 0 <= max(n for n in counts if n is not None) <= entry["records_per_warp"][group], group


@pytest.mark.parametrize("workload", WORKLOADS)
def test_shapes_fit_the_tiles(workload: str) -> None:
    """Kernels without masks in a dimension need whole tiles there, at every shape of the suite."""
    entry = SUITE[workload]
    constants = spec(workload).variants["default"].constants
    whole = {"n": "BN", "k": "BK", "seqlen": "BM"} | ({"m": "BM"} if workload.startswith("gemm") else {})
    for shape in entry["shapes"].values():
        assert all(shape[dim] % constants[tile] == 0 for dim, tile in whole.items() if dim in shape)
        outputs = {a.name for a in spec(workload).arguments if a.output}
        assert outputs == entry["tolerances"].keys()


@pytest.mark.parametrize("workload", WORKLOADS)
def test_arguments_promised_to_be_aligned_are(workload: str) -> None:
    for shape in SUITE[workload]["shapes"].values():
        for a in spec(workload).arguments:
            assert not (a.aligned and a.value) or a.value(shape) % 16 == 0, a.name
