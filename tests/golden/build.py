#!/usr/bin/env python3
"""Rebuild the golden images: small images of our own kernels, for tests without a compiler or a GPU.

    build.py [--check] [--only NAME ...]

Writes ``*.cubin`` and ``manifest.json`` beside this file. ``--check`` compiles into a temporary folder and
exits 1 if any image differs from the committed one. Needs the extra ``kernels`` (Triton) and nvcc 13.0.

The Triton kernels give images of the older ABI (toolchain 12.8), the CUDA kernels those of the newer one.
CUDA sources go through PTX, so that the paths in its ``.file`` directives, and with them the line tables,
can be made relative to the repository.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

ARCH = "sm_90a"
# What each image is there for, and how its kernels are launched ("threads" per CTA, "shared" dynamic bytes).
CUDA: dict[str, dict[str, object]] = {
    "brx_table": {"trap": "indirect branch through a jump table", "threads": 128, "shared": 0},
    "call_rel": {"trap": "call with return", "threads": 128, "shared": 0},
    "cp_async": {"trap": "cp.async pipeline", "threads": 256, "shared": 0},
    "divergent": {"trap": "nested divergent regions", "threads": 128, "shared": 0},
    "early_exit": {"trap": "predicated exits", "threads": 128, "shared": 0},
    "many_registers": {"trap": "register pressure near 255", "threads": 128, "shared": 0},
    "odd_block": {"trap": "CTA of 80 threads", "threads": 80, "shared": 0},
    "spin": {"trap": "spin loop between warps", "threads": 64, "shared": 0},
    "tma_tile": {"trap": "tiled TMA load and store", "threads": 128, "shared": 0},
    "two_kernels": {"trap": "two kernels and a shared function in one image", "threads": 128, "shared": 0},
    "warp_specialised": {
        "trap": "mbarrier, bulk copy, setmaxnreg, WGMMA with A in registers",
        "threads": 384,
        "shared": 8192,
    },
}
# One launch of each kernel that ends, stays inside its buffers and gives the same result every time. Buffers are
# filled by "init": normal floats, small non-negative integers, bf16 (normal) or zero; "out" buffers are poisoned first.
# tma_tile needs tensor maps, which only a driver can make.
LAUNCHES: dict[str, dict[str, tuple[int, list[tuple[str, int, str]]]]] = {
    "brx_table": {"brx_table": (4, [("*i32", 514, "zero"), ("*i32", 1024, "ints"), ("i32", 40, "value")])},
    "call_rel": {"call_rel": (4, [("*f32", 512, "out"), ("*f32", 512, "normal"), ("i32", 9, "value")])},
    "cp_async": {"cp_async": (3, [("*f32", 3072, "out"), ("*f32", 21504, "normal"), ("i32", 7, "value")])},
    "divergent": {"divergent": (4, [("*f32", 512, "out"), ("*f32", 512, "normal"), ("i32", 33, "value")])},
    "early_exit": {"early_exit": (4, [("*f32", 512, "out"), ("*f32", 512, "normal"), ("i32", 500, "value")])},
    "many_registers": {"many_registers": (1, [("*f32", 25088, "out"), ("*f32", 17920, "normal"), ("i32", 5, "value")])},
    "odd_block": {"odd_block": (5, [("*f32", 5, "out"), ("*f32", 5000, "normal"), ("i32", 1000, "value")])},
    "spin": {"spin": (6, [("*u32", 6, "zero"), ("*u32", 12, "out"), ("u32", 20, "value")])},
    "two_kernels": {
        "first_of_two": (2, [("*i32", 256, "ints"), ("i32", 11, "value")]),
        "second_of_two": (3, [("*i32", 3, "out"), ("*i32", 384, "ints"), ("i32", 300, "value"), ("i32", 6, "value")]),
    },
    "warp_specialised": {
        "warp_specialised": (
            2,
            [("*f32", 8192, "out"), ("*bf16", 26624, "bf16"), ("*bf16", 13312, "bf16"), ("i32", 13, "value")],
        )
    },
}
TRITON = {
    "triton_fa_fwd": "fa_fwd_hd128_causal_triton",
    "triton_gemm": "gemm_bf16_triton",
    "triton_moe_gemm": "moe_gemm_triton",
    "triton_rmsnorm": "rmsnorm_triton",
    "triton_softmax": "softmax_triton",
}


def build_cuda(name: str) -> tuple[bytes, dict[str, object]]:
    """Compile ``src/NAME.cu``: CUDA C++ to PTX, paths made relative, PTX to machine code."""
    with tempfile.TemporaryDirectory(prefix="xtrace-golden-") as folder:
        shutil.copy(HERE / "src" / f"{name}.cu", folder)
        run(["nvcc", f"-arch={ARCH}", "-std=c++17", "-ptx", "-lineinfo", f"{name}.cu", "-o", f"{name}.ptx"], folder)
        ptx = Path(folder, f"{name}.ptx")
        ptx.write_text(relative_files(ptx.read_text()))
        run(["ptxas", f"--gpu-name={ARCH}", "-lineinfo", f"{name}.ptx", "-o", f"{name}.cubin"], folder)
        data = Path(folder, f"{name}.cubin").read_bytes()
    # The names of inlined library functions, kept for the line table only, contain a hash of the folder's path.
    data = re.sub(rb"_INTERNAL_[0-9a-f]{8}_", b"_INTERNAL_00000000_", data)
    return data, {
        "source": f"tests/golden/src/{name}.cu",
        "toolchain": nvcc_version(),
        "command": f"nvcc -arch={ARCH} -std=c++17 -ptx -lineinfo; ptxas --gpu-name={ARCH} -lineinfo",
        "abi": 8,
        "launch": {"threads": CUDA[name]["threads"], "shared": CUDA[name]["shared"], "kernels": launches(name)},
        "trap": CUDA[name]["trap"],
    }


def launches(name: str) -> dict[str, object]:
    """Grid and parameters of the kernels of one CUDA image, by kernel."""
    return {
        kernel: {
            "grid": [ctas, 1, 1],
            "params": [
                {"type": kind, "value": n} if init == "value" else {"type": kind, "count": n, "init": init}
                for kind, n, init in params
            ],
        }
        for kernel, (ctas, params) in LAUNCHES.get(name, {}).items()
    }


def relative_files(ptx: str) -> str:
    """Make the paths of ``.file`` directives independent of the machine."""

    def rename(found: re.Match[str]) -> str:
        path = found[2]
        if "/include/" in path:
            return f'{found[1]}"cuda/include/{path.rsplit("/include/", 1)[1]}"'
        return f'{found[1]}"tests/golden/src/{path.rsplit("/", 1)[-1]}"'

    return re.sub(r'(\.file\s+\d+\s+)"([^"]+)"', rename, ptx)


def build_triton(name: str) -> tuple[bytes, dict[str, object]]:
    """Compile the default variant of a suite kernel."""
    from workflow.kernels.build import build
    from workflow.kernels.registry import spec

    built = build(spec(TRITON[name]), ARCH)
    meta = built.meta
    tools = meta["toolchain"]
    return built.cubin, {
        "source": meta["source"]["path"],
        "toolchain": f"triton {tools['triton']}, ptxas {tools['ptxas']}",
        "command": f"workflow/scripts/build_corpus.py --workload {TRITON[name]}",
        "abi": 7,
        "launch": {"threads": meta["launch"]["block"][0], "shared": meta["launch"]["shared"]},
        "options": meta["options"],
        "workload": TRITON[name],
    }


def run(command: list[str], folder: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def nvcc_version() -> str:
    found = re.search(r"release [\d.]+, V([\d.]+)", run(["nvcc", "--version"], "."))
    return f"nvcc {found[1]}" if found else "nvcc"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the committed images, write nothing")
    parser.add_argument("--only", nargs="+", default=[*CUDA, *TRITON], metavar="NAME", choices=[*CUDA, *TRITON])
    args = parser.parse_args()
    path = HERE / "manifest.json"
    manifest = (
        json.loads(path.read_text()) if path.exists() else {"schema": "xtrace/golden/1", "arch": ARCH, "images": {}}
    )
    different = []
    for name in args.only:
        data, entry = build_cuda(name) if name in CUDA else build_triton(name)
        entry = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data), **entry}
        if args.check:
            same = manifest["images"].get(name, {}).get("sha256") == entry["sha256"]
            print(f"{name:20} {'same' if same else 'DIFFERENT'}")
            different += [] if same else [name]
            continue
        (HERE / f"{name}.cubin").write_bytes(data)
        manifest["images"][name] = entry
        print(f"{name:20} {len(data):7} bytes  {entry['sha256'][:16]}")
    if not args.check:
        manifest["images"] = dict(sorted(manifest["images"].items()))
        path.write_text(json.dumps(manifest, indent=1) + "\n")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
