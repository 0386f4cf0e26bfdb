"""Compile TTGIR without a GPU, plain and with Proton's instrumentation; one process per request.

Proton's hook and Triton's driver are global state, so this runs in a process of its own:
``python worker.py REQUEST.json``, where the request is
``{"plain": path | null, "marked": path | null, "mode": str, "arch": int, "max_shared": bytes, "options": {},
"out": folder}``. It leaves ``<label>.cubin``, ``<label>.ptx`` and ``<label>.json`` (compiler metadata) in ``out``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main(request_path: str) -> None:
    request = json.loads(Path(request_path).read_text(encoding="utf-8"))
    import triton
    from triton.backends.compiler import GPUTarget

    target = GPUTarget("cuda", request["arch"], 32)

    class Utilities:
        def get_device_properties(self, device: int) -> dict[str, Any]:
            return {"max_shared_mem": request["max_shared"], "arch": str(request["arch"])}

    class OfflineDriver:  # the hook asks the driver for target, device and shared memory, nothing else
        utils = Utilities()

        def get_current_target(self) -> Any:
            return target

        def get_current_device(self) -> int:
            return 0

    triton.runtime.driver.set_active(OfflineDriver())
    out = Path(request["out"])

    def compile_text(path: str, label: str, extra: dict[str, Any]) -> None:
        kernel = triton.compile(path, target=target, options={**request["options"], **extra})
        (out / f"{label}.cubin").write_bytes(kernel.asm["cubin"])
        (out / f"{label}.ptx").write_text(kernel.asm["ptx"], encoding="utf-8")
        keys = [
            "name",
            "shared",
            "num_warps",
            "num_ctas",
            "global_scratch_size",
            "global_scratch_align",
            "profile_scratch_size",
            "profile_scratch_align",
            "instrumentation_mode",
            "triton_version",
        ]
        facts = {key: getattr(kernel.metadata, key) for key in keys}
        (out / f"{label}.json").write_text(json.dumps(facts), encoding="utf-8")

    if request["plain"]:
        compile_text(request["plain"], "plain", {})
    if request["marked"]:
        from triton.profiler.hooks.instrumentation import InstrumentationHook

        InstrumentationHook(request["mode"]).activate()
        mode = triton.knobs.compilation.instrumentation_mode
        compile_text(request["marked"], "marked", {"instrumentation_mode": mode})


if __name__ == "__main__":
    main(sys.argv[1])
