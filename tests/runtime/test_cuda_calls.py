"""How the driver API is called, checked against a stand-in for libcuda that logs what arrives."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAM = """
from xtrace.runtime.cuda import CudaDevice
from xtrace.runtime.device import LaunchConfig
d = CudaDevice(0)
a = d.allocate(4096)
d.fill(a, 4096, 0xA5)
d.fill(a, 3, 7)
d.release_l2()
d.upload(a + 16, b"hello")
print(d.info.uuid, d.info.arch, d.info.cuda, d.info.multiprocessors, d.info.l2_bytes, d.info.max_shared_bytes)
print(d.download(a, 8).hex(), d.download_rows(a, 8, 4, 3).hex())
m = d.load(b"\\x7fELF" + bytes(60))
k = m.kernel("f")
p = k.prepare([("*bf16", 0x1234), ("i32", -5), ("fp32", 1.0), ("*i8", 0)])
k.launch(LaunchConfig((3, 2, 1), (128, 1, 1), 100000), p)
k.launch(LaunchConfig((3, 2, 1), (128, 1, 1), 100000), p)
k.launch(LaunchConfig((4, 1, 1), (128, 1, 1), 0, (2, 1, 1)), p)
e, f = d.event(), d.event()
e.record(); f.record()
d.synchronize(1)
print(e.done(), d.elapsed_ns(e, f), k.attribute("NUM_REGS"), d.telemetry().throttle)
m.unload(); d.free(a)
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or importlib.util.find_spec("cuda") is None:
        pytest.skip("needs a C compiler and the gpu extra")
    library = tmp_path_factory.mktemp("fake") / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", library, HERE / "fakecuda.c", "-ldl"], check=True)
    return library


def _run(driver: Path, program: str, **settings: str) -> subprocess.CompletedProcess:
    log = driver.with_name("log")
    log.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(driver.parent),
        "FAKECUDA_SELF": str(driver),
        "FAKECUDA_LOG": str(log),
        "PYTHONPATH": str(HERE.parents[1]),
        **settings,
    }
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)


def test_every_call_arrives_as_meant(driver: Path) -> None:
    done = _run(driver, PROGRAM)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "GPU-00112233-4455-6677-8899-aabbccddeeff sm_90 13.0 132 1048576 232448",
        "070707a5a5a5a5a5 070707a5a5a5a5a568656c6c",
        "True 250000.0 77 unknown",
    ]
    assert driver.with_name("log").read_text().splitlines() == [
        "release",
        "load 464c457f",
        "cache 1",  # prefer shared memory
        "attribute 8=100000",  # opt in once, not at every launch
        "launch grid 3 2 1 block 128 1 1 shared 100000 stream 0 p0 1234 p1 -5 p2 3f800000",
        "launch grid 3 2 1 block 128 1 1 shared 100000 stream 0 p0 1234 p1 -5 p2 3f800000",
        "launchex grid 4 block 128 attrs 1 id 4 cluster 2 1 1",
        "unload",
    ]


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"FAKECUDA_COUNT": "0"}, "XT5002"),
        ({"FAKECUDA_FAIL": "cuInit=100"}, "XT5002"),
        ({"FAKECUDA_FAIL": "cuMemAlloc=2"}, "XT5004"),
        ({"FAKECUDA_FAIL": "cuCtxResetPersistingL2Cache=719"}, "XT5006"),
        ({"FAKECUDA_FAIL": "cuModuleLoadData=209"}, "XT5003"),
        ({"FAKECUDA_FAIL": "cuLaunchKernel=701"}, "XT5005"),
        ({"FAKECUDA_FAIL": "cuStreamQuery=719"}, "XT5006"),
        ({"FAKECUDA_FAIL": "cuStreamQuery=600"}, "XT5007"),
    ],
)
def test_driver_failures_become_typed_errors(driver: Path, settings: dict, code: str) -> None:
    program = (
        "from xtrace.errors import XtraceError\n"
        f"try:\n{''.join('    ' + line + chr(10) for line in PROGRAM.strip().splitlines())}"
        "except XtraceError as error:\n    print(error.code)\n"
    )
    done = _run(driver, program, **settings)
    assert done.stdout.splitlines()[-1:] == [code], done.stderr


def test_a_device_that_cannot_keep_lines_in_l2_has_none_to_release(driver: Path) -> None:
    done = _run(driver, PROGRAM, FAKECUDA_FAIL="cuCtxResetPersistingL2Cache=801")
    assert done.returncode == 0, done.stderr


def test_a_machine_without_driver_is_told_so() -> None:
    if importlib.util.find_spec("cuda") is None:
        pytest.skip("needs the gpu extra")
    program = "from xtrace.runtime.device import open_device\nopen_device()"
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    if done.returncode == 0:
        pytest.skip("this machine has a GPU")
    assert "MissingTool: error[XT500" in done.stderr
