"""The assembler and disassembler that the Triton package brings along, and what they say about an image."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from xtrace.errors import BadInput, MissingTool

__all__ = ["Assembly", "assemble", "clock_reads", "listing", "tool", "triton_version", "versions"]

TIMEOUT_S = 300
# One record is one read of the low clock word: a 64-bit read names CLOCKLO only, a split read CLOCKLO and CLOCKHI.
_CLOCK = re.compile(r"\bSR_CLOCKLO\b")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(\S.*?)\s*;")
_USED = re.compile(r"Used (\d+) registers")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def triton_version() -> str | None:
    """Installed Triton version, or None."""
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return None


def tool(name: str) -> Path:
    """Path of ``ptxas``, ``nvdisasm`` or ``cuobjdump`` inside the Triton package.

    Raises
    ------
    MissingTool
        XT6301 when Triton or the program is not installed.
    """
    spec = importlib.util.find_spec("triton")
    for location in (spec.submodule_search_locations or []) if spec else []:
        path = Path(location) / "backends" / "nvidia" / "bin" / name
        if path.is_file():
            return path
    raise MissingTool("XT6301", f"{name} was not found", hint="install the extra 'kernels' (it brings Triton)")


@cache
def versions() -> dict[str, str]:
    """Versions of Triton, ptxas and nvdisasm, as the programs print them."""
    found = {"triton": triton_version() or "not installed"}
    for name in ("ptxas", "nvdisasm"):
        try:
            text = subprocess.run([tool(name), "--version"], capture_output=True, text=True, timeout=60).stdout
        except (MissingTool, OSError, subprocess.TimeoutExpired):
            continue
        match = re.search(r"V(\d+\.\d+\.\d+)", text)
        found[name] = match[1] if match else "unknown"
    return found


@dataclass(frozen=True)
class Assembly:
    """What ptxas made of a text: the image, its resources and its diagnostics. ``cubin`` is None on failure."""

    cubin: bytes | None
    log: str
    registers: int | None = None
    stack: int | None = None
    spill: int | None = None

    @property
    def warnings(self) -> list[str]:
        return [line.strip() for line in self.log.splitlines() if "warning" in line.lower()]

    @property
    def first_error(self) -> str:
        """First diagnostic without the temporary file's name."""
        lines = [line for line in self.log.splitlines() if "error" in line.lower() or "fatal" in line.lower()]
        text = lines[0] if lines else (self.log.strip().splitlines() or ["no diagnostics"])[0]
        return re.sub(r"ptxas \S+\.ptx, ", "", text).strip()


def assemble(ptx: str, arch: str, flags: tuple[str, ...] = ("-lineinfo",)) -> Assembly:
    """Assemble PTX text for ``arch`` (``"sm_90a"``). A text that ptxas refuses gives an Assembly without an image."""
    with tempfile.TemporaryDirectory(prefix="xtrace-ptxas-") as folder:
        # A fixed file name: ptxas must see the same command for the same text.
        (Path(folder) / "kernel.ptx").write_text(ptx, encoding="utf-8")
        command = [str(tool("ptxas")), *flags, "-v", f"--gpu-name={arch}", "kernel.ptx", "-o", "kernel.cubin"]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return Assembly(None, f"ptxas error: no answer within {TIMEOUT_S} s")
        log = done.stdout + done.stderr
        output = Path(folder) / "kernel.cubin"
        if done.returncode != 0 or not output.is_file():
            return Assembly(None, log)
        used, stack = _USED.search(log), _STACK.search(log)
        return Assembly(
            output.read_bytes(),
            log,
            registers=int(used[1]) if used else None,
            stack=int(stack[1]) if stack else None,
            spill=int(stack[2]) + int(stack[3]) if stack else None,
        )


def listing(image: Path) -> list[str]:
    """Instruction texts of all kernels of ``image``, in order, without addresses."""
    done = subprocess.run([tool("nvdisasm"), "-c", "-hex", image], capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode != 0:
        message = (done.stderr.strip().splitlines() or ["nvdisasm failed"])[0]
        raise BadInput("XT6302", f"cannot be disassembled: {message}", where=image.name)
    return [m[1] for line in done.stdout.splitlines() if (m := _INSTRUCTION.match(line))]


def clock_reads(image: Path) -> int:
    """Clock reads in the machine code of ``image`` (records of 32- or 64-bit clocks count once)."""
    return sum(1 for text in listing(image) if _CLOCK.search(text))
