"""Arms that call a PyTorch extension (FlashAttention-3) through PyTorch itself, each from its own library copy.

Every arm is a private copy of the package registered under its own operator namespace (see
:mod:`xtrace.runtime.repack` for why), called with the same arguments as the package's Python function uses.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xtrace.errors import MissingTool
from xtrace.runtime.buffers import SlotLayout, TraceBuffer
from xtrace.runtime.checks import Region
from xtrace.runtime.device import Device
from xtrace.runtime.patching import patch_image
from xtrace.runtime.repack import copy_package, load_library, rename_namespace, replace_image
from xtrace.runtime.repack import find_package as find_any_package

__all__ = ["ATTENTION", "AttentionArm", "ExtensionPackage", "Tensors", "find_package", "import_torch", "trace_buffers"]


@dataclass(frozen=True)
class ExtensionPackage:
    """What must be known about an extension package to copy it and to call it."""

    module: str
    names: tuple[str, ...]
    library: str
    namespace: str

    def copy(
        self, source: Path, target: Path, letter: str, images: tuple[bytes, bytes] | None = None
    ) -> tuple[Path, str]:
        """A private copy whose operators live in a namespace starting with ``letter``; returns library and namespace.

        ``images`` replaces the first image by the second.
        """
        copied = copy_package(source, target, self.library, self.names)
        namespace = letter + self.namespace[1:]
        if namespace != self.namespace:
            rename_namespace(copied.library, self.namespace, namespace)
        if images is not None:
            replace_image(copied.library, *images)
        return copied.library, namespace


ATTENTION = ExtensionPackage(
    module="fa3_fwd_interface",
    names=("fa3_fwd", "fa3_fwd_interface.py", "fa3_fwd_config.py"),
    library="fa3_fwd/_C.abi3.so",
    namespace="fa3_fwd",
)


def find_package(given: Path | None = None) -> Path:
    """Wheel or directory of the attention package; see :func:`xtrace.runtime.repack.find_package`."""
    return find_any_package(ATTENTION.module, given)


def import_torch() -> Any:
    """PyTorch with CUDA; ``MissingTool`` XT5034 without."""
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise MissingTool(
            "XT5034", f"PyTorch cannot be imported: {error}", hint="pip install 'xtrace[torch]'"
        ) from error
    if not torch.cuda.is_available():
        raise MissingTool("XT5034", "this PyTorch sees no GPU", hint="install its CUDA build; see xtrace doctor")
    return torch


@dataclass
class Tensors:
    """Inputs and outputs of one attention call; shapes (batch, seqlen, heads, head_dim), bf16."""

    q: Any
    k: Any
    v: Any
    out: Any


class AttentionArm:
    """``fwd`` of one library copy on rotating tensor sets, with the arguments that ``flash_attn_func`` passes on."""

    def __init__(self, library: Path, namespace: str, sets: Sequence[Tensors], causal: bool) -> None:
        torch = import_torch()
        self._library = load_library(library)
        self._forward: Callable[..., Any] = getattr(torch.ops, namespace).fwd
        self._sets = sets
        self._arguments = {"softmax_scale": sets[0].q.shape[-1] ** -0.5, "is_causal": causal, "num_splits": 1}
        self._lse: Any = None

    def launch(self, index: int) -> None:
        t = self._sets[index % len(self._sets)]
        self._lse = self._forward(t.q, t.k, t.v, out=t.out, **self._arguments)[1]

    def outputs(self) -> list[Region]:
        """Output and log-sum-exp of the last launch on set 0 (call after ``launch(0)``)."""
        return [_region(self._sets[0].out), _region(self._lse)]


def _region(tensor: Any) -> Region:
    return int(tensor.data_ptr()), int(tensor.numel() * tensor.element_size())


def trace_buffers(
    device: Device, image: bytes, trace_map: Mapping[str, Any], main: str, slots: int
) -> tuple[bytes, dict[str, TraceBuffer]]:
    """A buffer of its own for every traced kernel of an image, and the image patched to use them.

    Which kernel a library call runs is then seen from which buffer has headers. ``main``, the one that is meant to
    run, gets ``slots`` slots; the others a few, enough to notice that they ran.
    """
    buffers = {
        str(entry["name"]): TraceBuffer(device, SlotLayout.of(entry["slot"]), slots if entry["name"] == main else 64)
        for entry in trace_map["kernels"]
        if entry.get("slot") is not None and entry.get("patches")
    }
    return patch_image(image, trace_map, {name: b.target for name, b in buffers.items()}), buffers
