"""The Proton baseline: final TTGIR -> (plain, instrumented) cubins through Triton's own compiler."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal

from baselines import resources, toolchain
from baselines.api import Availability, Buffer, BuildResult, Launch, Resource, SiteCounts, Workload
from baselines.proton.marks import Marked, mark
from baselines.ptx_probe.module import parse_entry
from baselines.sites import Group, find_group
from xtrace.errors import BadInput, Unsupported, XtraceError

__all__ = ["Proton"]

TIMEOUT_S = 600
PINNED = "3.6.0"
_TARGET = re.compile(r'ttg\.target = "cuda:(\d+)"')
_WARPS = re.compile(r'"ttg\.num-warps" = (\d+)')
_CTAS = re.compile(r'"ttg\.num-ctas" = (\d+)')
# Dynamic shared memory that one block may opt in to, bytes (CUDA programming guide, compute capabilities).
_MAX_SHARED = {80: 166912, 89: 101376, 90: 232448, 100: 232448, 103: 232448, 120: 101376}
_MODES = {"shared": "default", "global": "default:buffer_type=global"}
_SETTINGS = ("TRITON_", "PTXAS_", "LLVM_", "MLIR_", "DISABLE_PTXAS", "PROTON_")


class Proton:
    """Proton's intra-kernel instrumentation with its default shared-memory buffer or with a global one."""

    def __init__(self, buffer: Literal["shared", "global"] = "shared") -> None:
        self.buffer = buffer
        self.name = "proton" if buffer == "shared" else "proton-global"
        self.title = "Proton (Triton intra-kernel)" + ("" if buffer == "shared" else ", global buffer")

    def available(self) -> Availability:
        """Triton must be installed; other versions than the pinned one are used, but said."""
        version = toolchain.triton_version()
        if version is None:
            return Availability(False, "Triton is not installed (extra 'kernels')")
        note = "" if version == PINNED else f"Triton {version} instead of {PINNED}: numbers differ between versions"
        return Availability(True, note, toolchain.versions())

    def count_sites(self, image: Path) -> int:
        """Clock reads in the machine code of ``image``."""
        return toolchain.clock_reads(image)

    def build(self, workload: Workload, probes: str, out_dir: Path) -> BuildResult:
        """See :meth:`baselines.api.Baseline.build`. The reason of ``unsupported`` names what the input lacks."""
        result = BuildResult(self.name, self.title, workload.name, probes, "failed", "not built")
        try:
            result.status, result.reason = "ok", ""
            self._build(workload, probes, out_dir, result)
        except Unsupported as error:
            result.status, result.reason = "unsupported", str(error)
        except XtraceError as error:
            result.status, result.reason = "failed", str(error)
        return result

    def _build(self, workload: Workload, probes: str, out_dir: Path, result: BuildResult) -> None:
        group = find_group(probes)
        if workload.cubin is None:
            raise BadInput("XT7306", "original.cubin is missing", where=workload.name)
        if workload.ttgir is None:
            raise Unsupported("XT7341", "no Triton source or TTGIR: not a Triton kernel", where=workload.name)
        found = self.available()
        if not found.ok:
            raise Unsupported("XT7342", found.reason)
        result.toolchain = dict(found.versions)
        if found.reason:
            result.notes.append(found.reason)
        text = workload.ttgir.read_text(encoding="utf-8")
        marked = mark(text, group, workload.ttgir.name)
        out_dir.mkdir(parents=True, exist_ok=True)
        (out_dir / "marked.ttgir").write_text(marked.text, encoding="utf-8")
        plain, instrumented = self._compile(workload, marked, text, out_dir)
        shutil.copyfile(workload.cubin, out_dir / "original.cubin")
        result.kernel = str(instrumented["name"])
        result.original_cubin = out_dir / "original.cubin"
        result.instrumented_cubin = out_dir / "instrumented.cubin"
        result.reference_cubin = out_dir / "ref.cubin"
        result.sites = list(marked.sites)
        self._describe(workload, group, plain, instrumented, out_dir, result)

    def _compile(
        self, workload: Workload, marked: Marked, text: str, out_dir: Path
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        target, warps, ctas = _TARGET.search(text), _WARPS.search(text), _CTAS.search(text)
        if target is None or warps is None:
            raise BadInput("XT7343", "names no CUDA target or warp count", where=f"{workload.name}: kernel.ttgir")
        arch = int(target[1])
        if arch not in _MAX_SHARED:
            raise Unsupported("XT7344", f"no shared memory limit known for cuda:{arch}", where=workload.name)
        options: dict[str, Any] = {"num_warps": int(warps[1]), "num_ctas": int(ctas[1]) if ctas else 1}
        with tempfile.TemporaryDirectory(prefix="xtrace-proton-") as folder:
            base = Path(folder)
            (base / "plain.ttgir").write_text(text, encoding="utf-8")
            (base / "marked.ttgir").write_text(marked.text, encoding="utf-8")
            request = {
                "plain": str(base / "plain.ttgir"),
                "marked": str(base / "marked.ttgir"),
                "mode": _MODES[self.buffer],
                "arch": arch,
                "max_shared": _MAX_SHARED[arch],
                "options": options,
                "out": folder,
            }
            (base / "request.json").write_text(json.dumps(request), encoding="utf-8")
            log = _run_worker(base / "request.json", base / "cache")
            diagnostics = [line for line in log.splitlines() if "error:" in line]
            if diagnostics:
                # Triton prints scope errors and compiles on; such a trace could not be decoded.
                message = re.sub(r"^\S*marked\.ttgir:", "line ", diagnostics[0])
                raise BadInput("XT7345", f"Triton rejects the marked kernel: {message}", where=workload.name)
            shutil.copyfile(base / "marked.cubin", out_dir / "instrumented.cubin")
            shutil.copyfile(base / "plain.cubin", out_dir / "ref.cubin")
            instrumented = json.loads((base / "marked.json").read_text(encoding="utf-8"))
            instrumented["parameters"] = parse_entry((base / "marked.ptx").read_text(encoding="utf-8")).parameters
            return json.loads((base / "plain.json").read_text(encoding="utf-8")), instrumented

    def _describe(
        self,
        workload: Workload,
        group: Group,
        plain: dict[str, Any],
        instrumented: dict[str, Any],
        out_dir: Path,
        result: BuildResult,
    ) -> None:
        before = resources.facts(out_dir / "original.cubin", result.kernel)
        after = resources.facts(out_dir / "instrumented.cubin", result.kernel)
        result.counts = SiteCounts(
            source=len(result.sites),
            closing=sum(s.closing for s in result.sites),
            sass_original=self.count_sites(out_dir / "original.cubin"),
            sass_instrumented=self.count_sites(out_dir / "instrumented.cubin"),
        )
        result.resources = {
            "registers": Resource(before.registers, after.registers),
            "static_shared": Resource(before.static_shared, after.static_shared),
            "dynamic_shared": Resource(plain["shared"], instrumented["shared"]),
        }
        result.controls["reference_equals_shipped"] = resources.same_code(
            out_dir / "original.cubin", out_dir / "ref.cubin"
        )
        warps = int(instrumented["num_warps"])
        ring = instrumented["shared"] - plain["shared"] if self.buffer == "shared" else None
        result.record = {
            "bytes": 8,
            "fields": ["tag and high clock bits u32", "low clock u32"],
            "per": "warp",
            "capacity": ring // 8 // warps if ring else None,
            "overflow": "circular: the newest records are kept",
        }
        result.launch = Launch(
            function=result.kernel,
            parameters=int(instrumented["parameters"]),
            block=(32 * warps, 1, 1),
            dynamic_shared=instrumented["shared"],
            buffers=(
                Buffer(
                    name="profile_scratch",
                    parameter=int(instrumented["parameters"]) - 1,
                    appended=False,
                    unit="cta",
                    bytes_per_unit=int(instrumented["profile_scratch_size"]),
                    align=int(instrumented["profile_scratch_align"]),
                    zero=False,
                    # the generated code multiplies the block number by the size in signed 32 bits
                    max_units=(2**31 - 1) // max(int(instrumented["profile_scratch_size"]), 1),
                ),
            ),
            notes=_LAUNCH_NOTES,
        )
        inexpressible = {m.phase.name: m.phase.ttgir.why for m in group.marks if not m.phase.ttgir.exact}
        result.notes += [f"{phase}: {why}" for phase, why in inexpressible.items()]
        if group.whole_kernel and not all(s.exact for s in result.sites):
            result.notes.append("several returns: each returning block has its own scope, begun with the block")


_LAUNCH_NOTES = (
    "the last parameter is null in the original and takes the buffer here; global_scratch before it stays null",
    "the kernel only writes the buffer: it writes its own headers, so the contents before the launch do not matter",
    "buffer of a block: u32 0xDEADBEEF, block, smid, ring bytes; u64 globaltimer at begin, before and after copy-out; "
    "u32 words written per warp from byte 40; then the rings",
)


def _run_worker(request: Path, cache: Path) -> str:
    """Run the compile worker in a clean environment; its diagnostics. Raises BadInput XT7346 when it fails."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(_SETTINGS)}
    environment |= {"TRITON_CACHE_DIR": str(cache), "TRITON_ALWAYS_COMPILE": "1"}
    worker = Path(__file__).with_name("worker.py")
    command = [sys.executable, str(worker), str(request)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise BadInput("XT7346", f"Triton gave no answer within {TIMEOUT_S} s") from error
    log = done.stdout + done.stderr
    if done.returncode != 0 and "error:" not in log:
        raise BadInput("XT7346", f"Triton failed: {(log.strip().splitlines() or ['no message'])[-1]}")
    return log
