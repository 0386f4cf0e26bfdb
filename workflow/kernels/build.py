"""Compile a suite kernel to machine code without a GPU, the same bytes on every machine.

What would otherwise make the output depend on where it was built: the compiler's cache, paths and time stamps of
sources in line tables, and settings in the environment. All are taken out here, line tables stay.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from workflow.kernels.spec import KernelSpec
from xtrace.errors import BadInput, MissingTool

__all__ = ["Built", "build", "parameter_layout"]

CAPABILITY = {"sm_80": 80, "sm_90a": 90, "sm_100a": 100, "sm_103a": 103, "sm_120a": 120}


@dataclass(frozen=True)
class Built:
    """A compiled kernel: the image, its intermediate texts and what a launcher must know."""

    cubin: bytes
    ptx: str
    ttgir: str
    meta: dict[str, Any]


def build(
    spec: KernelSpec, arch: str = "sm_90a", variant: str = "default", options: Mapping[str, object] | None = None
) -> Built:
    """Compile ``spec`` for ``arch``; ``options`` are further backend options (e.g. ``instrumentation_mode``).

    Raises ``BadInput`` XT7102 for an unknown architecture or variant, ``MissingTool`` XT6101 without Triton.
    """
    if arch not in CAPABILITY:
        raise BadInput(
            "XT7102", f"cannot compile for {arch!r}", where=spec.name, hint=f"known: {', '.join(CAPABILITY)}"
        )
    if variant not in spec.variants:
        raise BadInput("XT7102", f"no variant {variant!r}", where=spec.name, hint=f"known: {', '.join(spec.variants)}")
    try:
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource
    except ImportError as error:
        raise MissingTool("XT6101", f"Triton cannot be imported: {error}", hint="install the extra 'kernels'") from None

    choice = spec.variants[variant]
    with _clean_environment(), _relative_paths(spec.module) as module:
        source = ASTSource(
            getattr(module, spec.entry),
            signature={a.name: a.type for a in spec.arguments} | dict.fromkeys(choice.constants, "constexpr"),
            constexprs=dict(choice.constants),
            attrs={(i,): [["tt.divisibility", 16]] for i, a in enumerate(spec.arguments) if a.aligned},
        )
        settings = {"num_warps": choice.num_warps, "num_stages": choice.num_stages, **(options or {})}
        if choice.maxnreg:
            settings["maxnreg"] = choice.maxnreg
        compiled = triton.compile(source, target=GPUTarget("cuda", CAPABILITY[arch], 32), options=settings)
    cubin, ptx, ttgir = (compiled.asm[kind] for kind in ("cubin", "ptx", "ttgir"))
    meta = {
        "workload": spec.name,
        "kernel": compiled.metadata.name,
        "arch": arch,
        "variant": variant,
        "sha256": hashlib.sha256(cubin).hexdigest(),
        "source": {"path": spec.source, "sha256": hashlib.sha256(Path(str(module.__file__)).read_bytes()).hexdigest()},
        "toolchain": _toolchain(triton),
        "options": {
            "num_warps": choice.num_warps,
            "num_stages": choice.num_stages,
            "constants": dict(choice.constants),
        },
        "launch": {
            "block": [32 * compiled.metadata.num_warps, 1, 1],
            "cluster": [compiled.metadata.num_ctas, 1, 1],
            "shared": compiled.metadata.shared,
            "parameters": parameter_layout(spec),
            "global_scratch_per_cta": compiled.metadata.global_scratch_size,
            "profile_scratch_per_cta": compiled.metadata.profile_scratch_size,
        },
        "loops": [
            {"name": loop.name, "line": _line(module, loop.marker), "unrolled": loop.unrolled(choice.constants)}
            for loop in spec.loops
        ],
    }
    return Built(cubin, ptx, ttgir, meta)


def parameter_layout(spec: KernelSpec) -> list[dict[str, object]]:
    """Kernel parameters in order with byte offsets.

    Source: the launcher that Triton 3.6 generates passes the non-constant arguments in order and then two
    pointers, ``global_scratch`` and ``profile_scratch``; both are null unless the metadata asks for bytes.
    """
    out: list[dict[str, object]] = []
    offset = 0
    trailing = (("global_scratch", "*i8", 8), ("profile_scratch", "*i8", 8))
    for name, kind, size in [(a.name, a.type, a.size) for a in spec.arguments] + list(trailing):
        offset = -(-offset // size) * size
        role = "scratch" if (name, kind, size) in trailing else "buffer" if kind.startswith("*") else "scalar"
        out.append({"name": name, "type": kind, "offset": offset, "size": size, "role": role})
        offset += size
    return out


@contextmanager
def _clean_environment() -> Iterator[None]:
    """A private compile cache, and none of the settings that change generated code.

    The working directory is the cache too: the assembler puts a source file's time stamp into the line table if it
    finds the file under its relative name.
    """
    kept = {
        k: v for k, v in os.environ.items() if k.startswith(("TRITON_", "PTXAS_", "LLVM_", "MLIR_", "DISABLE_PTXAS"))
    }
    with tempfile.TemporaryDirectory(prefix="xtrace-triton-") as cache:
        for key in kept:
            del os.environ[key]
        os.environ["TRITON_CACHE_DIR"] = cache
        try:
            with chdir(cache):
                yield
        finally:
            del os.environ["TRITON_CACHE_DIR"]
            os.environ.update(kept)


@contextmanager
def _relative_paths(module_name: str) -> Iterator[Any]:
    """Import the kernel's module; while active, line tables name sources relative to their package root.

    The compiler takes file names from the code objects of the functions that it lowers, so these are renamed:
    ours to the path in the repository, those of Triton's library to the path in its package.
    """
    from triton.runtime.jit import JITCallable

    module = import_module(module_name)
    renamed = []
    for name, owner in list(sys.modules.items()):
        if owner is None or not (
            name == "triton.language" or name.startswith(("triton.language.", "workflow.kernels."))
        ):
            continue
        for value in list(vars(owner).values()):
            if not isinstance(value, JITCallable) or not hasattr(value.fn, "__code__"):
                continue
            code = value.fn.__code__
            if os.path.isabs(code.co_filename):
                renamed.append((value.fn, code))
                path = value.fn.__module__.replace(".", "/") + ".py"
                value.fn.__code__ = code.replace(co_filename=path)
    try:
        yield module
    finally:
        for function, code in renamed:
            function.__code__ = code


def _toolchain(triton: Any) -> dict[str, str]:
    from triton.backends.nvidia.compiler import get_ptxas

    return {"triton": triton.__version__, "ptxas": str(get_ptxas(90).version)}


def _line(module: Any, marker: str) -> int:
    """Number of the only source line that starts with ``marker``."""
    lines = Path(module.__file__).read_text(encoding="utf-8").splitlines()
    found = [i for i, line in enumerate(lines, 1) if line.strip().startswith(marker)]
    if len(found) != 1:
        raise BadInput("XT7103", f"{len(found)} lines start with {marker!r}", where=module.__file__)
    return found[0]
