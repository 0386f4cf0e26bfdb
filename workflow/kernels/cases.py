"""Random inputs and independent references for every workload.

Inputs come from numpy with a seed. References are written once against the functions that numpy and torch
share (``xp``), in float64, straight from the definition of the operation: on a GPU machine pass torch, which
finishes the large shapes in well under a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from workflow.kernels.spec import Shape
from xtrace.errors import BadInput

__all__ = ["Case", "bf16", "from_bf16", "make", "relative_error", "resolve"]

Array = npt.NDArray[Any]
Arrays = dict[str, Array]


@dataclass(frozen=True)
class Case:
    """Inputs of one launch; bf16 values are held as ``uint16`` bit patterns, ready to be copied to a device."""

    workload: str
    shape: dict[str, int]  # resolved: see :func:`resolve`
    inputs: Arrays

    def reference(self, xp: Any, lift: Callable[[Array], Any]) -> dict[str, Any]:
        """Exact outputs. ``lift`` turns an input array into a float64 array (integers: int64) of ``xp``."""
        return _KINDS[self.workload].reference(xp, {k: lift(v) for k, v in self.inputs.items()}, self.shape)


def make(workload: str, shape: Shape, seed: int) -> Case:
    """Inputs of ``workload``. Raises ``BadInput`` XT7104 for a workload without a case."""
    kind = _kind(workload)
    full = resolve(workload, shape, seed)
    return Case(workload, full, kind.inputs(np.random.default_rng(seed), full))


def resolve(workload: str, shape: Shape, seed: int) -> dict[str, int]:
    """The shape plus the sizes that follow from the seed (the router's decisions); loop trip counts need them."""
    return _kind(workload).resolve(dict(shape), seed)


def bf16(values: npt.ArrayLike) -> npt.NDArray[np.uint16]:
    """Round float32 to bf16 bit patterns, ties to even. Finite values only."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits: Array) -> npt.NDArray[np.float32]:
    """Float32 values of bf16 bit patterns."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def lift_numpy(array: Array) -> Array:
    """``lift`` for numpy: see :meth:`Case.reference`."""
    if array.dtype == np.uint16:
        return from_bf16(array).astype(np.float64)
    return array.astype(np.int64 if array.dtype.kind == "i" else np.float64)


def relative_error(xp: Any, output: Any, reference: Any) -> float:
    """Frobenius norm of the difference over that of the reference; infinite if the output is not finite."""
    error = float((((output - reference) ** 2).sum() / (reference**2).sum()) ** 0.5)
    return error if error == error else float("inf")


def _normal(rng: np.random.Generator, *dims: int, scale: float = 1.0) -> Array:
    """Standard normal values in bf16, drawn in slices to bound memory."""
    out = np.empty(dims, np.uint16)
    flat = out.reshape(-1)
    for start in range(0, flat.size, 1 << 24):
        part = flat[start : start + (1 << 24)]
        part[:] = bf16(rng.standard_normal(part.size, dtype=np.float32) * np.float32(scale))
    return out


def _attention_inputs(rng: np.random.Generator, s: Shape) -> Arrays:
    dims = s["batch"], s["seqlen"], s["heads"], s["head_dim"]
    return {name: _normal(rng, *dims) for name in "QKV"}


def _attention(xp: Any, x: dict[str, Any], s: Shape) -> dict[str, Any]:
    out, lse = xp.zeros_like(x["Q"]), xp.zeros_like(x["Q"])[..., 0].swapaxes(1, 2)
    row = xp.arange(s["seqlen"])
    visible = row[:, None] >= row[None, :]
    if hasattr(x["Q"], "device") and hasattr(visible, "to"):
        visible = visible.to(x["Q"].device)
    for b in range(s["batch"]):
        for h in range(s["heads"]):
            scores = x["Q"][b, :, h] @ x["K"][b, :, h].T / s["head_dim"] ** 0.5
            top = xp.amax(scores, 1)[:, None]  # over hidden entries too: only a shift
            p = xp.exp(scores - top) * visible
            total = p.sum(1)
            out[b, :, h] = (p / total[:, None]) @ x["V"][b, :, h]
            lse[b, h] = xp.log(total) + top[:, 0]
    return {"OUT": out, "LSE": lse}


def _gemm_inputs(rng: np.random.Generator, s: Shape) -> Arrays:
    return {"A": _normal(rng, s["m"], s["k"]), "B": _normal(rng, s["k"], s["n"])}


def _gemm(xp: Any, x: dict[str, Any], s: Shape) -> dict[str, Any]:
    return {"C": x["A"] @ x["B"]}


def _rmsnorm_inputs(rng: np.random.Generator, s: Shape) -> Arrays:
    dims = s["rows"], s["columns"]
    return {"X": _normal(rng, *dims), "R": _normal(rng, *dims), "W": _normal(rng, s["columns"])}


def _rmsnorm(xp: Any, x: dict[str, Any], s: Shape) -> dict[str, Any]:
    h = x["X"] + x["R"]
    return {"R_OUT": h, "Y": h / ((h * h).mean(1)[:, None] + 1e-5) ** 0.5 * x["W"]}


def _softmax_inputs(rng: np.random.Generator, s: Shape) -> Arrays:
    return {"X": _normal(rng, s["rows"], s["columns"], scale=3.0)}


def _softmax(xp: Any, x: dict[str, Any], s: Shape) -> dict[str, Any]:
    e = xp.exp(x["X"] - xp.amax(x["X"], 1)[:, None])
    return {"Y": e / e.sum(1)[:, None]}


def _route(s: Shape, seed: int) -> tuple[Array, Array]:
    """Experts (tokens, top_k) and their weights: softmax over the top_k of random logits."""
    logits = np.random.default_rng([seed, 1]).standard_normal((s["tokens"], s["experts"]), dtype=np.float32)
    chosen = np.argsort(-logits, axis=1, kind="stable")[:, : s["top_k"]]
    e = np.exp(np.take_along_axis(logits, chosen, 1))
    return chosen, (e / e.sum(1, keepdims=True)).astype(np.float32)


def _moe_resolve(s: dict[str, int], seed: int) -> dict[str, int]:
    counts = np.bincount(_route(s, seed)[0].ravel(), minlength=s["experts"])
    return {**s, "seed": seed, **{f"expert_slots_{e}": int(n) for e, n in enumerate(counts)}}


def _moe_inputs(rng: np.random.Generator, s: Shape) -> Arrays:
    from workflow.kernels.moe_gemm import BLOCK_SLOTS, worst_blocks

    chosen, weights = _route(s, s["seed"])
    total = chosen.size
    blocks = worst_blocks(s, BLOCK_SLOTS)
    slots = np.full(blocks * BLOCK_SLOTS, total, np.int32)
    experts = np.zeros(blocks, np.int32)
    end = 0
    for expert in range(s["experts"]):
        mine = np.flatnonzero(chosen.ravel() == expert).astype(np.int32)
        used = -(-mine.size // BLOCK_SLOTS)
        slots[end * BLOCK_SLOTS : end * BLOCK_SLOTS + mine.size] = mine
        experts[end : end + used] = expert
        end += used
    return {
        "X": _normal(rng, s["tokens"], s["k"]),
        "W": _normal(rng, s["experts"], s["n"], s["k"], scale=s["k"] ** -0.5),
        "WEIGHTS": weights.ravel(),
        "SLOTS": slots,
        "EXPERTS": experts,
        "PADDED": np.array([end * BLOCK_SLOTS], np.int32),
    }


def _moe(xp: Any, x: dict[str, Any], s: Shape) -> dict[str, Any]:
    """From the router's decisions, not from the sorted lists that the kernel reads."""
    chosen = _route(s, s["seed"])[0].ravel()
    rows = []
    for expert in range(s["experts"]):
        mine = np.flatnonzero(chosen == expert)
        product = x["X"][mine // s["top_k"]] @ x["W"][expert].T
        rows.append((mine, product * x["WEIGHTS"][mine][:, None]))
    order = np.argsort(np.concatenate([mine for mine, _ in rows]), kind="stable")
    return {"OUT": xp.concatenate([product for _, product in rows])[order]}


@dataclass(frozen=True)
class _Kind:
    inputs: Callable[[np.random.Generator, Shape], Arrays]
    reference: Callable[[Any, dict[str, Any], Shape], dict[str, Any]]
    resolve: Callable[[dict[str, int], int], dict[str, int]] = lambda s, seed: s


_KINDS: Mapping[str, _Kind] = {
    "fa_fwd_hd128_causal_triton": _Kind(_attention_inputs, _attention),
    "fa3_fwd_hd128_causal": _Kind(_attention_inputs, _attention),
    "gemm_bf16_triton": _Kind(_gemm_inputs, _gemm),
    "rmsnorm_triton": _Kind(_rmsnorm_inputs, _rmsnorm),
    "softmax_triton": _Kind(_softmax_inputs, _softmax),
    "moe_gemm_triton": _Kind(_moe_inputs, _moe, _moe_resolve),
}


def _kind(workload: str) -> _Kind:
    if workload not in _KINDS:
        raise BadInput("XT7104", f"no inputs are defined for workload {workload!r}", hint=f"known: {', '.join(_KINDS)}")
    return _KINDS[workload]
