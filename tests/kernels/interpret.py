"""Runs every kernel at a small shape in Triton's CPU interpreter and prints its relative errors as JSON.

A process of its own: the interpreter is chosen by the environment before the kernels are imported.
"""

import json
import os
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from triton.runtime import interpreter

from workflow.kernels import cases
from workflow.kernels.registry import spec

SHAPES = {
    "fa_fwd_hd128_causal_triton": {"batch": 2, "seqlen": 384, "heads": 2, "head_dim": 128},
    "gemm_bf16_triton": {"m": 256, "n": 512, "k": 192},
    "rmsnorm_triton": {"rows": 3, "columns": 5000},
    "softmax_triton": {"rows": 7, "columns": 5000, "ctas": 3},
    "moe_gemm_triton": {"tokens": 300, "experts": 4, "top_k": 2, "n": 512, "k": 128},
}
DTYPES = {"bf16": "bfloat16", "fp32": "float32", "i32": "int32"}
POISON = {"bf16": np.uint16(0xFFFF), "fp32": np.float32("nan"), "i32": np.int32(-1)}


class Buffer:
    """As much of a tensor as the interpreter asks for."""

    def __init__(self, array: np.ndarray, element: str) -> None:
        self.array, self.dtype = array, DTYPES[element]

    def data_ptr(self) -> int:
        return self.array.ctypes.data

    def untyped_storage(self) -> "Buffer":
        return self

    def cpu(self) -> "Buffer":
        return self

    def new_empty(self, *_: object, **__: object) -> "Buffer":
        return Buffer(self.array, next(k for k, v in DTYPES.items() if v == self.dtype))

    def set_(self, *_: object) -> None: ...

    def copy_(self, _: object) -> None: ...

    def storage_offset(self) -> int:
        return 0

    size = stride = storage_offset


def mend_interpreter() -> None:
    """Two gaps of the interpreter of Triton 3.6.

    It multiplies bf16 matrices as the integers that hold their bits, and it turns arrays of one element into
    integers in a way that numpy 2.4 refuses.
    """
    patch_tensor = interpreter._patch_lang_tensor

    def patched(tensor: type, scope: object) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())  # type: ignore[attr-defined]

    def dot(self: object, a: object, b: object, d: object, *_: object) -> object:
        x, y = (cases.from_bf16(m.data) if m.data.dtype == np.uint16 else m.data for m in (a, b))
        return interpreter.TensorHandle(np.matmul(x, y) + d.data, d.dtype.scalar)

    interpreter._patch_lang_tensor = patched
    interpreter.InterpreterBuilder.create_dot = dot


def main(names: list[str]) -> None:
    mend_interpreter()
    out: dict[str, dict[str, float]] = {}
    for name in names or list(SHAPES):
        kernel = spec(name)
        choice = kernel.variants["default"]
        case = cases.make(name, SHAPES[name], seed=7)
        arrays = dict(case.inputs)
        for a in kernel.arguments:
            if a.output and a.dims:
                arrays[a.name] = np.full(a.dims(case.shape), POISON[a.element])
        arguments = [
            Buffer(arrays[a.name], a.element) if a.is_pointer else a.value(case.shape)  # type: ignore[misc]
            for a in kernel.arguments
        ]
        module = sys.modules[kernel.module]
        getattr(module, kernel.entry)[kernel.grid(case.shape, choice.constants)](*arguments, **choice.constants)
        reference = case.reference(np, cases.lift_numpy)
        out[name] = {
            key: cases.relative_error(np, cases.lift_numpy(arrays[key]), value) for key, value in reference.items()
        }
    print(json.dumps(out))


if __name__ == "__main__":
    main(sys.argv[1:])
