"""The committed images are what the manifest says, carry no machine's paths, and contain their traps."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from xtrace import image, isa

HERE = Path(__file__).resolve().parent
MANIFEST = json.loads((HERE / "manifest.json").read_text())
IMAGES = MANIFEST["images"]
TRAPS = {
    "brx_table": ["BRX"],
    "call_rel": ["CALL.REL", "RET.REL"],
    "cp_async": ["LDGSTS", "LDGDEPBAR", "DEPBAR"],
    "divergent": ["BSSY", "BSYNC"],
    "early_exit": ["EXIT"],
    "many_registers": ["FFMA"],
    "odd_block": ["BAR.SYNC"],
    "spin": ["NANOSLEEP"],
    "tma_tile": ["UTMALDG", "UTMASTG", "SYNCS"],
    "two_kernels": ["CALL.REL", "RET.REL"],
    "warp_specialised": ["USETMAXREG", "HGMMA", "UBLKCP", "SYNCS", "ELECT"],
}


def test_manifest_lists_every_image_with_its_hash() -> None:
    assert {p.stem for p in HERE.glob("*.cubin")} == IMAGES.keys()
    for name, entry in IMAGES.items():
        data = (HERE / f"{name}.cubin").read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (entry["bytes"], entry["sha256"]), name
        assert (HERE.parents[1] / entry["source"]).is_file()


def test_images_stay_small() -> None:
    assert max(e["bytes"] for e in IMAGES.values()) < 300 << 10
    assert sum(e["bytes"] for e in IMAGES.values()) < 1536 << 10


@pytest.mark.parametrize("name", IMAGES)
def test_images_hold_no_absolute_paths(name: str) -> None:
    data = (HERE / f"{name}.cubin").read_bytes()
    assert not re.search(rb"(?<![\w.])/(home|root|tmp|usr|work|opt|mnt|var)/", data)


@pytest.mark.parametrize("name", IMAGES)
def test_images_load_with_the_expected_abi(name: str) -> None:
    found = image.load(HERE / f"{name}.cubin")
    assert (found.arch, found.flavour) == (MANIFEST["arch"], f"abi{IMAGES[name]['abi']}")
    assert len(found.kernels) == (2 if name == "two_kernels" else 1)


@pytest.mark.parametrize("name", TRAPS)
def test_traps_are_in_the_machine_code(name: str) -> None:
    found = image.load(HERE / f"{name}.cubin")
    opcodes = {ins.opcode for kernel in found.kernels for ins in isa.for_arch(found.arch).decode(kernel.text)}
    for trap in TRAPS[name]:
        assert any(opcode.startswith(trap) for opcode in opcodes), trap


def test_register_and_block_traps_hold() -> None:
    assert image.load(HERE / "many_registers.cubin").kernels[0].registers >= 250
    assert IMAGES["odd_block"]["launch"]["threads"] % 32 != 0
    exits = [
        ins.guard
        for ins in isa.for_arch("sm_90a").decode(image.load(HERE / "early_exit.cubin").kernels[0].text)
        if ins.base == "EXIT"
    ]
    assert sum(bool(guard) for guard in exits) > 1


@pytest.mark.golden
def test_cuda_images_can_be_rebuilt() -> None:
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not installed")
    version = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    if IMAGES["spin"]["toolchain"].split()[-1] not in version:
        pytest.skip("another release of nvcc: its code may differ")
    rebuild("spin", "two_kernels")


@pytest.mark.golden
def test_triton_images_can_be_rebuilt() -> None:
    pytest.importorskip("triton")
    rebuild("triton_fa_fwd", "triton_gemm", "triton_moe_gemm", "triton_rmsnorm", "triton_softmax")


def rebuild(*names: str) -> None:
    command = [sys.executable, str(HERE / "build.py"), "--check", "--only", *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
