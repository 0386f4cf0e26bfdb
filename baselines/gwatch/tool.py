"""Where the installed G-Watch is, and how its programs are run: own interpreter, own environment, a time limit."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xtrace.errors import MissingTool, XtraceError

__all__ = ["HERE", "Tool", "ToolError"]

HERE = Path(__file__).resolve().parent
LIBRARIES = ("nvidia/cuda_cupti/lib", "nvidia/cuda_runtime/lib")  # CUDA 12 libraries that the wheel links to
# Driver entry points that the wheel links to. Without a driver it cannot even be imported: a machine without a GPU
# gets libraries in which each of them returns an error code. Never used where a real driver is.
STUBS = {
    "libcuda.so.1": (
        100,
        "cuCtxGetCurrent cuCtxGetDevice cuCtxPushCurrent_v2 cuDeviceGet cuDeviceGetAttribute cuDeviceGetName "
        "cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxRetain cuFuncGetAttribute cuFuncGetModule cuFuncGetName "
        "cuFuncGetParamInfo cuFuncSetAttribute cuGetErrorString cuInit cuKernelGetFunction cuLaunchKernelEx "
        "cuLibraryGetModule cuModuleGetFunction cuModuleLoadData cuStreamSynchronize",
    ),
    "libnvidia-ml.so.1": (9, "nvmlDeviceGetClock nvmlDeviceGetHandleByIndex_v2 nvmlErrorString nvmlInit_v2"),
}


class ToolError(XtraceError):
    """G-Watch itself failed; ``log`` holds the end of what it printed."""

    def __init__(self, what: str, log: str = "", where: str = "") -> None:
        super().__init__("XT7362", what, where=where)
        self.log = log


@dataclass(frozen=True)
class Tool:
    """``packages``: folder that G-Watch and what it needs are installed in; ``python``: a CPython 3.12."""

    packages: Path
    python: str = sys.executable

    def check(self) -> None:
        """Raises ``MissingTool`` XT7361 if it is not installed there."""
        if not (self.packages / "gwatch").is_dir():
            raise MissingTool(
                "XT7361",
                "G-Watch is not installed",
                where=str(self.packages),
                hint="pip install --target DIR gwatch and the CUDA 12 libraries (baselines/README.md)",
            )

    def environment(self, scratch: Path) -> dict[str, str]:
        """Environment of its processes; stand-ins for the driver are put into ``scratch`` if there is no driver."""
        folders = [str(self.packages / name) for name in LIBRARIES]
        missing = [name for name in STUBS if not _loadable(name)]
        if missing:
            _make_stubs(missing, scratch)
            folders.insert(0, str(scratch))
        old = os.environ.get("LD_LIBRARY_PATH")
        return os.environ | {
            "PYTHONPATH": str(self.packages),
            "PYTHONDONTWRITEBYTECODE": "1",
            "LD_LIBRARY_PATH": os.pathsep.join([*folders, *([old] if old else [])]),
        }

    def run(self, program: str, job: Mapping[str, Any], timeout_s: float, extra_path: str = "") -> dict[str, Any]:
        """Run ``baselines/gwatch/PROGRAM JOB RESULT``; the result document.

        Raises ``ToolError`` when the process died, took too long or reports a failure.
        """
        self.check()
        with tempfile.TemporaryDirectory(prefix="xtrace-gwatch-") as folder:
            scratch = Path(folder)
            (scratch / "job.json").write_text(json.dumps(dict(job)), encoding="utf-8")
            environment = self.environment(scratch)
            if extra_path:
                environment["PYTHONPATH"] += os.pathsep + extra_path
            command = [self.python, str(HERE / program), str(scratch / "job.json"), str(scratch / "result.json")]
            where = str(job.get("kernel", ""))
            try:
                done = subprocess.run(
                    command,
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    timeout=timeout_s,
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                log = (error.stdout or b"").decode(errors="replace")
                raise ToolError(f"did not end within {timeout_s:.0f} s", log[-4000:], where) from None
            except OSError as error:
                raise MissingTool("XT7361", f"cannot be run: {error.strerror}", where=self.python) from error
            log = done.stdout.decode(errors="replace")
            try:
                result = json.loads((scratch / "result.json").read_text(encoding="utf-8"))
            except (OSError, ValueError):
                raise ToolError(f"its process ended with {done.returncode}", log[-4000:], where) from None
        if not isinstance(result, dict) or not result.get("ok"):
            raise ToolError(str(result.get("reason", "no reason")), str(result.get("traceback", "")) or log, where)
        return result


def _loadable(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _make_stubs(names: list[str], folder: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise MissingTool("XT7361", "without a driver a C compiler is needed to load G-Watch", hint="install cc")
    for name in names:
        code, functions = STUBS[name]
        source = "".join(f"int {function}(void) {{ return {code}; }}\n" for function in functions.split())
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(folder / name), f"-Wl,-soname,{name}"],
            input=source.encode(),
            check=True,
            timeout=60,
        )
