import pytest

from tests.runtime.stand_ins import KERNEL, images, toy_kernel, trace_map
from xtrace.errors import BadInput, XtraceError
from xtrace.runtime.device import LaunchConfig
from xtrace.runtime.launch import DirectArm, SampledArm, TracedArm, bind, run_traced
from xtrace.runtime.params import pack, scalar_type
from xtrace.runtime.simulated import SimulatedDevice
from xtrace.sampling import Sampling
from xtrace.trace import decode

CONFIG = LaunchConfig((4, 2, 1), (64, 1, 1))


def test_a_traced_kernel_runs_and_its_trace_decodes() -> None:
    device = SimulatedDevice({KERNEL: toy_kernel()})
    out = device.allocate(8)
    _, traced = images()
    document = trace_map(traced)
    trace = run_traced(device, traced, document, KERNEL, CONFIG, [("*i8", out), ("i32", 14)])
    assert int.from_bytes(device.download(out, 8), "little") == 42
    tables = decode(trace.data, trace.map_for(document, KERNEL), KERNEL, grid=CONFIG.grid, block=CONFIG.block)
    assert len(tables.warps) == 16
    assert len(tables.events) == 64
    assert tables.warps["cta"].max() == 7
    assert len(device._memory) == 1  # only the output: the buffer was freed


def test_an_unpatched_image_writes_nothing() -> None:
    device = SimulatedDevice({KERNEL: toy_kernel()})
    out = device.allocate(8)
    arm = DirectArm(device, images()[1], KERNEL, CONFIG, [[("*i8", out), ("i32", 1)]])
    arm.launch(0)
    assert int.from_bytes(device.download(out, 8), "little") == 3


def test_parameter_sets_rotate() -> None:
    device = SimulatedDevice({KERNEL: toy_kernel()})
    a, b = device.allocate(8), device.allocate(8)
    arm = DirectArm(device, images()[0], KERNEL, CONFIG, [[("*i8", a), ("i32", 1)], [("*i8", b), ("i32", 2)]])
    arm.launch(3)
    assert device.download(b, 1) == b"\x06"
    assert device.download(a, 1) == b"\xcd"


def test_a_kernel_that_hangs_is_an_error_and_not_a_hang() -> None:
    device = SimulatedDevice({KERNEL: toy_kernel()}, hung=True)
    _, traced = images()
    with pytest.raises(XtraceError) as info:
        run_traced(device, traced, trace_map(traced), KERNEL, CONFIG, [("*i8", device.allocate(8)), ("i32", 1)])
    assert info.value.code == "XT5007"


@pytest.mark.parametrize(("code", "expected"), [(700, "XT5006"), (719, "XT5006"), (702, "XT5007"), (999, "XT5008")])
def test_launch_failures_are_typed(code: int, expected: str) -> None:
    device = SimulatedDevice({KERNEL: toy_kernel()}, failed=code)
    _, traced = images()
    with pytest.raises(XtraceError) as info:
        run_traced(device, traced, trace_map(traced), KERNEL, CONFIG, [("*i8", device.allocate(8)), ("i32", 1)])
    assert info.value.code == expected


def test_a_buffer_is_freed_when_the_image_cannot_be_loaded() -> None:
    device = SimulatedDevice({})
    _, traced = images()
    with pytest.raises(BadInput, match="no such kernel"):
        run_traced(device, traced, trace_map(traced), KERNEL, CONFIG, [("*i8", 512)])
    assert not device._memory


def test_binding_by_name_fills_scratch_with_null() -> None:
    layout = [
        {"name": "X", "type": "*bf16", "role": "buffer"},
        {"name": "n", "type": "i32", "role": "scalar"},
        {"name": "global_scratch", "type": "*i8", "role": "scratch"},
    ]
    assert bind(layout, {"X": 512, "n": 3}) == [("*bf16", 512), ("i32", 3), ("*i8", 0)]
    with pytest.raises(BadInput, match="no value for kernel parameter 'n'"):
        bind(layout, {"X": 512})
    with pytest.raises(BadInput, match="no parameter m"):
        bind(layout, {"X": 512, "n": 3, "m": 1})


def test_types_of_triton_signatures() -> None:
    assert [scalar_type(t) for t in ("*bf16", "i32", "fp32", "u64")] == ["ptr", "i32", "f32", "u64"]
    with pytest.raises(BadInput, match="unknown parameter type"):
        scalar_type("tensor")


@pytest.mark.parametrize("parameter", [("i32", 1 << 31), ("ptr", -1), ("i32", 1.5), ("u8", True)])
def test_values_that_do_not_fit_are_refused(parameter) -> None:
    with pytest.raises(BadInput) as info:
        pack([parameter])
    assert info.value.code == "XT5041"


@pytest.mark.parametrize("sizes", [((0, 1, 1), (32, 1, 1)), ((1, 1, 1), (32, -1, 1))])
def test_impossible_launch_sizes_are_refused(sizes) -> None:
    with pytest.raises(BadInput, match="launch sizes"):
        LaunchConfig(*sizes)


def test_warps_are_rounded_up_per_cta() -> None:
    assert LaunchConfig((3, 1, 1), (33, 1, 1)).warps == 6


def test_launches_that_are_not_sampled_run_the_original() -> None:
    device = SimulatedDevice({KERNEL: toy_kernel()})
    original, traced = images()
    parameters = [[("*i8", device.allocate(8)), ("i32", 1)]]
    plain = DirectArm(device, original, KERNEL, CONFIG, parameters)
    with_probes = TracedArm.load(device, traced, trace_map(traced), KERNEL, CONFIG, parameters)
    arm = SampledArm(plain, with_probes, Sampling.parse("launch=3/1"))
    seen = []
    for n in range(7):
        with_probes.buffer.zero()
        traced_now = arm.next_is_traced
        arm.launch(n)
        assert with_probes.buffer.untouched() is not traced_now
        seen.append(traced_now)
    assert [n for n, x in enumerate(seen) if x] == [1, 4]
    assert sum(image == original for _, image, _ in device.launches) == 5
